package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"syscall"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// fileCases test the file API as programs see the files. Attacks on it are in group escape.
func fileCases() []testCase {
	var cases []testCase
	for name, run := range map[string]func(*C, driver.Sandbox, sandbar.FS){
		"seen-by-programs":   seenByPrograms,
		"read-and-seek":      readAndSeek,
		"atomic":             atomicCreate,
		"abort":              abortCreate,
		"append":             appendFile,
		"parents":            parents,
		"replace":            replaceFile,
		"modes":              modes,
		"stat":               statFiles,
		"list":               listFiles,
		"mkdir":              makeDirectories,
		"remove":             removeFiles,
		"rename":             renameFiles,
		"chmod":              changeModes,
		"errors":             fileErrors,
		"bad-paths":          badPaths,
		"odd-names":          oddNames,
		"shrinking-file":     shrinkingFile,
		"big-file":           bigFile,
		"concurrent":         concurrentFiles,
		"same-as-program":    sameAsProgram,
		"parents-refused":    parentsRefused,
		"cancelled":          cancelledFiles,
		"running-executable": runWritten,
	} {
		cases = append(cases, testCase{name: name, run: func(c *C) {
			b := c.box()
			run(c, b, b.FS())
		}})
	}
	return sorted(append(cases, fileAbilityCases()...))
}

// put writes a file through the API.
func put(c *C, f sandbar.FS, path, text string, opt sandbar.CreateOptions) {
	w, err := f.Create(c.ctx, path, opt)
	c.ok(err, "Create %s", sandbar.Quote(path, 60))
	if _, err := io.WriteString(w, text); err != nil {
		w.Abort()
		c.Fatalf("Write to %s: %v", path, err)
	}
	c.ok(w.Commit(), "Commit %s", sandbar.Quote(path, 60))
}

// get reads a file through the API.
func get(c *C, f sandbar.FS, path string) string {
	r, err := f.Open(c.ctx, path)
	c.ok(err, "Open %s", sandbar.Quote(path, 60))
	defer r.Close()
	b, err := io.ReadAll(r)
	c.ok(err, "reading %s", sandbar.Quote(path, 60))
	if r.Info().Size != int64(len(b)) {
		c.Errorf("%s has %d bytes, its Info says %d", path, len(b), r.Info().Size)
	}
	return string(b)
}

func seenByPrograms(c *C, b driver.Sandbox, f sandbar.FS) {
	put(c, f, "from-api", "one", sandbar.CreateOptions{})
	put(c, f, sandbar.DefaultDir+"/absolute", "two", sandbar.CreateOptions{})
	r := c.sh(b, `cat from-api "$HOME/absolute"; printf three > from-program`)
	c.exited(r, 0, "a program that reads what the API wrote")
	if r.out != "onetwo" {
		c.Errorf("a program reads %q", r.out)
	}
	if got := get(c, f, "from-program"); got != "three" {
		c.Errorf("the API reads %q", got)
	}
	put(c, f, "from-program", "four", sandbar.CreateOptions{})
	c.exited(c.sh(b, `test "$(cat from-program)" = four && echo more >> from-program && rm from-api`), 0, "a program that changes and removes what the API wrote")
}

func readAndSeek(c *C, b driver.Sandbox, f sandbar.FS) {
	put(c, f, "f", "0123456789", sandbar.CreateOptions{})
	r, err := f.Open(c.ctx, "f")
	c.ok(err, "Open")
	defer r.Close()
	for _, step := range []struct {
		offset int64
		whence int
		want   string
	}{{3, io.SeekStart, "345"}, {1, io.SeekCurrent, "789"}, {-2, io.SeekEnd, "89"}, {0, io.SeekStart, "012"}} {
		if _, err := r.Seek(step.offset, step.whence); err != nil {
			c.Fatalf("Seek: %v", err)
		}
		buf := make([]byte, 3)
		n, err := io.ReadFull(r, buf)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) || string(buf[:n]) != step.want {
			c.Errorf("after Seek(%d, %d): %q, %v; want %q", step.offset, step.whence, buf[:n], err, step.want)
		}
	}
	if info := r.Info(); info.Name != "f" || info.Size != 10 || !info.Mode.IsRegular() {
		c.Errorf("Info: %+v", info)
	}
}

