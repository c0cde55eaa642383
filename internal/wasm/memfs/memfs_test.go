package memfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sample is a small tree: /d/f, /d/sub, /l -> d/f, /up -> ../../d, /loop.
func sample(t testing.TB) *FS {
	f := New(Limits{})
	must(t, f.MkdirAll("/", "/d/sub", 0o755))
	must(t, f.WriteFile("/", "/d/f", []byte("hello"), 0o644))
	must(t, f.Symlink("d/f", "/", "/l"))
	must(t, f.Symlink("../../d", "/", "/up"))
	must(t, f.Symlink("loop", "/", "/loop"))
	must(t, f.Symlink("nowhere", "/", "/dangling"))
	return f
}

func TestPathsAreResolvedInside(t *testing.T) {
	f := sample(t)
	for _, c := range []struct {
		cwd, path string
		want      string
		err       error
	}{
		{"/", "d/f", "/d/f", nil},
		{"/d", "f", "/d/f", nil},
		{"/d/sub", "../f", "/d/f", nil},
		{"", "l", "/d/f", nil},
		{"/", "up/f", "/d/f", nil},
		{"/", "/../../../../d/./sub/..//f", "/d/f", nil},
		{"/", "/etc/passwd", "", syscall.ENOENT},
		{"/", "loop", "", syscall.ELOOP},
		{"/", "dangling", "", syscall.ENOENT},
		{"/", "d/f/", "", syscall.ENOTDIR},
		{"/", "d/f/x", "", syscall.ENOTDIR},
		{"/", "l/", "", syscall.ENOTDIR},
		{"/", "up/", "/d", nil},
		{"/", "", "", syscall.ENOENT},
		{"/nowhere", "d", "", syscall.ENOENT},
		{"/d/f", "x", "", syscall.ENOTDIR},
		{"/", "a\x00b", "", syscall.EINVAL},
		{"/", strings.Repeat("x", 256), "", syscall.ENAMETOOLONG},
		{"/", strings.Repeat("./", 2050), "", syscall.ENAMETOOLONG},
		{"/", ".", "/", nil},
	} {
		got, err := f.Realpath(c.cwd, c.path)
		if got != c.want || err != c.err {
			t.Errorf("Realpath(%q, %.40q) = %q, %v, want %q, %v", c.cwd, c.path, got, err, c.want, c.err)
		}
	}
}

