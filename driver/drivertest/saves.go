package drivertest

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// saveCases test saved states of sandboxes: driver.Saver and driver.Restorer.
func saveCases() []testCase {
	saver := []need{needAbility[driver.Saver]("Saver")}
	return []testCase{
		{name: "both", run: func(c *C) {
			_, saves := driver.As[driver.Saver](c.box())
			if _, restores := driver.As[driver.Restorer](c.d); saves != restores {
				c.Errorf("sandboxes can be saved: %v; the driver can restore them: %v", saves, restores)
			}
			if !saves && c.s.caps.SavesPrograms {
				c.Errorf("Caps.SavesPrograms without driver.Saver")
			}
		}},
		{name: "copies", needs: saver, run: func(c *C) {
			source := c.box()
			startCounter(c, source)
			dir := c.stateDir()
			c.save(source, dir, driver.SaveOptions{})
			copies := []driver.Sandbox{c.restored(c.newID(), dir), c.restored(c.newID(), dir)}
			c.ok(os.RemoveAll(dir), "removing the state of restored sandboxes")
			c.counting(source)
			for _, b := range copies {
				c.wentOn(b)
			}
			c.exited(c.sh(copies[0], "echo changed > /tmp/own"), 0, "writing to a copy")
			for _, b := range []driver.Sandbox{copies[1], source} {
				_, err := b.FS().Stat(c.ctx, "/tmp/own")
				c.code(err, "a file of a copy, elsewhere", sandbar.NotFound)
			}
			numbers := map[string]bool{}
			for _, b := range append(copies, source) {
				numbers[c.sh(b, "head -c 16 /dev/urandom | od -An -tx1").out] = true
			}
			if len(numbers) != 3 {
				c.Errorf("copies draw the same random numbers")
			}
		}},
		{name: "kept", needs: saver, run: func(c *C) {
			id, spec := c.newID(), c.spec()
			b, err := c.d.Create(c.ctx, id, spec)
			c.ok(err, "Create")
			c.Cleanup(func() { c.destroy(b) })
			p := startCounter(c, b)
			dir := c.stateDir()
			var size int64
			c.save(b, dir, driver.SaveOptions{Commit: func(n int64) error { size = n; return nil }})
			if size <= 0 {
				c.Errorf("the state has %d bytes", size)
			}
			c.destroy(b)
			if r := c.wait(p); r.Outcome != sandbar.Lost {
				c.Errorf("a program of a saved sandbox that was destroyed: %v", r.Outcome)
			}
			c.wentOn(c.restored(id, dir))
		}},
		{name: "files", needs: saver, run: func(c *C) {
			source := c.box()
			const look = "cd kept && ls -A && cat a d/b c && readlink l && stat -c '%a %Y' a d && cat /tmp/elsewhere"
			c.exited(c.sh(source, "mkdir -p kept/d && cd kept && echo 1 > a && echo 2 > d/b && ln a c && ln -s nowhere l && echo 3 > /tmp/elsewhere && "+
				"echo x > gone && rm gone && mkfifo p && chmod 600 a && chmod 700 d && touch -d 2001-02-03T04:05:06Z a d"), 0, "writing files")
			want := c.sh(source, look)
			c.exited(want, 0, "reading files")
			dir := c.stateDir()
			c.save(source, dir, driver.SaveOptions{})
			got := c.sh(c.restored(c.newID(), dir), look)
			c.exited(got, 0, "reading files of a copy")
			if got.out != want.out {
				c.Errorf("a copy has %q, and its source %q", got.out, want.out)
			}
		}},
		{name: "goes-on", needs: saver, run: func(c *C) {
			b := c.box()
			p := startCounter(c, b)
			s, _ := driver.As[driver.Saver](b)
			refused := errors.New("refused")
			if _, err := s.Save(c.ctx, c.stateDir(), driver.SaveOptions{Commit: func(int64) error { return refused }}); !errors.Is(err, refused) {
				c.Errorf("Save returns %v and not the error of Commit", err)
			}
			c.counting(b)
			_, err := s.Save(c.ctx, c.stateDir(), driver.SaveOptions{MaxBytes: 1})
			c.code(err, "Save within one byte", sandbar.Exhausted)
			c.counting(b)
			c.ok(p.KillTree(), "KillTree")
			c.wait(p)
		}},
		{name: "ended", needs: saver, run: func(c *C) {
			b := c.box()
			c.destroy(b)
			s, _ := driver.As[driver.Saver](b)
			_, err := s.Save(c.ctx, c.stateDir(), driver.SaveOptions{})
			c.code(err, "Save after Destroy", sandbar.Gone)
		}},
		{name: "nothing", needs: saver, run: func(c *C) {
			r, _ := driver.As[driver.Restorer](c.d)
			b, err := r.Restore(c.ctx, c.newID(), c.spec(), c.stateDir())
			if err == nil {
				c.destroy(b)
			}
			c.code(err, "Restore of an empty directory", sandbar.Gone)
		}},
	}
}

// stateDir returns an empty directory, which is removed after the case.
func (c *C) stateDir() string {
	dir, err := os.MkdirTemp("", "sbdt-state-")
	c.ok(err, "making a directory")
	c.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// save saves a sandbox.
func (c *C) save(b driver.Sandbox, dir string, o driver.SaveOptions) {
	s, _ := driver.As[driver.Saver](b)
	_, err := s.Save(c.ctx, dir, o)
	c.ok(err, "Save")
}

// restored restores a sandbox, which is destroyed after the case.
func (c *C) restored(id sandbar.ID, dir string) driver.Sandbox {
	r, _ := driver.As[driver.Restorer](c.d)
	b, err := r.Restore(c.ctx, id, c.spec(), dir)
	c.ok(err, "Restore")
	c.Cleanup(func() { c.destroy(b) })
	return b
}

// startCounter starts a shell that counts in its memory, and writes to a file and to its output.
func startCounter(c *C, b driver.Sandbox) driver.Process {
	p, _ := c.startSh(b, "n=0; while :; do n=$((n+1)); echo $n > /tmp/new; mv /tmp/new /tmp/count; echo $n; sleep 0.02; done")
	c.until(func() bool { return savedCount(c, b) != "" }, "the program counts")
	return p
}

// savedCount reads the counter; "" if there is none.
func savedCount(c *C, b driver.Sandbox) string {
	ctx, cancel := context.WithTimeout(c.ctx, time.Minute)
	defer cancel()
	f, err := b.FS().Open(ctx, "/tmp/count")
	if err != nil {
		return ""
	}
	defer f.Close()
	var text [32]byte
	n, _ := f.Read(text[:])
	return strings.TrimSpace(string(text[:n]))
}

// wentOn checks that the program of a saved sandbox goes on in a restored one, or has ended if the
// driver saves the files alone.
func (c *C) wentOn(b driver.Sandbox) {
	if c.s.caps.SavesPrograms {
		c.counting(b)
		return
	}
	first := savedCount(c, b)
	if time.Sleep(200 * time.Millisecond); first == "" || savedCount(c, b) != first {
		c.Errorf("without Caps.SavesPrograms, a program counts on from %q in a restored sandbox", first)
	}
}

// counting waits until the counter changes.
func (c *C) counting(b driver.Sandbox) {
	first := savedCount(c, b)
	c.until(func() bool { now := savedCount(c, b); return now != first && now != "" }, "the program of a saved sandbox goes on from %s", first)
}