func atomicCreate(c *C, b driver.Sandbox, f sandbar.FS) {
	c.ok(f.Mkdir(c.ctx, "d", 0o755, false), "Mkdir")
	w, err := f.Create(c.ctx, "d/f", sandbar.CreateOptions{})
	c.ok(err, "Create")
	_, err = w.Write(bytes.Repeat([]byte("x"), 100000))
	c.ok(err, "Write")
	_, err = f.Stat(c.ctx, "d/f")
	c.code(err, "Stat before Commit", sandbar.NotFound)
	if r := c.sh(b, "cat d/f"); r.ExitCode == 0 {
		c.Errorf("before Commit a program sees the file")
	}
	c.ok(w.Commit(), "Commit")
	w.Abort() // no effect after Commit
	if r := c.sh(b, "wc -c < d/f; ls -A d | wc -l"); strings.Join(strings.Fields(r.out), " ") != "100000 1" {
		c.Errorf("after Commit: %v", r)
	}
}

func abortCreate(c *C, b driver.Sandbox, f sandbar.FS) {
	put(c, f, "d/kept", "old", sandbar.CreateOptions{Parents: true})
	for _, name := range []string{"d/kept", "d/new"} {
		w, err := f.Create(c.ctx, name, sandbar.CreateOptions{})
		c.ok(err, "Create")
		w.Write([]byte("unwanted"))
		w.Abort()
		w.Abort()
		if w.Commit() == nil {
			c.Errorf("Commit after Abort succeeds")
		}
	}
	if r := c.sh(b, "ls -A d; cat d/kept"); r.out != "kept\nold" {
		c.Errorf("after Abort: %v", r)
	}
}

func appendFile(c *C, b driver.Sandbox, f sandbar.FS) {
	put(c, f, "log", "a", sandbar.CreateOptions{Append: true})
	put(c, f, "log", "b", sandbar.CreateOptions{Append: true})
	w, err := f.Create(c.ctx, "log", sandbar.CreateOptions{Append: true})
	c.ok(err, "Create")
	_, err = w.Write([]byte("c"))
	c.ok(err, "Write")
	if got := get(c, f, "log"); got != "abc" {
		c.Errorf("an append is not seen at once: %q", got)
	}
	c.ok(w.Commit(), "Commit")
	if got := get(c, f, "log"); got != "abc" {
		c.Errorf("after appends: %q", got)
	}
}

func parents(c *C, b driver.Sandbox, f sandbar.FS) {
	_, err := f.Create(c.ctx, "no/such/f", sandbar.CreateOptions{})
	c.code(err, "Create below a directory that does not exist", sandbar.NotFound)
	put(c, f, "no/such/f", "x", sandbar.CreateOptions{Parents: true})
	put(c, f, "no/such/g", "y", sandbar.CreateOptions{Parents: true})
	_, err = f.Create(c.ctx, "no/such/f/below", sandbar.CreateOptions{Parents: true})
	c.code(err, "Create below a file", sandbar.Conflict, sandbar.NotFound)
	if r := c.sh(b, "cat no/such/f no/such/g && echo z > no/such/h"); r.out != "xy" || r.ExitCode != 0 {
		c.Errorf("with parents: %v", r)
	}
}

