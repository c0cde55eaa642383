package guest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/erofs/go-erofs"

	"github.com/sandbar-dev/sandbar"
)

// files is a directory with the kinds of entries that a root can have.
func files(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	noise := rand.NewChaCha8([32]byte{1})
	big := make([]byte, 3<<20+17)
	noise.Read(big)
	for name, content := range map[string][]byte{
		"empty": nil, "small": []byte("x"), "block": big[:4096], "over": big[:4097], "big": big,
		"sparse": append(make([]byte, 1<<20), 'x'), "d/e/f": []byte("deep"), "läng": []byte("utf-8"),
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o640)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Unix(1700000000, 123456789)); err != nil {
			t.Fatal(err)
		}
	}
	// A directory of several blocks.
	if err := os.Mkdir(filepath.Join(dir, "many"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 500 {
		if err := os.WriteFile(filepath.Join(dir, "many", "a rather long name of a file "+strconv.Itoa(i)), []byte(strconv.Itoa(i)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// imageOf returns a function for BuildRoot.
func imageOf(id, dir string) func(context.Context) (*Tree, error) {
	return func(ctx context.Context) (*Tree, error) { return ImageTree(ctx, id, dir) }
}

// openErofs opens a root with the reader of EROFS.
func openErofs(t *testing.T, r Root) fs.FS {
	t.Helper()
	f, err := os.Open(r.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	image, err := erofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// permissions returns the type and permissions of a file. The mode that the reader of EROFS returns
// also has the bits of the file on the disk.
func permissions(info fs.FileInfo) fs.FileMode { return info.Mode() & (fs.ModeType | fs.ModePerm) }

func TestRootHasTheFiles(t *testing.T) {
	dir := files(t)
	r, err := BuildRoot(t.Context(), t.TempDir(), imageOf("sha256:1", dir), RootOptions{})
	if err != nil {
		t.Fatal(err)
	}
	image := openErofs(t, r)
	var names, want []string
	collect := func(all *[]string) fs.WalkDirFunc {
		return func(p string, _ fs.DirEntry, err error) error {
			if !slices.Contains([]string{"dev", "proc", "tmp"}, p) {
				*all = append(*all, p)
			}
			return err
		}
	}
	if err := errors.Join(fs.WalkDir(image, ".", collect(&names)), fs.WalkDir(os.DirFS(dir), ".", collect(&want))); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Fatalf("the root has %d entries, want %d", len(names), len(want))
	}
	for _, name := range want[1:] {
		got, err := fs.Stat(image, name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if permissions(got) != permissions(info) || !got.ModTime().Equal(info.ModTime()) {
			t.Errorf("%s: %v %v, want %v %v", name, got.Mode(), got.ModTime(), info.Mode(), info.ModTime())
		}
		if info.IsDir() {
			continue
		}
		b, err := fs.ReadFile(image, name)
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, content) {
			t.Errorf("%s has another content", name)
		}
	}
}

func TestRootIsDeterministicAndCached(t *testing.T) {
	dir := files(t)
	var sums []string
	for range 2 {
		cache := t.TempDir()
		r, err := BuildRoot(t.Context(), cache, imageOf("sha256:1", dir), RootOptions{})
		if err != nil {
			t.Fatal(err)
		}
		sum, err := fileDigest(r.Path)
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, sum)
		before, _ := os.Stat(r.Path)
		again, err := BuildRoot(t.Context(), cache, imageOf("sha256:1", dir), RootOptions{})
		after, _ := os.Stat(r.Path)
		if err != nil || again != r || !os.SameFile(before, after) {
			t.Errorf("building again: %+v, %v, want the same file", again, err)
		}
		other, err := BuildRoot(t.Context(), cache, imageOf("sha256:2", dir), RootOptions{})
		if err != nil || other.Digest == r.Digest {
			t.Errorf("another image: %+v, %v", other, err)
		}
		all, err := Roots(cache)
		if err != nil || len(all) != 2 {
			t.Errorf("Roots: %v, %v", all, err)
		}
		if err := errors.Join(other.Remove(), r.Remove()); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(cache, rootsDir, "*")); len(left) != 1 { // the lock
			t.Errorf("left: %q", left)
		}
	}
	if sums[0] != sums[1] {
		t.Error("two builds differ")
	}
}

// TestRootIsRebuilt checks that damaged and unfinished files of a cache directory are not used.
func TestRootIsRebuilt(t *testing.T) {
	dir, cache := files(t), t.TempDir()
	r, err := BuildRoot(t.Context(), cache, imageOf("sha256:1", dir), RootOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := fileDigest(r.Path)
	if err != nil {
		t.Fatal(err)
	}
	unfinished := filepath.Join(cache, rootsDir, unfinishedPrefix+"1")
	for name, spoil := range map[string]func() error{
		"truncated":   func() error { return os.Truncate(r.Path, 4096) },
		"removed":     func() error { return os.Remove(r.Path) },
		"undescribed": func() error { return os.WriteFile(r.Path+".json", []byte("{"), 0o600) },
		"unfinished":  func() error { return os.WriteFile(unfinished, []byte("x"), 0o600) },
	} {
		if err := errors.Join(os.Chmod(r.Path, 0o644), spoil()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := BuildRoot(t.Context(), cache, imageOf("sha256:1", dir), RootOptions{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := fileDigest(r.Path); err != nil || got != want {
			t.Errorf("%s: the root has the digest %s, %v", name, got, err)
		}
	}
	if _, err := os.Stat(unfinished); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an unfinished file remains: %v", err)
	}
}

func TestRootRefuses(t *testing.T) {
	dir, cache := files(t), t.TempDir()
	if _, err := BuildRoot(t.Context(), cache, imageOf("sha256:1", dir), RootOptions{MaxSize: 1 << 20}); sandbar.CodeOf(err) != sandbar.TooLarge {
		t.Errorf("a tree over the bound: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := BuildRoot(ctx, cache, imageOf("sha256:1", dir), RootOptions{}); sandbar.CodeOf(err) != sandbar.Canceled {
		t.Errorf("a cancelled build: %v", err)
	}
	// A file that changes during every attempt.
	changing := func(ctx context.Context) (*Tree, error) {
		tree, err := ImageTree(ctx, "sha256:1", dir)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "small"), []byte(strings.Repeat("x", 1+rand.IntN(1<<20))), 0o600)
		}
		return tree, err
	}
	if _, err := BuildRoot(t.Context(), cache, changing, RootOptions{}); !errors.Is(err, errChanged) {
		t.Errorf("a changing file: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, rootsDir, "*")); len(left) != 1 { // the lock
		t.Errorf("left: %q", left)
	}
}

func TestSparseFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := &sparseFile{f: f}
	var want []byte
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		piece := make([]byte, random.IntN(20000))
		if random.IntN(2) == 0 {
			for i := range piece {
				piece[i] = byte(random.IntN(256))
			}
		}
		want = append(want, piece...)
		if n, err := s.Write(piece); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	// The writer returns to the beginning for the superblock.
	if _, err := s.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 8192)
	copy(want, head)
	if _, err := s.Write(head); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(s.size); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file differs: %d bytes, want %d, %v", len(got), len(want), err)
	}
}
