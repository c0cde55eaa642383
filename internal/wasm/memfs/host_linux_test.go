package memfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// Random calls have the same results on a directory of the host and on an FS, and leave the same
// tree. Paths have no "..", so that nothing else on the host can be reached, also through links.
func TestTheHostDoesTheSame(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	defer syscall.Umask(syscall.Umask(0))
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "memfs")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		f := New(Limits{})
		name := rapid.SampledFrom([]string{"a", "b", "c", "a/a", "a/b", "b/c", "c/a/b", "a/", "b/.", "./c", "b/c/", "a//b"})
		data := rapid.SampledFrom([]string{"", "x", "hello"})
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			what := rapid.SampledFrom([]string{"mkdir", "write", "append", "remove", "rmdir", "rename", "link", "symlink", "truncate", "exclusive", "chmod", "readlink", "stat", "lstat", "read", "list"}).Draw(t, "what")
			x, y, d := name.Draw(t, "x"), name.Draw(t, "y"), data.Draw(t, "data")
			hostOut, hostErr := onHost(dir, what, x, y, d)
			ourOut, ourErr := onFS(f, what, x, y, d)
			if hostErr != ourErr || hostOut != ourOut {
				t.Fatalf("%s %q %q: %q, %v; the host: %q, %v", what, x, y, ourOut, ourErr, hostOut, hostErr)
			}
		}
		if got, want := listing(f), hostTree(t, dir); got != want {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// onHost returns the host's path for a path below dir. It keeps a slash at the end.
func onHost(dir, what, x, y, data string) (string, error) {
	p, q := dir+"/"+x, dir+"/"+y
	errno := func(err error) error {
		if err == nil {
			return nil
		}
		e := err
		for {
			u, ok := e.(interface{ Unwrap() error })
			if !ok {
				return e
			}
			e = u.Unwrap()
		}
	}
	write := func(flag int) error {
		f, err := os.OpenFile(p, flag, 0o640)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteString(data)
		return err
	}
	switch what {
	case "mkdir":
		return "", errno(syscall.Mkdir(p, 0o750))
	case "write":
		return "", errno(write(os.O_WRONLY | os.O_CREATE | os.O_TRUNC))
	case "append":
		return "", errno(write(os.O_WRONLY | os.O_APPEND))
	case "exclusive":
		return "", errno(write(os.O_WRONLY | os.O_CREATE | os.O_EXCL))
	case "remove":
		return "", errno(syscall.Unlink(p))
	case "rmdir":
		return "", errno(syscall.Rmdir(p))
	case "rename":
		return "", errno(syscall.Rename(p, q))
	case "link":
		return "", errno(syscall.Link(p, q))
	case "symlink":
		return "", errno(syscall.Symlink(strings.TrimRight(x, "/"), q))
	case "truncate":
		return "", errno(syscall.Truncate(p, int64(len(y))))
	case "chmod":
		return "", errno(syscall.Chmod(p, uint32(0o700+len(y))))
	case "readlink":
		s, err := os.Readlink(p)
		return s, errno(err)
	case "stat", "lstat":
		call := os.Stat
		if what == "lstat" {
			call = os.Lstat
		}
		info, err := call(p)
		if err != nil {
			return "", errno(err)
		}
		return shape(info.Mode(), info.Size(), int(info.Sys().(*syscall.Stat_t).Nlink)), nil
	case "read":
		f, err := os.Open(p)
		if err != nil {
			return "", errno(err)
		}
		defer f.Close()
		b := make([]byte, 100)
		n, err := f.Read(b)
		if err != nil && err.Error() == "EOF" {
			err = nil
		}
		return string(b[:max(n, 0)]), errno(err)
	}
	list, err := os.ReadDir(p)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return strings.Join(names, " "), errno(err)
}

func onFS(f *FS, what, x, y, data string) (string, error) {
	write := func(flag int) error {
		h, err := f.OpenFile("/", x, flag, 0o640)
		if err != nil {
			return err
		}
		defer h.Close()
		_, err = h.Write([]byte(data))
		return err
	}
	switch what {
	case "mkdir":
		return "", f.Mkdir("/", x, 0o750)
	case "write":
		return "", write(os.O_WRONLY | os.O_CREATE | os.O_TRUNC)
	case "append":
		return "", write(os.O_WRONLY | os.O_APPEND)
	case "exclusive":
		return "", write(os.O_WRONLY | os.O_CREATE | os.O_EXCL)
	case "remove":
		return "", f.Remove("/", x)
	case "rmdir":
		return "", f.Rmdir("/", x)
	case "rename":
		return "", f.Rename("/", x, y)
	case "link":
		return "", f.Link("/", x, y)
	case "symlink":
		return "", f.Symlink(strings.TrimRight(x, "/"), "/", y)
	case "truncate":
		return "", f.Truncate("/", x, int64(len(y)))
	case "chmod":
		return "", f.Chmod("/", x, os.FileMode(0o700+len(y)))
	case "readlink":
		return f.Readlink("/", x)
	case "stat", "lstat":
		call := f.Stat
		if what == "lstat" {
			call = f.Lstat
		}
		info, err := call("/", x)
		if err != nil {
			return "", err
		}
		return shape(info.Mode(), info.Size(), info.Links()), nil
	case "read":
		h, err := f.OpenFile("/", x, os.O_RDONLY, 0)
		if err != nil {
			return "", err
		}
		defer h.Close()
		b := make([]byte, 100)
		n, err := h.Read(b)
		if err != nil && err.Error() == "EOF" {
			err = nil
		}
		return string(b[:n]), err
	}
	list, err := f.ReadDir("/", x)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return strings.Join(names, " "), err
}

// shape is the compared part of stat's result. The size and the link count of a directory depend on
// the file system.
func shape(m os.FileMode, size int64, links int) string {
	if m.IsDir() {
		size, links = 0, 0
	}
	return fmt.Sprint(m, size, links)
}

// listing returns the whole tree as text.
func listing(f *FS) string {
	var lines []string
	var visit func(dir string)
	visit = func(dir string) {
		list, _ := f.ReadDir("/", dir)
		for _, i := range list {
			full := strings.TrimSuffix(dir, "/") + "/" + i.Name()
			lines = append(lines, full+" "+shape(i.Mode(), i.Size(), i.Links()))
			if i.IsDir() {
				visit(full)
			}
		}
	}
	visit("/")
	return strings.Join(lines, "\n")
}

func hostTree(t *rapid.T, dir string) string {
	var lines []string
	err := filepath.Walk(dir, func(p string, info os.FileInfo, err error) error {
		if err != nil || p == dir {
			return err
		}
		lines = append(lines, strings.TrimPrefix(p, dir)+" "+shape(info.Mode(), info.Size(), int(info.Sys().(*syscall.Stat_t).Nlink)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