func replaceFile(c *C, b driver.Sandbox, f sandbar.FS) {
	put(c, f, "f", strings.Repeat("long ", 1000), sandbar.CreateOptions{})
	c.exited(c.sh(b, "exec 3< f; ln -s f link; mkdir d"), 0, "preparing")
	put(c, f, "f", "short", sandbar.CreateOptions{})
	if got := get(c, f, "f"); got != "short" {
		c.Errorf("a shorter file leaves a tail: %q", got)
	}
	put(c, f, "link", "instead", sandbar.CreateOptions{})
	if got := get(c, f, "f"); got != "short" {
		c.Errorf("a write to a link changed its target: %q", got)
	}
	w, err := f.Create(c.ctx, "d", sandbar.CreateOptions{})
	if err == nil {
		err = w.Commit()
		w.Abort()
	}
	c.code(err, "Create over a directory", sandbar.Conflict)
}

func modes(c *C, b driver.Sandbox, f sandbar.FS) {
	put(c, f, "default", "", sandbar.CreateOptions{})
	put(c, f, "script", "#!/bin/sh\nexit 44\n", sandbar.CreateOptions{Mode: 0o755})
	put(c, f, "secret", "", sandbar.CreateOptions{Mode: 0o600})
	c.ok(f.Mkdir(c.ctx, "dir", 0o700, false), "Mkdir")
	for name, want := range map[string]fs.FileMode{"default": 0o644, "script": 0o755, "secret": 0o600, "dir": fs.ModeDir | 0o700} {
		info, err := f.Stat(c.ctx, name)
		if err != nil || info.Mode != want {
			c.Errorf("%s has mode %v (%v); want %v", name, info.Mode, err, want)
		}
	}
	c.exited(c.sh(b, "./script"), 44, "a script written by the API")
}

func statFiles(c *C, b driver.Sandbox, f sandbar.FS) {
	c.exited(c.sh(b, `printf 12345 > f; mkdir d; ln -s nowhere l; mkfifo p; TZ=UTC0 touch -d '2020-01-02 03:04:05' f`), 0, "preparing")
	for name, want := range map[string]fs.FileMode{"f": 0, "d": fs.ModeDir, "l": fs.ModeSymlink, "p": fs.ModeNamedPipe, "/dev/null": fs.ModeDevice | fs.ModeCharDevice} {
		info, err := f.Stat(c.ctx, name)
		if err != nil || info.Mode.Type() != want {
			c.Errorf("%s is of type %v (%v); want %v", name, info.Mode.Type(), err, want)
			continue
		}
		if base := name[strings.LastIndexByte(name, '/')+1:]; info.Name != base {
			c.Errorf("%s is called %q", name, info.Name)
		}
		switch name {
		case "f":
			if info.Size != 5 || info.ModTime.UTC().Format("2006-01-02 15:04:05") != "2020-01-02 03:04:05" {
				c.Errorf("f: %+v", info)
			}
		case "l":
			if info.Target != "nowhere" {
				c.Errorf("the link leads to %q", info.Target)
			}
		}
	}
	r := c.sh(b, "id -u; id -g")
	info, err := f.Stat(c.ctx, "f")
	c.ok(err, "Stat")
	if got := fmt.Sprintf("%d\n%d\n", info.UID, info.GID); r.ExitCode == 0 && got != r.out {
		c.Errorf("a program's file belongs to %q, the program is %q", got, r.out)
	}
}

