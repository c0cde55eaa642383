package drivertest

import (
	"io"
	"strconv"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// watchCases test sandbar.FileWatcher.
func watchCases() []testCase {
	return []testCase{
		fileAbility("events", "FileWatcher", watchEvents),
		fileAbility("tree", "FileWatcher", watchTree),
		fileAbility("ends", "FileWatcher", watchEnds),
		fileAbility("refused", "FileWatcher", watchRefused),
		fileAbility("flood", "FileWatcher", watchFlood),
	}
}

// next returns the next event as "op path".
func (c *C) next(w sandbar.FileWatch, waiting any) string {
	e, err := w.Next(c.ctx)
	c.ok(err, "waiting for %v", waiting)
	return strings.TrimSuffix(string(e.Op)+" "+e.Path, " ")
}

// sees reads events until each of want, "op path", has been seen.
func (c *C) sees(w sandbar.FileWatch, want ...string) {
	missing := map[string]bool{}
	for _, s := range want {
		missing[s] = true
	}
	for len(missing) > 0 {
		delete(missing, c.next(w, missing))
	}
}

// watch opens a watch. One ends a moment after Close, and the kernel bounds those of all sandboxes
// of a user together, of which other tests may have some.
func (c *C) watch(f sandbar.FileWatcher, dir string, recursive bool) (w sandbar.FileWatch) {
	c.until(func() bool {
		var err error
		if w, err = f.Watch(c.ctx, dir, recursive); sandbar.CodeOf(err) == sandbar.Exhausted {
			return false
		}
		c.ok(err, "Watch")
		return true
	}, "a watch of %q is possible", dir)
	return w
}

func watchEvents(c *C, b driver.Sandbox, files sandbar.FS, f sandbar.FileWatcher) {
	c.sh(b, "mkdir -p w/sub")
	w := c.watch(f, "w", false)
	defer w.Close()
	c.sh(b, "echo 1 >w/a")
	c.sees(w, "create a", "write a")
	c.sh(b, "chmod 600 w/a; mv w/a w/b; echo below >w/sub/file; rm w/b; mkdir w/dir")
	c.sees(w, "chmod a", "rename a", "create b", "remove b", "create dir")
	c.ok(files.Mkdir(c.ctx, "w/by-host", 0, false), "Mkdir")
	e, err := w.Next(c.ctx)
	c.ok(err, "Next")
	if e != (sandbar.FileEvent{Op: sandbar.FileCreated, Path: "by-host"}) {
		c.Errorf("the next event is %+v; one of a directory below was reported", e)
	}
}

func watchTree(c *C, b driver.Sandbox, _ sandbar.FS, f sandbar.FileWatcher) {
	c.sh(b, "mkdir -p w/a/b out/c; ln -s ../out w/link")
	w := c.watch(f, "w", true)
	defer w.Close()
	c.sh(b, "echo 1 >w/a/b/file")
	c.sees(w, "create a/b/file", "write a/b/file")
	// Files that are made together with their directories are not missed.
	c.sh(b, "mkdir -p w/x/y/z; echo 1 >w/x/y/z/file")
	c.sees(w, "create x", "create x/y", "create x/y/z", "create x/y/z/file")
	c.sh(b, "echo 2 >>w/x/y/z/file; rm w/x/y/z/file")
	c.sees(w, "write x/y/z/file", "remove x/y/z/file")
	// A directory that is moved is watched under its new name, or not at all.
	c.sh(b, "mv w/x w/n; echo 1 >w/n/y/new; mv w/a out/a; echo 1 >out/a/b/other; echo 1 >out/c/other; mv out/c w/c; echo 1 >w/c/last")
	c.sees(w, "rename x", "create n", "create n/y/new", "rename a", "create c", "create c/last")
	c.sh(b, "echo 1 >w/end")
	for {
		e, err := w.Next(c.ctx)
		c.ok(err, "Next")
		if e.Path == "end" {
			break
		}
		if strings.HasPrefix(e.Path, "a") || strings.HasPrefix(e.Path, "x") || strings.HasPrefix(e.Path, "link/") {
			c.Errorf("event of a directory outside: %+v", e)
		}
	}
}

func watchEnds(c *C, b driver.Sandbox, _ sandbar.FS, f sandbar.FileWatcher) {
	c.sh(b, "mkdir removed renamed kept")
	for dir, op := range map[string]sandbar.FileOp{"removed": sandbar.FileRemoved, "renamed": sandbar.FileRenamed} {
		w := c.watch(f, dir, true)
		c.sh(b, map[string]string{"removed": "rmdir removed", "renamed": "mv renamed other"}[dir])
		c.sees(w, string(op))
		if e, err := w.Next(c.ctx); err != io.EOF {
			c.Errorf("%s: after the directory's end: %+v, %v", dir, e, err)
		}
		c.ok(w.Close(), "Close")
	}
	for range 3 * 64 { // far more than there may be at once
		w := c.watch(f, "kept", true)
		c.ok(w.Close(), "Close")
		c.ok(w.Close(), "Close, again")
	}
	w := c.watch(f, "kept", false)
	c.destroy(b)
	_, err := w.Next(c.ctx)
	c.code(err, "Next after Destroy", sandbar.Gone)
	c.ok(w.Close(), "Close")
	_, err = f.Watch(c.ctx, "kept", false)
	c.code(err, "Watch after Destroy", sandbar.Gone)
}

func watchRefused(c *C, b driver.Sandbox, _ sandbar.FS, f sandbar.FileWatcher) {
	c.sh(b, "echo 1 >file; mkdir dir; ln -s /proc/self/fd/ link; ln -s dir good")
	for path, code := range map[string]sandbar.Code{
		"": sandbar.Invalid, "a\x00b": sandbar.Invalid, strings.Repeat("x", 5000): sandbar.Invalid,
		"none": sandbar.NotFound, "file": sandbar.Conflict, "/proc": sandbar.Denied, "/proc/self/root": sandbar.Conflict, "link": sandbar.Denied,
	} {
		w, err := f.Watch(c.ctx, path, true)
		if err == nil {
			w.Close()
		}
		c.code(err, "Watch of "+sandbar.Quote(path, 40), code, sandbar.Denied)
	}
	most := func() (n int) {
		for {
			w, err := f.Watch(c.ctx, "good", false)
			if err != nil {
				c.code(err, "Watch number "+strconv.Itoa(n+1), sandbar.Exhausted)
				return n
			}
			defer w.Close()
			if n++; n > 64 {
				c.Fatalf("more than 64 watches are possible")
			}
		}
	}
	c.until(func() bool { return most() >= 16 }, "16 watches are possible")
}

// watchFlood makes more changes than anybody reads.
func watchFlood(c *C, b driver.Sandbox, files sandbar.FS, f sandbar.FileWatcher) {
	c.sh(b, "mkdir w")
	w := c.watch(f, "w", true)
	defer w.Close()
	// The kernel keeps 16384 events by default, and the connection 400 KiB of them.
	name := strings.Repeat("long-", 40)
	c.sh(b, "cd w; i=0; while [ $i -lt 11000 ]; do i=$((i+1)); : >"+name+"1; : >"+name+"2; done; mkdir last")
	_, err := files.Stat(c.ctx, "w")
	c.ok(err, "Stat beside a watch that nobody reads")
	for e := ""; e != "lost" && e != "create last"; { // gVisor's queue of events has no limit
		e = c.next(w, "lost or the last event")
	}
	c.sh(b, "mkdir w/after; echo 1 >w/after/file")
	c.sees(w, "create after/file")
}
