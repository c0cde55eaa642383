package memfs

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// audit compares the accounting with the tree: bytes, inodes, links and parents.
func audit(t testing.TB, f *FS) {
	t.Helper()
	links := map[uint64]int{rootNumber: 2}
	var bytes, count int64
	var visit func(b *branch)
	visit = func(b *branch) {
		if b == nil {
			return
		}
		for level := range tableFan {
			if b.kids != nil {
				visit(b.kids[level])
				continue
			}
			i := b.inodes[level]
			if i == nil {
				continue
			}
			count++
			bytes += i.charge()
			for name, n := range i.entries {
				kid := f.inode(n)
				if kid == nil {
					t.Errorf("%q in directory %d stands for inode %d, which does not exist", name, i.number, n)
					continue
				}
				links[n]++
				if kid.mode.IsDir() {
					links[n]++ // its own "."
					links[i.number]++
					if kid.parent != i.number {
						t.Errorf("directory %d is in %d but has the parent %d", n, i.number, kid.parent)
					}
				}
			}
		}
	}
	visit(f.now.inodes.root)
	if bytes != f.now.bytes || count != f.now.count {
		t.Errorf("accounted %d bytes and %d inodes, there are %d and %d", f.now.bytes, f.now.count, bytes, count)
	}
	for n, want := range links {
		if i := f.inode(n); i != nil && i.links != want {
			t.Errorf("inode %d has %d links, accounted %d", n, want, i.links)
		}
	}
}