func listFiles(c *C, b driver.Sandbox, f sandbar.FS) {
	const n = 1000
	c.exited(c.sh(b, fmt.Sprintf(`mkdir d e; cd d; for i in $(seq 1 %d); do echo $i > f$i; done; mkdir .hidden; ln -s f1 z`, n)), 0, "preparing")
	var names []string
	for after := ""; ; {
		page, err := f.ReadDir(c.ctx, "d", after, 7)
		c.ok(err, "ReadDir")
		if len(page) > 7 {
			c.Fatalf("a page of 7 has %d entries", len(page))
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			if e.Name <= after {
				c.Fatalf("%q comes after %q", e.Name, after)
			}
			after = e.Name
			names = append(names, e.Name)
			if e.Name == "z" && (e.Target != "f1" || e.Mode.Type() != fs.ModeSymlink) || e.Name == ".hidden" && !e.Mode.IsDir() || e.Name == "f10" && e.Size != 3 {
				c.Errorf("entry %+v", e)
			}
		}
	}
	if len(names) != n+2 {
		c.Errorf("%d entries were listed; there are %d", len(names), n+2)
	}
	page, err := f.ReadDir(c.ctx, "e", "", 10)
	if err != nil || len(page) != 0 {
		c.Errorf("an empty directory: %v, %v", page, err)
	}
	page, err = f.ReadDir(c.ctx, "d", "zzz", 10)
	if err != nil || len(page) != 0 {
		c.Errorf("after the last name: %v, %v", page, err)
	}
	_, err = f.ReadDir(c.ctx, "d/f1", "", 10)
	c.code(err, "ReadDir of a file", sandbar.Conflict)
	_, err = f.ReadDir(c.ctx, "nowhere", "", 10)
	c.code(err, "ReadDir of a missing directory", sandbar.NotFound)
	if _, err := f.ReadDir(c.ctx, ".", "", 10); err != nil {
		c.Errorf("ReadDir of \".\": %v", err)
	}
	if page, err := f.ReadDir(c.ctx, sandbar.DefaultDir, "", 10); err != nil || len(page) != 2 {
		c.Errorf("ReadDir of the home: %v, %v", page, err)
	}
}

func makeDirectories(c *C, b driver.Sandbox, f sandbar.FS) {
	c.ok(f.Mkdir(c.ctx, "a", 0o755, false), "Mkdir")
	c.code(f.Mkdir(c.ctx, "a", 0o755, false), "Mkdir where a directory is", sandbar.Exists)
	c.ok(f.Mkdir(c.ctx, "a", 0o755, true), "Mkdir with parents where a directory is")
	c.code(f.Mkdir(c.ctx, "x/y", 0o755, false), "Mkdir below a missing directory", sandbar.NotFound)
	c.ok(f.Mkdir(c.ctx, "x/y/z", 0o755, true), "Mkdir with parents")
	c.ok(f.Mkdir(c.ctx, "x/y/z", 0o755, true), "Mkdir with parents, again")
	put(c, f, "file", "", sandbar.CreateOptions{})
	c.code(f.Mkdir(c.ctx, "file", 0o755, false), "Mkdir where a file is", sandbar.Exists, sandbar.Conflict)
	c.code(f.Mkdir(c.ctx, "file", 0o755, true), "Mkdir with parents where a file is", sandbar.Exists, sandbar.Conflict)
	c.code(f.Mkdir(c.ctx, "file/below", 0o755, true), "Mkdir below a file", sandbar.Conflict, sandbar.NotFound)
	c.exited(c.sh(b, "cd x/y/z && echo x > f"), 0, "a program in a new directory")
}

func removeFiles(c *C, b driver.Sandbox, f sandbar.FS) {
	c.exited(c.sh(b, `mkdir -p full/a/b empty; echo x > full/a/b/f; echo x > file; ln -s full link; ln -s nowhere dangling; mkfifo p; mkdir shut; echo x > shut/f; chmod 500 shut`), 0, "preparing")
	c.code(f.Remove(c.ctx, "nothing", false), "Remove of a missing file", sandbar.NotFound)
	c.code(f.Remove(c.ctx, "nothing", true), "recursive Remove of a missing file", sandbar.NotFound)
	c.code(f.Remove(c.ctx, "full", false), "Remove of a directory that is not empty", sandbar.Conflict)
	for _, name := range []string{"link", "dangling", "p", "file", "empty"} {
		c.ok(f.Remove(c.ctx, name, false), "Remove %s", name)
	}
	if r := c.sh(b, "cat full/a/b/f"); r.out != "x\n" {
		c.Errorf("removing a link removed its target")
	}
	c.ok(f.Remove(c.ctx, "full", true), "recursive Remove")
	put(c, f, "plain", "", sandbar.CreateOptions{})
	c.ok(f.Remove(c.ctx, "plain", true), "recursive Remove of a file")
	c.exited(c.sh(b, "chmod 700 shut; rm -r shut; test -z \"$(ls -A)\""), 0, "looking at what is left")
	if f.Remove(c.ctx, sandbar.DefaultDir, true) == nil {
		c.Errorf("the home itself could be removed")
	}
}