func TestLinksAreFollowedFortyTimes(t *testing.T) {
	f := New(Limits{})
	must(t, f.WriteFile("/", "0", []byte("x"), 0o644))
	for i := range 41 {
		must(t, f.Symlink(fmt.Sprint(i), "/", fmt.Sprint(i+1)))
	}
	if _, err := f.Stat("/", "40"); err != nil {
		t.Errorf("40 links: %v", err)
	}
	if _, err := f.Stat("/", "41"); err != syscall.ELOOP {
		t.Errorf("41 links: %v, want ELOOP", err)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(f *FS) error
		want error
	}{
		{"mkdir exists", func(f *FS) error { return f.Mkdir("/", "d", 0o755) }, syscall.EEXIST},
		{"mkdir dangling", func(f *FS) error { return f.Mkdir("/", "dangling/", 0o755) }, syscall.EEXIST},
		{"mkdir root", func(f *FS) error { return f.Mkdir("/", "/", 0o755) }, syscall.EEXIST},
		{"mkdirall over a file", func(f *FS) error { return f.MkdirAll("/", "d/f/x", 0o755) }, syscall.ENOTDIR},
		{"remove a directory", func(f *FS) error { return f.Remove("/", "d") }, syscall.EISDIR},
		{"remove a link with a slash", func(f *FS) error { return f.Remove("/", "up/") }, syscall.ENOTDIR},
		{"remove all of a link with a slash", func(f *FS) error { return f.RemoveAll("/", "up/") }, syscall.ENOTDIR},
		{"rmdir full", func(f *FS) error { return f.Rmdir("/", "d") }, syscall.ENOTEMPTY},
		{"rmdir dot", func(f *FS) error { return f.Rmdir("/", "d/sub/.") }, syscall.EINVAL},
		{"rmdir root", func(f *FS) error { return f.Rmdir("/", "/") }, syscall.EBUSY},
		{"rmdir a file", func(f *FS) error { return f.Rmdir("/", "d/f") }, syscall.ENOTDIR},
		{"remove all of root", func(f *FS) error { return f.RemoveAll("/", "/") }, syscall.EBUSY},
		{"remove all of dot", func(f *FS) error { return f.RemoveAll("/d", ".") }, syscall.EINVAL},
		{"remove all of nothing", func(f *FS) error { return f.RemoveAll("/", "x/y") }, nil},
		{"rename into itself", func(f *FS) error { return f.Rename("/", "d", "d/sub/x") }, syscall.EINVAL},
		{"rename root", func(f *FS) error { return f.Rename("/", "/", "x") }, syscall.EBUSY},
		{"rename over a full directory", func(f *FS) error { must(t, f.Mkdir("/", "e", 0o755)); return f.Rename("/", "e", "d") }, syscall.ENOTEMPTY},
		{"rename a file over a directory", func(f *FS) error { return f.Rename("/", "d/f", "d/sub") }, syscall.EISDIR},
		{"rename a directory over a file", func(f *FS) error { return f.Rename("/", "d/sub", "d/f") }, syscall.ENOTDIR},
		{"rename a file to a slash", func(f *FS) error { return f.Rename("/", "d/f", "x/") }, syscall.ENOTDIR},
		{"rename nothing", func(f *FS) error { return f.Rename("/", "x", "y") }, syscall.ENOENT},
		{"rename to what there is not", func(f *FS) error { return f.RenameNew("/", "x", "d") }, syscall.ENOENT},
		{"rename anew over a file", func(f *FS) error { return f.RenameNew("/", "l", "d/f") }, syscall.EEXIST},
		{"rename anew over a directory", func(f *FS) error { must(t, f.Mkdir("/", "n", 0o755)); return f.RenameNew("/", "n", "d") }, syscall.EEXIST},
		{"rename anew to itself", func(f *FS) error { return f.RenameNew("/", "d", "d") }, syscall.EEXIST},
		{"rename anew", func(f *FS) error { return f.RenameNew("/", "d/f", "new") }, nil},
		{"link a directory", func(f *FS) error { return f.Link("/", "d", "x") }, syscall.EPERM},
		{"link over something", func(f *FS) error { return f.Link("/", "d/f", "l") }, syscall.EEXIST},
		{"empty link", func(f *FS) error { return f.Symlink("", "/", "x") }, syscall.ENOENT},
		{"readlink of a file", func(f *FS) error { _, err := f.Readlink("/", "d/f"); return err }, syscall.EINVAL},
		{"truncate a directory", func(f *FS) error { return f.Truncate("/", "d", 0) }, syscall.EISDIR},
		{"truncate below zero", func(f *FS) error { return f.Truncate("/", "d/f", -1) }, syscall.EINVAL},
		{"readdir of a file", func(f *FS) error { _, err := f.ReadDir("/", "d/f"); return err }, syscall.ENOTDIR},
		{"read a directory whole", func(f *FS) error { _, err := f.ReadFile("/", "d"); return err }, syscall.EISDIR},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := sample(t)
			if err := c.do(f); err != c.want {
				t.Errorf("got %v, want %v", err, c.want)
			}
			audit(t, f)
		})
	}
}

func TestOpenFile(t *testing.T) {
	for _, c := range []struct {
		path string
		flag int
		want error
	}{
		{"/new", os.O_RDONLY, syscall.ENOENT},
		{"/new", os.O_RDWR | os.O_CREATE, nil},
		{"/new/", os.O_RDWR | os.O_CREATE, syscall.EISDIR},
		{"/no/new", os.O_RDWR | os.O_CREATE, syscall.ENOENT},
		{"/d/f", os.O_RDWR | os.O_CREATE | os.O_EXCL, syscall.EEXIST},
		{"/dangling", os.O_RDWR | os.O_CREATE | os.O_EXCL, syscall.EEXIST},
		{"/dangling", os.O_RDWR | os.O_CREATE, nil},
		{"/d", os.O_RDONLY, nil},
		{"/d", os.O_WRONLY, syscall.EISDIR},
		{"/d", os.O_RDONLY | os.O_CREATE, syscall.EISDIR},
		{"/d/f", os.O_RDONLY | Directory, syscall.ENOTDIR},
		{"/l", os.O_RDONLY | NoFollow, syscall.ELOOP},
		{"/l", os.O_RDONLY, nil},
	} {
		f := sample(t)
		h, err := f.OpenFile("/", c.path, c.flag, 0o600)
		if err != c.want {
			t.Errorf("OpenFile(%q, %#x): %v, want %v", c.path, c.flag, err, c.want)
		}
		if err == nil {
			must(t, h.Close())
		}
		audit(t, f)
	}
}

