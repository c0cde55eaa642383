package drivertest

import (
	"context"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// lifecycleCases test Create to Destroy. The suite checks the host for traces after each case.
func lifecycleCases() []testCase {
	return []testCase{
		{name: "create-destroy-many", run: func(c *C) {
			for range c.s.few(50, 10) {
				b := c.box()
				c.exited(c.sh(b, "exit 3"), 3, "a program")
				c.destroy(b)
			}
		}},
		{name: "create-empty", run: func(c *C) {
			for range c.s.few(20, 5) {
				c.destroy(c.box())
			}
		}},
		{name: "create-cancelled", run: createCancelled},
		{name: "create-same-id", run: func(c *C) {
			spec, id := c.spec(), c.newID()
			b, err := c.d.Create(c.ctx, id, spec)
			c.ok(err, "Create")
			c.Cleanup(func() { c.destroy(b) })
			twin, err := c.d.Create(c.ctx, id, spec)
			c.code(err, "Create with an id in use", sandbar.Exists, sandbar.Conflict)
			if err == nil {
				c.destroy(twin)
			}
			c.exited(c.sh(b, "exit 4"), 4, "a program in the first, after that")
		}},
		{name: "create-concurrent", run: func(c *C) {
			var wg sync.WaitGroup
			for range c.s.few(16, 4) {
				wg.Go(func() {
					b, err := c.d.Create(c.ctx, c.newID(), c.spec())
					if err != nil {
						c.Errorf("Create: %v", err)
						return
					}
					c.destroy(b)
				})
			}
			wg.Wait()
		}},
		{name: "destroy-twice", run: func(c *C) {
			b := c.box()
			c.startSh(b, "sleep 60")
			for range 3 {
				c.destroy(b)
			}
		}},
		{name: "destroy-concurrent", run: func(c *C) {
			b := c.box()
			c.startSh(b, "sleep 60")
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() { c.destroy(b) })
			}
			wg.Wait()
		}},
		{name: "destroy-running", run: destroyRunning},
		{name: "destroy-during-start", run: destroyDuringStart},
		{name: "destroy-impatient", run: func(c *C) {
			b := c.box()
			c.startSh(b, "sleep 60")
			ctx, cancel := context.WithCancel(c.ctx)
			cancel()
			if err := b.Destroy(ctx); err != nil {
				c.code(err, "Destroy with a context that has ended", sandbar.Canceled, sandbar.Timeout)
			}
			c.destroy(b)
		}},
		{name: "gone", run: func(c *C) {
			b := c.box()
			c.destroy(b)
			_, err := b.Start(c.ctx, sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{})
			c.code(err, "Start in a destroyed sandbox", sandbar.Gone)
		}},
		{name: "gone-files", run: func(c *C) {
			b := c.box()
			w, err := b.FS().Create(c.ctx, "late", sandbar.CreateOptions{})
			c.ok(err, "FS.Create")
			c.destroy(b)
			_, err = b.FS().Stat(c.ctx, "x")
			c.code(err, "FS.Stat in a destroyed sandbox", sandbar.Gone)
			_, err = b.FS().Open(c.ctx, "x")
			c.code(err, "FS.Open in a destroyed sandbox", sandbar.Gone)
			c.code(b.FS().Mkdir(c.ctx, "x", 0o755, true), "FS.Mkdir in a destroyed sandbox", sandbar.Gone)
			c.code(w.Commit(), "Commit in a destroyed sandbox", sandbar.Gone)
			w.Abort()
		}},
		{name: "gone-ports", needs: []need{needAbility[driver.Dialer]("Dialer")}, run: func(c *C) {
			b := c.box()
			dial, _ := driver.As[driver.Dialer](b)
			c.destroy(b)
			conn, err := dial.DialPort(c.ctx, 1)
			c.code(err, "DialPort in a destroyed sandbox", sandbar.Gone)
			if err == nil {
				conn.Close()
			}
		}},
		{name: "private-directories", needs: nil, run: func(c *C) {
			// The home directories of two sandboxes are separate with every driver.
			a, b := c.box(), c.box()
			c.exited(c.sh(a, "echo a > note && cat note"), 0, "writing in the home of one")
			c.exited(c.sh(b, "test ! -e note"), 0, "looking in the home of the other")
			d := c.box()
			c.exited(c.sh(d, "test ! -e note"), 0, "looking in the home of a later one")
		}},
		{name: "close-leaves-nothing", needs: []need{needFactoryAbility[driver.Closer]("Closer")}, run: func(c *C) {
			var after []int
			for range 3 {
				d, err := c.s.h.New(c.s.host(c.dir))
				c.ok(err, "New")
				b, err := d.Create(c.ctx, c.newID(), c.spec())
				c.ok(err, "Create")
				c.destroy(b)
				closeDriver(c, d)
				after = append(after, len(c.s.look(c.dir)))
			}
			// Goroutines and descriptors may take a moment to end.
			for end := time.Now().Add(10 * time.Second); after[2] > after[0] && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				after[2] = len(c.s.look(c.dir))
			}
			if after[2] > after[0] {
				c.Errorf("each driver leaves traces: %v", after)
			}
		}},
	}
}