func renameFiles(c *C, b driver.Sandbox, f sandbar.FS) {
	c.exited(c.sh(b, `echo a > a; echo b > b; mkdir d full; echo x > full/f; ln -s a l`), 0, "preparing")
	c.ok(f.Rename(c.ctx, "a", "c"), "Rename")
	c.ok(f.Rename(c.ctx, "b", "c"), "Rename over a file")
	c.ok(f.Rename(c.ctx, "c", "d/c"), "Rename into a directory")
	c.ok(f.Rename(c.ctx, "d", "e"), "Rename of a directory")
	c.ok(f.Rename(c.ctx, "l", "m"), "Rename of a link")
	c.code(f.Rename(c.ctx, "nothing", "x"), "Rename of a missing file", sandbar.NotFound)
	c.code(f.Rename(c.ctx, "e/c", "no/such/x"), "Rename to a directory that does not exist", sandbar.NotFound)
	c.code(f.Rename(c.ctx, "e", "full"), "Rename over a directory that is not empty", sandbar.Conflict, sandbar.Exists)
	c.code(f.Rename(c.ctx, "e/c", "full"), "Rename of a file over a directory", sandbar.Conflict, sandbar.Exists)
	c.code(f.Rename(c.ctx, "full", "full/below"), "Rename of a directory into itself", sandbar.Invalid, sandbar.Conflict)
	if r := c.sh(b, "cat e/c; test ! -e a && test ! -e b && test ! -e c && test -L m && cat full/f"); r.out != "b\nx\n" {
		c.Errorf("after renaming: %v", r)
	}
}

func changeModes(c *C, b driver.Sandbox, f sandbar.FS) {
	c.exited(c.sh(b, `mkdir -p t/u; echo x > t/u/f; echo x > outside; chmod 640 outside; ln -s "$PWD/outside" t/l; ln -s /etc t/m`), 0, "preparing")
	c.ok(f.Chmod(c.ctx, "t/u/f", 0o600, false), "Chmod")
	c.ok(f.Chmod(c.ctx, "t", 0o750, true), "recursive Chmod")
	for name, want := range map[string]fs.FileMode{"t": fs.ModeDir | 0o750, "t/u": fs.ModeDir | 0o750, "t/u/f": 0o750, "outside": 0o640} {
		if info, err := f.Stat(c.ctx, name); err != nil || info.Mode != want {
			c.Errorf("%s has mode %v (%v); want %v", name, info.Mode, err, want)
		}
	}
	c.ok(f.Chmod(c.ctx, "t", 0o500, true), "recursive Chmod that shuts directories")
	if info, err := f.Stat(c.ctx, "t/u/f"); err != nil || info.Mode != 0o500 {
		c.Errorf("t/u/f has mode %v (%v); want 0500", info.Mode, err)
	}
	c.ok(f.Chmod(c.ctx, "t", 0o700, true), "recursive Chmod that opens them again")
	c.code(f.Chmod(c.ctx, "nothing", 0o700, false), "Chmod of a missing file", sandbar.NotFound)
	c.code(f.Chmod(c.ctx, "nothing", 0o700, true), "recursive Chmod of a missing file", sandbar.NotFound)
	for _, bit := range []fs.FileMode{fs.ModeSetuid, fs.ModeSetgid} {
		for _, recursive := range []bool{false, true} {
			c.code(f.Chmod(c.ctx, "t", 0o755|bit, recursive), "Chmod with "+bit.String(), sandbar.Invalid)
		}
		c.code(f.Mkdir(c.ctx, "made", 0o755|bit, true), "Mkdir with "+bit.String(), sandbar.Invalid)
		_, err := f.Create(c.ctx, "made", sandbar.CreateOptions{Mode: 0o755 | bit})
		c.code(err, "Create with "+bit.String(), sandbar.Invalid)
	}
}

