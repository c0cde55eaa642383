package drivertest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// daemonVariable makes Run act as a daemon with this runtime directory instead of running the
// suite. tokenVariable passes the suite's token.
const (
	daemonVariable = "SANDBAR_DRIVERTEST_BE_DAEMON"
	tokenVariable  = "SANDBAR_DRIVERTEST_TOKEN"
)

// daemonCases test what a killed daemon leaves behind, and its removal.
func daemonCases() []testCase {
	collector := needFactoryAbility[driver.Collector]("Collector")
	return []testCase{
		{name: "killed", needs: []need{collector}, run: daemonKilled},
		{name: "collect-spares-the-living", needs: []need{collector}, run: func(c *C) {
			b := c.box()
			p, out := c.startSh(b, "echo up; exec sleep 60")
			c.until(out.has("up"), "the program is up")
			other, err := c.s.h.New(c.s.host(c.dir))
			c.ok(err, "New")
			defer closeDriver(c, other)
			for _, d := range []driver.Driver{other, c.d} {
				collect(c, d, true) // what it removes wrongly is missing below
				noneLeft(c, d, "beside a live daemon")
			}
			c.exited(c.sh(b, "exit 14"), 14, "a program after that")
			c.ok(p.Signal(9), "Signal")
			if res := c.wait(p); res.Signal != 9 {
				c.Errorf("the program that ran meanwhile: %+v", res)
			}
		}},
	}
}

func collect(c *C, d driver.Driver, remove bool) []driver.Leftover {
	k, _ := driver.As[driver.Collector](d)
	left, err := k.Collect(c.ctx, remove)
	c.ok(err, "Collect")
	return left
}

// noneLeft checks that a driver reports no leftovers. It waits, because other daemons of the host
// may have just been killed, and their leftovers are reported until somebody removes them.
func noneLeft(c *C, d driver.Driver, when string) {
	for end := time.Now().Add(c.s.waitTimeout); ; time.Sleep(50 * time.Millisecond) {
		left := collect(c, d, false)
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			c.Errorf("%s these are reported as leftovers: %v", when, left)
			return
		}
	}
}

// beDaemon makes sandboxes with several kinds of programs, prints a line, and waits to be killed.
// It exits at the end of its standard input, that is, when the suite dies.
func beDaemon(h Harness, dir string) {
	s := &suite{h: h, waitTimeout: waitTimeout, token: os.Getenv(tokenVariable), ids: map[sandbar.ID]bool{}}
	err := func() error {
		d, err := h.New(s.host(dir))
		if err != nil {
			return err
		}
		c := &C{s: s, d: d, ctx: context.Background()}
		for range 3 {
			b, err := d.Create(c.ctx, c.newID(), c.spec())
			if err != nil {
				return err
			}
			for _, script := range []string{
				"exec sleep 300",
				"trap '' TERM HUP INT; (trap '' TERM HUP INT; sleep 300) & sleep 300",
				"(sh -c 'sleep 300 & sleep 300' > /dev/null 2>&1 &) ; echo x > file; exit 0",
				"while :; do echo noise; done",
			} {
				if _, err := b.Start(c.ctx, sandbar.Cmd{Args: []string{"sh", "-c", script}}, driver.Stdio{Stdout: io.Discard, Stderr: io.Discard}); err != nil {
					return err
				}
			}
		}
		return nil
	}()
	time.Sleep(100 * time.Millisecond) // for programs to start their own processes
	fmt.Printf("\ndaemon: %v\n", err)
	io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}

// daemonKilled kills a busy daemon. A new driver must find all leftovers, and nothing may remain
// after it has collected them.
func daemonKilled(c *C) {
	before := c.s.look(c.dir)
	for range c.s.few(3, 1) {
		if err := runDaemon(c); err != nil {
			c.Fatalf("the daemon to be killed: %v", err)
		}
		d, err := c.s.h.New(c.s.host(c.dir))
		c.ok(err, "New after a daemon was killed")
		c.Logf("left over: %v", collect(c, d, false))
		for _, l := range collect(c, d, true) {
			if l.Err != nil {
				c.Errorf("%s %s was not removed: %v", l.Kind, l.Name, l.Err)
			}
		}
		noneLeft(c, d, "after Collect")
		closeDriver(c, d)
		if left := c.s.settle(before, c.dir); left != "" {
			c.Errorf("after a daemon was killed and collected this remains:\n%s", left)
		}
	}
}

// runDaemon runs this test binary as a daemon, waits until it is busy, and kills it.
func runDaemon(c *C) error {
	pattern := "^" + strings.ReplaceAll(c.s.top, "/", "$/^") + "$"
	cmd := exec.CommandContext(c.ctx, os.Args[0], "-test.run="+pattern, "-test.count=1", fmt.Sprint("-test.timeout=", 2*time.Minute*c.s.waitFactor()))
	cmd.Env = append(os.Environ(), daemonVariable+"="+c.dir, tokenVariable+"="+c.s.token)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	said := ""
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "daemon: "); ok {
			said = text
			break
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	if said != "<nil>" {
		return fmt.Errorf("it says %q", said)
	}
	return nil
}