func TestReadAndWrite(t *testing.T) {
	f := New(Limits{})
	h, err := f.OpenFile("/", "f", os.O_RDWR|os.O_CREATE, 0o644)
	must(t, err)
	want := make([]byte, 3*chunkSize+17)
	for i := range want {
		want[i] = byte(i * 7)
	}
	for off := 0; off < len(want); off += 1000 {
		_, err := h.Write(want[off:min(off+1000, len(want))])
		must(t, err)
	}
	_, err = h.WriteAt([]byte("xyz"), 2*chunkSize-1)
	must(t, err)
	copy(want[2*chunkSize-1:], "xyz")
	_, err = h.Seek(0, io.SeekStart)
	must(t, err)
	got, err := io.ReadAll(h)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Error("read back something else")
	}
	must(t, h.Truncate(chunkSize+5))
	must(t, h.Truncate(chunkSize+9))
	got, err = f.ReadFile("/", "f")
	must(t, err)
	if !bytes.Equal(got, append(slices.Clone(want[:chunkSize+5]), 0, 0, 0, 0)) {
		t.Error("what was cut off came back")
	}
	audit(t, f)
	must(t, h.Close())
	for name, err := range map[string]error{
		"Close":    h.Close(),
		"Truncate": h.Truncate(0),
		"Read":     second(h.Read(make([]byte, 1))),
		"Write":    second(h.Write([]byte("x"))),
		"Seek":     second(h.Seek(0, 0)),
		"Stat":     second(h.Stat()),
		"ReadDir":  second(h.ReadDir(0)),
	} {
		if err != syscall.EBADF {
			t.Errorf("%s of a closed file: %v, want EBADF", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestAppend(t *testing.T) {
	f := sample(t)
	h, err := f.OpenFile("/", "d/f", os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer h.Close()
	_, err = h.Write([]byte(" world"))
	must(t, err)
	h.SetAppend(false)
	_, err = h.Seek(0, io.SeekStart)
	must(t, err)
	_, err = h.Write([]byte("J"))
	must(t, err)
	if got, _ := f.ReadFile("/", "d/f"); string(got) != "Jello world" {
		t.Errorf("got %q", got)
	}
	if _, err := h.Read(make([]byte, 1)); err != syscall.EBADF {
		t.Errorf("reading a file opened for writing: %v, want EBADF", err)
	}
}

func TestAFileWithoutANameLivesUntilItIsClosed(t *testing.T) {
	f := New(Limits{})
	h, err := f.OpenFile("/", "f", os.O_RDWR|os.O_CREATE, 0o644)
	must(t, err)
	must(t, f.Remove("/", "f"))
	_, err = h.Write([]byte("still here"))
	must(t, err)
	b := make([]byte, 10)
	if n, err := h.ReadAt(b, 0); n != 10 || err != nil || string(b) != "still here" {
		t.Errorf("ReadAt = %d, %v, %q", n, err, b)
	}
	if u := f.Usage(); u.Inodes != 2 {
		t.Errorf("%d inodes while it is open, want 2", u.Inodes)
	}
	must(t, h.Close())
	if u := f.Usage(); u.Inodes != 1 || u.Bytes != 0 {
		t.Errorf("usage %+v after its end, want an empty root", u)
	}
	audit(t, f)
}

func TestLimits(t *testing.T) {
	t.Run("bytes", func(t *testing.T) {
		f := New(Limits{Bytes: 1 << 20})
		h, err := f.OpenFile("/", "f", os.O_WRONLY|os.O_CREATE, 0o644)
		must(t, err)
		n, err := h.Write(make([]byte, 1<<19))
		if n != 1<<19 || err != nil {
			t.Fatalf("half of it: %d, %v", n, err)
		}
		n, err = h.Write(make([]byte, 1<<19))
		if err != syscall.ENOSPC || n >= 1<<19 || n < 1<<18 {
			t.Errorf("all of it: %d, %v, want a short write and ENOSPC", n, err)
		}
		if _, err := h.WriteAt([]byte("x"), 2<<20); err != syscall.EFBIG {
			t.Errorf("far away: %v, want EFBIG", err)
		}
		must(t, h.Truncate(0))
		if _, err := h.WriteAt(make([]byte, 1<<19), 0); err != nil {
			t.Errorf("after making room: %v", err)
		}
		must(t, h.Close())
		audit(t, f)
	})
	t.Run("small files", func(t *testing.T) {
		f := New(Limits{Bytes: 64 << 10})
		var err error
		for i := 0; err == nil; i++ {
			err = f.WriteFile("/", fmt.Sprint(i), []byte("x"), 0o644)
		}
		if err != syscall.ENOSPC {
			t.Errorf("got %v, want ENOSPC", err)
		}
		audit(t, f)
	})
	t.Run("names", func(t *testing.T) {
		f := New(Limits{Bytes: 64 << 10})
		must(t, f.WriteFile("/", "f", nil, 0o644))
		var err error
		n := 0
		for ; err == nil; n++ {
			err = f.Link("/", "f", fmt.Sprint(n))
		}
		if err != syscall.ENOSPC || n > 1024 {
			t.Errorf("%d links, then %v, want ENOSPC before 1024", n, err)
		}
		audit(t, f)
	})
	t.Run("inodes", func(t *testing.T) {
		f := New(Limits{Inodes: 10})
		var err error
		n := 0
		for ; err == nil; n++ {
			err = f.Mkdir("/", fmt.Sprint(n), 0o755)
		}
		if err != syscall.ENOSPC || n != 10 {
			t.Errorf("directory %d: %v, want ENOSPC at the tenth", n, err)
		}
		must(t, f.RemoveAll("/", "3"))
		must(t, f.Symlink("x", "/", "link"))
		audit(t, f)
	})
	t.Run("holes", func(t *testing.T) {
		f := New(Limits{Bytes: 1 << 30})
		must(t, f.WriteFile("/", "f", nil, 0o644))
		must(t, f.Truncate("/", "f", 1<<30))
		if u := f.Usage(); u.Bytes > 1000 {
			t.Errorf("a hole costs %d bytes", u.Bytes)
		}
		if err := f.Truncate("/", "f", 1<<30+1); err != syscall.EFBIG {
			t.Errorf("got %v, want EFBIG", err)
		}
	})
}

func TestSnapshotAndRestore(t *testing.T) {
	f := sample(t)
	must(t, f.WriteFile("/", "big", bytes.Repeat([]byte("abc"), chunkSize), 0o644))
	before, usage := dump(t, f), f.Usage()
	s := f.Snapshot()
	for range 3 {
		h, err := f.OpenFile("/", "big", os.O_RDWR, 0)
		must(t, err)
		_, err = h.WriteAt([]byte("overwritten"), chunkSize+3)
		must(t, err)
		must(t, f.Truncate("/", "big", 2*chunkSize+10))
		must(t, f.Rename("/", "d", "moved"))
		must(t, f.Remove("/", "moved/f"))
		must(t, f.Chmod("/", "moved/sub", 0o700))
		must(t, f.Link("/", "big", "second"))
		for i := range 200 {
			must(t, f.WriteFile("/moved/sub", fmt.Sprint(i), []byte("new"), 0o600))
		}
		audit(t, f)
		if dump(t, f) == before {
			t.Fatal("nothing changed")
		}
		f.Restore(s)
		audit(t, f)
		if got := dump(t, f); got != before {
			t.Errorf("restored:\n%s\nwant:\n%s", got, before)
		}
		if got := f.Usage(); got != usage {
			t.Errorf("usage %+v, want %+v", got, usage)
		}
		if _, err := h.Write([]byte("x")); err != syscall.ESTALE {
			t.Errorf("an old handle writes: %v, want ESTALE", err)
		}
		must(t, h.Close())
	}
}

func TestSnapshotOfAnOpenFileWithoutAName(t *testing.T) {
	f := New(Limits{})
	h, err := f.OpenFile("/", "f", os.O_RDWR|os.O_CREATE, 0o644)
	must(t, err)
	must(t, f.Remove("/", "f"))
	s := f.Snapshot()
	must(t, h.Close())
	f.Restore(s)
	if u := f.Usage(); u.Inodes != 1 {
		t.Errorf("%d inodes, want the root only", u.Inodes)
	}
	audit(t, f)
}

// dump returns everything that a program can see, as text.
func dump(t testing.TB, f *FS) string {
	var b strings.Builder
	var visit func(path string)
	visit = func(path string) {
		list, err := f.ReadDir("/", path)
		must(t, err)
		for _, i := range list {
			full := path + "/" + i.Name()
			fmt.Fprintf(&b, "%s %v %d %d %d %v\n", full, i.Mode(), i.Size(), i.Links(), i.Inode(), i.ModTime())
			switch {
			case i.IsDir():
				visit(full)
			case i.Mode().IsRegular():
				data, err := f.ReadFile("/", full)
				must(t, err)
				fmt.Fprintf(&b, "%q\n", data)
			}
		}
	}
	visit("/")
	return b.String()
}

func TestDevices(t *testing.T) {
	f := New(Limits{})
	for _, d := range []Device{Null, Zero, Full, Random} {
		must(t, f.Mknod("/", string(d), d, 0o666))
	}
	for _, c := range []struct {
		device  string
		n       int
		rerr    error
		werr    error
		nonzero bool
	}{
		{"null", 0, io.EOF, nil, false},
		{"zero", 64, nil, nil, false},
		{"full", 64, nil, syscall.ENOSPC, false},
		{"random", 64, nil, nil, true},
	} {
		h, err := f.OpenFile("/", c.device, os.O_RDWR|os.O_TRUNC, 0)
		must(t, err)
		b := make([]byte, 64)
		n, err := h.Read(b)
		if n != c.n || err != c.rerr {
			t.Errorf("%s: read %d, %v, want %d, %v", c.device, n, err, c.n, c.rerr)
		}
		if (bytes.Count(b, []byte{0}) < 32) != c.nonzero {
			t.Errorf("%s gave %x", c.device, b)
		}
		if _, err := h.Write([]byte("x")); err != c.werr {
			t.Errorf("%s: write: %v, want %v", c.device, err, c.werr)
		}
		must(t, h.Close())
	}
}

func TestReadDirOfAHandle(t *testing.T) {
	f := New(Limits{})
	for _, n := range []string{"c", "a", "b"} {
		must(t, f.WriteFile("/", n, nil, 0o644))
	}
	h, err := f.OpenFile("/", "/", os.O_RDONLY|Directory, 0)
	must(t, err)
	defer h.Close()
	names := func(n int) string {
		list, err := h.ReadDir(n)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		var s []string
		for _, i := range list {
			s = append(s, i.Name())
		}
		return strings.Join(s, " ")
	}
	if a, b, c := names(2), names(2), names(2); a != "a b" || b != "c" || c != "" {
		t.Errorf("in twos: %q, %q, %q", a, b, c)
	}
	_, err = h.Seek(0, io.SeekStart)
	must(t, err)
	must(t, f.Remove("/", "b"))
	if all := names(-1); all != "a c" {
		t.Errorf("afresh: %q", all)
	}
}

func TestTimesAndModes(t *testing.T) {
	f := sample(t)
	at, mt := time.Unix(1000, 1), time.Unix(2000, 2)
	must(t, f.Chtimes("/", "l", at, mt))
	must(t, f.Chmod("/", "l", 0o4755|fs.ModeSetuid|fs.ModeDir))
	i, err := f.Stat("/", "d/f")
	must(t, err)
	if !i.ModTime().Equal(mt) || !i.AccessTime().Equal(at) || i.Mode() != 0o755|fs.ModeSetuid {
		t.Errorf("got %v, %v, %v", i.ModTime(), i.AccessTime(), i.Mode())
	}
	must(t, f.Lchtimes("/", "l", time.Time{}, time.Unix(5, 0)))
	if i, _ := f.Lstat("/", "l"); i.ModTime().Unix() != 5 {
		t.Errorf("the link's time is %v", i.ModTime())
	}
}

func TestADeepTreeIsRemoved(t *testing.T) {
	f := New(Limits{})
	// Create a tree that is deeper than the longest path: move a/a/… below another one repeatedly.
	must(t, f.Mkdir("/", "t", 0o755))
	for range 30 {
		must(t, f.MkdirAll("/", "n"+strings.Repeat("/a", 200), 0o755))
		must(t, f.Rename("/", "t", "n"+strings.Repeat("/a", 200)+"/t"))
		must(t, f.Rename("/", "n", "t"))
	}
	if u := f.Usage(); u.Inodes < 6000 {
		t.Fatalf("only %d inodes", u.Inodes)
	}
	must(t, f.RemoveAll("/", "t"))
	if u := f.Usage(); u.Inodes != 1 || u.Bytes != 0 {
		t.Errorf("left: %+v", u)
	}
	audit(t, f)
}

func TestConcurrentUse(t *testing.T) {
	f := New(Limits{Bytes: 8 << 20, Inodes: 1000})
	must(t, f.MkdirAll("/", "/d", 0o755))
	s := f.Snapshot()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				name := fmt.Sprintf("/d/%d", (g+i)%10)
				switch (g + i) % 5 {
				case 0, 1:
					_ = f.WriteFile("/", name, bytes.Repeat([]byte{byte(i)}, 5000), 0o644)
				case 2:
					_, _ = f.ReadFile("/", name)
				case 3:
					_ = f.Rename("/", name, name+"x")
				case 4:
					_ = f.RemoveAll("/", name+"x")
				}
				if g == 0 && i%50 == 49 {
					f.Restore(s)
				}
			}
		})
	}
	wg.Wait()
	audit(t, f)
}