// fileErrors tests the code of each error, and the kernel's errno as its cause if there is one.
func fileErrors(c *C, b driver.Sandbox, f sandbar.FS) {
	c.exited(c.sh(b, `mkdir d; mkfifo p; ln -s x x; echo y > f`), 0, "preparing")
	open := func(path string) error {
		r, err := f.Open(c.ctx, path)
		if err == nil {
			r.Close()
		}
		return err
	}
	c.code(open("nothing"), "Open of a missing file", sandbar.NotFound)
	c.code(open("d"), "Open of a directory", sandbar.Conflict)
	c.code(open("p"), "Open of a FIFO", sandbar.Conflict)
	c.code(open("/dev/null"), "Open of a device", sandbar.Conflict, sandbar.Denied)
	c.code(open("f/below"), "Open below a file", sandbar.Conflict, sandbar.NotFound)
	c.code(open("x"), "Open of a link to itself", sandbar.Invalid, sandbar.Conflict, sandbar.Denied)
	_, err := f.Stat(c.ctx, "nothing")
	c.code(err, "Stat of a missing file", sandbar.NotFound)
	if !errors.Is(err, syscall.ENOENT) {
		c.Errorf("the cause of %v is not ENOENT", err)
	}
}

func badPaths(c *C, b driver.Sandbox, f sandbar.FS) {
	for what, path := range map[string]string{
		"an empty path":             "",
		"a NUL":                     "a\x00b",
		"a path of 5,000 bytes":     strings.Repeat("a/", 2500),
		"a name of 300 bytes":       strings.Repeat("n", 300),
		"a path of a million bytes": strings.Repeat("x", 1000000),
	} {
		_, err := f.Stat(c.ctx, path)
		c.code(err, "Stat of "+what, sandbar.Invalid)
		_, err = f.Open(c.ctx, path)
		c.code(err, "Open of "+what, sandbar.Invalid)
		_, err = f.ReadDir(c.ctx, path, "", 1)
		c.code(err, "ReadDir of "+what, sandbar.Invalid)
		w, err := f.Create(c.ctx, path, sandbar.CreateOptions{})
		if err == nil { // some drivers detect it only in Commit
			err = w.Commit()
			w.Abort()
		}
		c.code(err, "Create of "+what, sandbar.Invalid)
		c.code(f.Mkdir(c.ctx, path, 0o755, false), "Mkdir of "+what, sandbar.Invalid)
		c.code(f.Remove(c.ctx, path, true), "Remove of "+what, sandbar.Invalid)
		c.code(f.Rename(c.ctx, path, "x"), "Rename of "+what, sandbar.Invalid)
		c.code(f.Rename(c.ctx, ".", path), "Rename to "+what, sandbar.Invalid, sandbar.Conflict)
		c.code(f.Chmod(c.ctx, path, 0o755, false), "Chmod of "+what, sandbar.Invalid)
		if err != nil && len(err.Error()) > 1000 {
			c.Errorf("the error for %s has %d bytes", what, len(err.Error()))
		}
	}
}

