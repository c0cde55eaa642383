package drivertest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// raceCases run many calls concurrently. They are also for the race detector.
func raceCases() []testCase {
	return []testCase{
		{name: "one-sandbox", run: func(c *C) { everythingAtOnce(c, c.box(), c.s.few(40, 10)) }},
		{name: "until-destroyed", run: func(c *C) {
			for range c.s.few(5, 2) {
				b := c.box()
				var wg sync.WaitGroup
				wg.Go(func() { everythingAtOnce(c, b, 15) })
				c.destroy(b)
				wg.Wait()
			}
		}},
		{name: "many-sandboxes", run: func(c *C) {
			var wg sync.WaitGroup
			for range c.s.few(12, 4) {
				wg.Go(func() {
					for range 3 {
						b, err := c.d.Create(c.ctx, c.newID(), c.spec())
						if err != nil {
							c.Errorf("Create: %v", err)
							return
						}
						p, err := b.Start(c.ctx, sandbar.Cmd{Args: []string{"sh", "-c", "echo out; echo err >&2; exit 9"}}, driver.Stdio{Stdout: io.Discard, Stderr: io.Discard})
						if err != nil {
							c.Errorf("Start: %v", err)
						} else if res, err := c.waitFor(p); err != nil || res.ExitCode != 9 {
							c.Errorf("a program: %+v, %v", res, err)
						}
						c.destroy(b)
					}
				})
			}
			wg.Wait()
		}},
		{name: "signals-and-ends", run: func(c *C) {
			b := c.box()
			for range c.s.few(30, 8) {
				p, _ := c.startSh(b, "exit 5")
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						if err := p.Signal(15); err != nil {
							c.Errorf("Signal at the program's end: %v", err)
						}
					})
				}
				wg.Wait()
				res := c.wait(p)
				if !(res.Outcome == sandbar.Exited && res.ExitCode == 5) && !(res.Outcome == sandbar.Signaled && res.Signal == 15) {
					c.Errorf("a program that exits 5 or gets TERM: %+v", res)
				}
			}
		}},
	}
}

// expected are the codes with which calls may fail during other calls or Destroy.
var expected = []sandbar.Code{sandbar.Gone, sandbar.NotFound, sandbar.Exists, sandbar.Conflict, sandbar.Unavailable, sandbar.NoSpace, sandbar.Exhausted}

// everythingAtOnce makes all calls of a sandbox from many goroutines.
func everythingAtOnce(c *C, b driver.Sandbox, times int) {
	typed := func(what string, err error) {
		if err != nil && !slices.Contains(expected, sandbar.CodeOf(err)) {
			c.Errorf("%s: %v (code %q)", what, err, sandbar.CodeOf(err))
		}
	}
	ways := []func(){
		func() {
			p, err := b.Start(c.ctx, sandbar.Cmd{Args: []string{"sh", "-c", "echo hello; cat > /dev/null; exit 1"}}, driver.Stdio{Stdout: io.Discard, Stderr: io.Discard})
			typed("Start", err)
			if err == nil {
				_, err = c.waitFor(p)
				typed("Wait", err)
			}
		},
		func() {
			p, err := b.Start(c.ctx, sandbar.Cmd{Args: []string{"sleep", "60"}}, driver.Stdio{})
			typed("Start", err)
			if err == nil {
				typed("Signal", p.Signal(9))
				_, err = c.waitFor(p)
				typed("Wait", err)
			}
		},
		func() {
			p, err := b.Start(c.ctx, sandbar.Cmd{Args: []string{"sh", "-c", "sleep 60 & sleep 60"}}, driver.Stdio{})
			typed("Start", err)
			if err == nil {
				typed("KillTree", p.KillTree())
				_, err = c.waitFor(p)
				typed("Wait", err)
			}
		},
	}
	ways = append(ways, fileWays(c, b.FS(), typed)...)
	if d, ok := driver.As[driver.Dialer](b); ok {
		ways = append(ways, func() {
			conn, err := d.DialPort(c.ctx, 1)
			typed("DialPort", err)
			if err == nil {
				conn.Close()
			}
		})
	}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range times {
				ways[rand.IntN(len(ways))]()
			}
		})
	}
	wg.Wait()
}

func fileWays(c *C, f sandbar.FS, typed func(string, error)) []func() {
	path := func() string { return fmt.Sprintf("race%d/f%d", rand.IntN(3), rand.IntN(3)) }
	return []func(){
		func() {
			w, err := f.Create(c.ctx, path(), sandbar.CreateOptions{Parents: true})
			typed("Create", err)
			if err == nil {
				_, err = w.Write([]byte("data"))
				typed("Write", err)
				typed("Commit", w.Commit())
				w.Abort()
			}
		},
		func() {
			r, err := f.Open(c.ctx, path())
			typed("Open", err)
			if err == nil {
				_, err = io.Copy(io.Discard, r)
				typed("Read", err)
				r.Close()
			}
		},
		func() { _, err := f.ReadDir(c.ctx, "race0", "", 10); typed("ReadDir", err) },
		func() { _, err := f.Stat(c.ctx, path()); typed("Stat", err) },
		func() { typed("Mkdir", f.Mkdir(c.ctx, "race1", 0o755, true)) },
		func() { typed("Rename", f.Rename(c.ctx, path(), path())) },
		func() { typed("Chmod", f.Chmod(c.ctx, "race0", 0o755, true)) },
		func() { typed("Remove", f.Remove(c.ctx, "race2", true)) },
	}
}