// createCancelled cancels a creation at many moments. Create must return a sandbox or a
// cancellation error.
func createCancelled(c *C) {
	began := time.Now()
	c.destroy(c.box())
	step := time.Since(began) / 12
	for i := range c.s.few(16, 6) {
		ctx, cancel := context.WithCancel(c.ctx)
		timer := time.AfterFunc(time.Duration(i)*step, cancel)
		b, err := c.d.Create(ctx, c.newID(), c.spec())
		if err == nil {
			c.destroy(b)
		} else {
			c.code(err, "Create, cancelled", sandbar.Canceled, sandbar.Timeout)
		}
		timer.Stop()
		cancel()
	}
	ctx, cancel := context.WithDeadline(c.ctx, time.Now().Add(-time.Second))
	defer cancel()
	b, err := c.d.Create(ctx, c.newID(), c.spec())
	c.code(err, "Create after its deadline", sandbar.Canceled, sandbar.Timeout)
	if err == nil {
		c.destroy(b)
	}
}

// destroyRunning tests that programs that run during Destroy have a result other than a successful
// exit.
func destroyRunning(c *C) {
	b := c.box()
	var ps []driver.Process
	for _, script := range []string{
		"sleep 60",
		"trap '' TERM HUP INT; echo deaf; sleep 60",
		"sleep 60 & sleep 60 & wait",
		"while :; do echo noise; done",
		"cat",
	} {
		p, _ := c.startSh(b, script)
		ps = append(ps, p)
	}
	c.destroy(b)
	for _, p := range ps {
		res, err := c.waitFor(p)
		if err != nil {
			c.Errorf("Wait after Destroy: %v", err)
		} else if res.Outcome != sandbar.Signaled && res.Outcome != sandbar.Lost && !(res.Outcome == sandbar.Exited && res.ExitCode != 0) {
			// cat without input may have ended before.
			if !(p == ps[4] && res.Outcome == sandbar.Exited) {
				c.Errorf("a program that was killed with its sandbox has outcome %v, exit code %d", res.Outcome, res.ExitCode)
			}
		}
		if err := p.Signal(15); err != nil {
			c.Errorf("Signal after Destroy: %v", err)
		}
	}
}

// destroyDuringStart tests a Start that races with Destroy. It must return a process that ends, or
// Gone.
func destroyDuringStart(c *C) {
	for range c.s.few(10, 3) {
		b := c.box()
		var wg sync.WaitGroup
		begun := make(chan struct{})
		var once sync.Once
		for range 4 {
			wg.Go(func() {
				for range 50 {
					p, err := b.Start(c.ctx, sandbar.Cmd{Args: []string{"sleep", "60"}}, driver.Stdio{})
					once.Do(func() { close(begun) })
					if err != nil {
						c.code(err, "Start while the sandbox is destroyed", sandbar.Gone)
						return
					}
					wg.Go(func() {
						if _, err := c.waitFor(p); err != nil {
							c.Errorf("Wait: %v", err)
						}
					})
				}
			})
		}
		<-begun
		c.destroy(b)
		wg.Wait()
	}
}