func oddNames(c *C, b driver.Sandbox, f sandbar.FS) {
	names := []string{" ", "-rf", "a b", "ü€😀", "\xff\xfe\x80", "new\nline", `back\slash`, "%2e%2e%2f", "...", "*", strings.Repeat("n", 255)}
	for _, name := range names {
		put(c, f, "odd/"+name, "in "+name, sandbar.CreateOptions{Parents: true})
	}
	for _, name := range names {
		if got := get(c, f, "odd/"+name); got != "in "+name {
			c.Errorf("the file %q holds %q", name, got)
		}
	}
	page, err := f.ReadDir(c.ctx, "odd", "", 100)
	c.ok(err, "ReadDir")
	listed := map[string]bool{}
	for _, e := range page {
		listed[e.Name] = true
	}
	want := map[string]bool{}
	for _, name := range names {
		want[name] = true
	}
	if d := cmp.Diff(want, listed); d != "" {
		c.Errorf("names listed (-want +got):\n%s", d)
	}
	if r := c.sh(b, "ls -A odd | wc -l; cat 'odd/back\\slash'"); !strings.HasSuffix(r.out, `in back\slash`) {
		c.Errorf("a program sees %v", r)
	}
}

// shrinkingFile tests that the download of a file that is truncated meanwhile ends.
func shrinkingFile(c *C, b driver.Sandbox, f sandbar.FS) {
	put(c, f, "f", strings.Repeat("x", 1<<20), sandbar.CreateOptions{})
	r, err := f.Open(c.ctx, "f")
	c.ok(err, "Open")
	defer r.Close()
	buf := make([]byte, 1000)
	_, err = io.ReadFull(r, buf)
	c.ok(err, "reading the beginning")
	c.exited(c.sh(b, ": > f"), 0, "cutting the file")
	rest, err := io.ReadAll(r)
	if err != nil || strings.Trim(string(rest), "x") != "" {
		c.Errorf("the rest of a truncated file: %d bytes, %v", len(rest), err)
	}
}

func bigFile(c *C, b driver.Sandbox, f sandbar.FS) {
	size := int64(c.s.amount(48 << 20))
	w, err := f.Create(c.ctx, "big", sandbar.CreateOptions{})
	c.ok(err, "Create")
	n, err := io.Copy(w, io.LimitReader(rand.NewChaCha8([32]byte{2}), size))
	if err != nil || n != size {
		w.Abort()
		c.Fatalf("writing %d bytes: %d, %v", size, n, err)
	}
	c.ok(w.Commit(), "Commit")
	r, err := f.Open(c.ctx, "big")
	c.ok(err, "Open")
	defer r.Close()
	same, read := true, int64(0)
	want := rand.NewChaCha8([32]byte{2})
	got, ref := make([]byte, 1<<16), make([]byte, 1<<16)
	for {
		n, err := io.ReadFull(r, got)
		want.Read(ref[:n])
		same, read = same && bytes.Equal(got[:n], ref[:n]), read+int64(n)
		if err != nil {
			break
		}
	}
	if !same || read != size {
		c.Errorf("a file of %d bytes came back with %d, the same: %v", size, read, same)
	}
}

func concurrentFiles(c *C, b driver.Sandbox, f sandbar.FS) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				path, text := fmt.Sprintf("d%d/f%d", i, j%4), fmt.Sprintf("%d %d", i, j)
				w, err := f.Create(c.ctx, path, sandbar.CreateOptions{Parents: true})
				if err == nil {
					_, err = io.WriteString(w, text)
				}
				if err == nil {
					err = w.Commit()
				}
				if err != nil {
					c.Errorf("writing %s: %v", path, err)
					return
				}
				r, err := f.Open(c.ctx, path)
				if err != nil {
					c.Errorf("Open %s: %v", path, err)
					return
				}
				got, err := io.ReadAll(r)
				r.Close()
				if err != nil || string(got) != text {
					c.Errorf("%s holds %q, %v; want %q", path, got, err, text)
				}
			}
		})
	}
	wg.Wait()
}

