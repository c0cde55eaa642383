package memfs

import (
	"os"
	"path"
	"strings"
	"testing"
)

// Every path resolves to a clean absolute path inside the file system that leads to the same file,
// and operations on it keep the accounting consistent.
func FuzzPaths(f *testing.F) {
	for _, p := range []string{"/", ".", "d/f", "/d/../d/./f/", "up/../l", "loop", "dangling", "../../..", "d/sub/../../up/sub", "a/b", "\x00", "", "//", "l/x", strings.Repeat("d/../", 900)} {
		f.Add("/d", p, "d/new")
	}
	f.Fuzz(func(t *testing.T, cwd, a, b string) {
		fs := sample(t)
		s := fs.Snapshot()
		if real, err := fs.Realpath(cwd, a); err == nil {
			if !path.IsAbs(real) || path.Clean(real) != real {
				t.Errorf("Realpath(%q, %q) = %q", cwd, a, real)
			}
			x, err1 := fs.Stat(cwd, a)
			y, err2 := fs.Lstat("/", real)
			if err1 != nil || err2 != nil || x.Inode() != y.Inode() {
				t.Errorf("%q from %q is not %q: %v, %v", a, cwd, real, err1, err2)
			}
		}
		_ = fs.Mkdir(cwd, a, 0o755)
		_ = fs.WriteFile(cwd, b, []byte("new"), 0o644)
		_ = fs.Rename(cwd, a, b)
		_ = fs.Symlink(a, cwd, b)
		_ = fs.Link(cwd, a, b)
		if h, err := fs.OpenFile(cwd, b, os.O_RDWR|os.O_CREATE, 0o600); err == nil {
			_, _ = h.WriteAt([]byte(a), int64(len(b)))
			_ = fs.Remove(cwd, b)
			audit(t, fs)
			_ = h.Close()
		}
		_ = fs.Truncate(cwd, a, 5)
		_ = fs.MkdirAll(cwd, b+"/"+a, 0o700)
		audit(t, fs)
		_ = fs.Rmdir(cwd, a)
		_ = fs.RemoveAll(cwd, b)
		_ = fs.RemoveAll(cwd, a)
		audit(t, fs)
		before := fs.Usage()
		fs.Restore(s)
		audit(t, fs)
		if after := fs.Usage(); after.Inodes > 20 && before.Inodes > 20 {
			t.Errorf("usage %+v, then %+v", before, after)
		}
	})
}