// sameAsProgram tests that the file API and a program see the same file system.
func sameAsProgram(c *C, b driver.Sandbox, f sandbar.FS) {
	r := c.sh(b, "cat /etc/passwd")
	got, err := f.Open(c.ctx, "/etc/passwd")
	if r.ExitCode != 0 {
		if err == nil {
			got.Close()
			c.Errorf("the API reads /etc/passwd, a program cannot: %v", r)
		}
		return
	}
	c.ok(err, "Open /etc/passwd, which a program can read")
	defer got.Close()
	text, err := io.ReadAll(got)
	if err != nil || string(text) != r.out {
		c.Errorf("/etc/passwd has %d bytes for the API (%v) and %d for a program", len(text), err, len(r.out))
	}
	// The API has no more permissions than a program.
	before := c.sh(b, "touch /usr/planted && rm /usr/planted").ExitCode == 0
	w, err := f.Create(c.ctx, "/usr/planted", sandbar.CreateOptions{})
	if err == nil {
		w.Abort()
	}
	if (err == nil) != before {
		c.Errorf("writing to /usr: a program may: %v; the API: %v", before, err)
	}
}

// parentsRefused tests that the file API, if it may not make the parent directories of a file,
// returns that error and not NotFound.
func parentsRefused(c *C, b driver.Sandbox, f sandbar.FS) {
	c.exited(c.sh(b, "mkdir shut && chmod 555 shut"), 0, "a directory that cannot be changed")
	refused := 0
	for _, dir := range []string{"shut", "/usr", "/"} {
		if !c.d.Caps().PrivateFiles && path.IsAbs(dir) {
			continue // the host's directory
		}
		if c.sh(b, "mkdir '"+dir+"/made' && rmdir '"+dir+"/made'").ExitCode == 0 {
			continue // a program that is root has the permission
		}
		refused++
		w, err := f.Create(c.ctx, path.Join(dir, "made/below/file"), sandbar.CreateOptions{Parents: true})
		if err == nil {
			w.Abort()
		}
		c.code(err, "Create below "+dir+" with parents", sandbar.Denied)
		c.code(f.Mkdir(c.ctx, path.Join(dir, "made/below/dir"), 0o755, true), "Mkdir below "+dir+" with parents", sandbar.Denied)
	}
	switch c.d.Caps().Boundary {
	case driver.BoundaryNamespaces, driver.BoundaryContainer, driver.BoundaryGVisor: // with other boundaries, modes may have no meaning
		if refused == 0 {
			c.Errorf("a program can make directories everywhere")
		}
	}
	c.exited(c.sh(b, "chmod 755 shut"), 0, "making it changeable again")
}

func cancelledFiles(c *C, b driver.Sandbox, f sandbar.FS) {
	put(c, f, "f", "x", sandbar.CreateOptions{})
	ctx, cancel := context.WithCancel(c.ctx)
	cancel()
	_, err := f.Stat(ctx, "f")
	c.code(err, "Stat with a context that has ended", sandbar.Canceled, sandbar.Timeout)
	c.code(f.Remove(ctx, "f", true), "Remove with a context that has ended", sandbar.Canceled, sandbar.Timeout)
	if got := get(c, f, "f"); got != "x" {
		c.Errorf("the file now holds %q", got)
	}
}

// runWritten tests that a program that was just written starts while other programs are being
// started (ETXTBSY, execve(2)).
func runWritten(c *C, b driver.Sandbox, f sandbar.FS) {
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range c.s.few(15, 4) {
				name := fmt.Sprintf("program%d-%d", i, j)
				w, err := f.Create(c.ctx, name, sandbar.CreateOptions{Mode: 0o755})
				if err == nil {
					_, err = fmt.Fprintf(w, "#!/bin/sh\nexit %d\n", 50+i)
				}
				if err == nil {
					err = w.Commit()
				}
				if err != nil {
					c.Errorf("writing %s: %v", name, err)
					return
				}
				p, err := b.Start(c.ctx, sandbar.Cmd{Args: []string{"./" + name}}, driver.Stdio{})
				if err != nil {
					c.Errorf("Start %s: %v", name, err)
					return
				}
				if res, err := c.waitFor(p); err != nil || res.ExitCode != 50+i {
					c.Errorf("%s: %+v, %v", name, res, err)
				}
			}
		})
	}
	wg.Wait()
}
