package drivertest

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// endingCases test how programs start and end.
func endingCases() []testCase {
	return []testCase{
		{name: "exit-codes", run: func(c *C) {
			b := c.box()
			for code := range 256 {
				c.exited(c.sh(b, fmt.Sprintf("exit %d", code)), code, "exit")
			}
		}},
		{name: "own-signals", needs: []need{needPython()}, run: ownSignals},
		{name: "faked", run: faked},
		{name: "sent-signals", run: func(c *C) {
			b := c.box()
			for _, sig := range []int{1, 2, 3, 9, 10, 15} {
				p, out := c.startSh(b, "echo up; exec sleep 60")
				c.until(out.has("up"), "the program is up")
				if err := p.Signal(sig); err != nil {
					c.Errorf("Signal(%d): %v", sig, err)
				}
				if res := c.wait(p); res.Outcome != sandbar.Signaled || res.Signal != sig {
					c.Errorf("after signal %d: outcome %v, signal %d", sig, res.Outcome, res.Signal)
				}
			}
		}},
		{name: "signal-handled", run: func(c *C) {
			p, out := c.startSh(c.box(), `trap 'echo caught; exit 21' TERM; echo up; while :; do sleep 0.01; done`)
			c.until(out.has("up"), "the program is up")
			c.ok(p.Signal(15), "Signal")
			if res := c.wait(p); res.Outcome != sandbar.Exited || res.ExitCode != 21 || !out.has("caught")() {
				c.Errorf("a program that handles TERM: %+v, %q", res, out)
			}
		}},
		{name: "signal-group", run: func(c *C) {
			p, out := c.startSh(c.box(), `(trap 'echo child got it; exit' TERM; echo child up; while :; do sleep 0.01; done) &
trap 'wait; echo parent got it; exit 9' TERM; echo parent up; while :; do sleep 0.01; done`)
			c.until(func() bool { return out.has("child up")() && out.has("parent up")() }, "both are up")
			c.ok(p.Signal(15), "Signal")
			res := c.wait(p)
			if res.ExitCode != 9 || !out.has("child got it")() || !out.has("parent got it")() {
				c.Errorf("TERM to a program with a child: %+v, %q", res, out)
			}
		}},
		{name: "signal-after-end", run: func(c *C) {
			b := c.box()
			p, _ := c.startSh(b, "exit 2")
			c.wait(p)
			for _, sig := range []int{1, 9, 15} {
				if err := p.Signal(sig); err != nil {
					c.Errorf("Signal(%d) after the end: %v", sig, err)
				}
			}
			c.exited(c.sh(b, "exit 3"), 3, "a program after that")
		}},
		{name: "wait-many", run: func(c *C) {
			p, _ := c.startSh(c.box(), "sleep 0.1; exit 17")
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					res, err := c.waitFor(p)
					if err != nil || res.ExitCode != 17 {
						c.Errorf("one of many Waits: %+v, %v", res, err)
					}
				})
			}
			wg.Wait()
			first, again := c.wait(p), c.wait(p)
			if first != again {
				c.Errorf("Wait says %+v, then %+v", first, again)
			}
		}},
		{name: "double-fork", run: func(c *C) {
			b := c.box()
			r := c.sh(b, `(sh -c 'sleep 0.05; exit 42' &) ; exit 7`)
			c.exited(r, 7, "a program whose orphan ends with another code")
			c.exited(c.sh(b, "sleep 0.1; exit 8"), 8, "a program during whose life the orphan ends")
		}},
		{name: "parallel-exits", run: parallelExits},
		{name: "orphans", run: orphans},
		{name: "numbers", run: numbers},
		{name: "start-errors", run: startErrors},
		{name: "start-cancelled", run: func(c *C) {
			b := c.box()
			ctx, cancel := context.WithCancel(c.ctx)
			cancel()
			_, err := b.Start(ctx, sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{})
			c.code(err, "Start with a context that has ended", sandbar.Canceled, sandbar.Timeout)

			ctx, cancel = context.WithCancel(c.ctx)
			p, err := b.Start(ctx, sandbar.Cmd{Args: []string{"sh", "-c", "sleep 0.2; exit 11"}}, driver.Stdio{})
			cancel()
			c.ok(err, "Start")
			if res := c.wait(p); res.ExitCode != 11 {
				c.Errorf("the context of Start has ended, and with it the program: %+v", res)
			}
		}},
		{name: "arguments", run: func(c *C) {
			args := []string{"plain", "", "two words", "$HOME", "*", "a\nb", "ü€😀", "\xff\xfe", "'\"\\", "--", "-c"}
			r := c.exec(c.box(), sandbar.Cmd{Args: append([]string{"sh", "-c", `printf '<%s>' "$@"`, "sh"}, args...)}, nil)
			if want := "<" + strings.Join(args, "><") + ">"; r.out != want {
				c.Errorf("arguments arrive as %q; want %q", r.out, want)
			}
		}},
		{name: "environment", run: environment},
		{name: "directories", run: directories},
		{name: "writable-places", run: func(c *C) {
			c.exited(c.sh(c.box(), `set -e; echo x > "$HOME/a"; cat "$HOME/a"; t=${TMPDIR:-/tmp}; echo y > "$t/b"; cat "$t/b"`), 0, "writing in the home and the temporary directory")
		}},
	}
}

// ownSignals tests every signal that ends a program, sent by the program itself.
func ownSignals(c *C) {
	b := c.box()
	for sig := 1; sig <= 64; sig++ {
		switch sig {
		case 17, 18, 19, 20, 21, 22, 23, 28: // CHLD CONT STOP TSTP TTIN TTOU URG WINCH do not end a program
			continue
		case 32, 33: // reserved by libc
			continue
		}
		if sig > 34 && sig < 64 {
			continue // one real-time signal stands for all
		}
		r := c.py(b, fmt.Sprintf(`
import ctypes, os, signal
if %[1]d not in (9, 19): signal.signal(%[1]d, signal.SIG_DFL)
os.write(1, b"up"); os.kill(os.getpid(), %[1]d)
import time; time.sleep(5)`, sig))
		if r.Outcome != sandbar.Signaled || r.Signal != sig || r.out != "up" {
			c.Errorf("signal %d: got %v", sig, r)
		}
	}
}

// parallelExits tests that programs that end at once have their own exit codes.
func parallelExits(c *C) {
	total := c.s.few(1000, 100)
	b := c.box(func(s *sandbar.Spec) {
		if s.Limits.PIDs > 0 {
			s.Limits.PIDs = 2048
		}
	})
	var wg sync.WaitGroup
	places := make(chan struct{}, 200)
	for i := range total {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			p, err := b.Start(c.ctx, sandbar.Cmd{Args: []string{"sh", "-c", fmt.Sprintf("exit %d", i%256)}}, driver.Stdio{})
			if err != nil {
				c.Errorf("Start %d: %v", i, err)
				return
			}
			res, err := c.waitFor(p)
			if err != nil || res.Outcome != sandbar.Exited || res.ExitCode != i%256 {
				c.Errorf("program %d exits %d: got %+v, %v", i, i%256, res, err)
			}
		})
	}
	wg.Wait()
}

// orphans tests that orphaned processes are reaped, also thousands of them.
func orphans(c *C) {
	b := c.box()
	before := deadProcesses()
	n := c.s.few(10000, 500)
	r := c.sh(b, fmt.Sprintf(`i=0; while [ $i -lt %d ]; do (: & ) || exit 1; i=$((i+1)); done`, n))
	c.exited(r, 0, fmt.Sprintf("a program that leaves %d orphans", n))
	c.until(func() bool { return deadProcesses() <= before+50 }, "the orphans are reaped; %d of the dead remain", deadProcesses()-before)
	c.exited(c.sh(b, "exit 1"), 1, "a program after that")
}

// deadProcesses counts the zombies of the host.
func deadProcesses() int {
	entries, _ := os.ReadDir("/proc")
	n := 0
	for _, e := range entries {
		if b, err := os.ReadFile(path.Join("/proc", e.Name(), "stat")); err == nil && strings.Contains(string(b), ") Z ") {
			n++
		}
	}
	return n
}

// faked tests a program whose output and exit code imitate a kill for memory, time or output. The
// outcome must be that of its own end.
func faked(c *C) {
	b := c.box()
	for _, code := range []int{124, 125, 126, 127, 128, 134, 137, 139, 143, 255} {
		r := c.sh(b, fmt.Sprintf("echo 'Killed'; echo 'Out of memory: Killed process 1 (sh)' >&2; echo 'timed out' >&2; exit %d", code))
		c.exited(r, code, "a program that pretends")
		if r.OOMKills != 0 || r.DroppedBytes != 0 {
			c.Errorf("a program that imitates a kill, with exit code %d: %d kills for memory, %d bytes dropped", code, r.OOMKills, r.DroppedBytes)
		}
	}
	// The program sends itself the signal of a kill for memory or time.
	if r := c.sh(b, "kill -KILL $$"); r.Outcome != sandbar.Signaled || r.Signal != 9 || r.OOMKills != 0 {
		c.Errorf("a program that kills itself: %v, %d kills for memory", r, r.OOMKills)
	}
}

// numbers tests the times and the memory of a result.
func numbers(c *C) {
	b := c.box()
	r := c.sh(b, "sleep 0.3")
	if r.Duration < 250*time.Millisecond { // the driver may learn of the start a moment late
		c.Errorf("a program that sleeps 300 ms took %v", r.Duration)
	}
	if r.CPUTime > r.Duration {
		c.Errorf("a program that sleeps used %v of processor time in %v", r.CPUTime, r.Duration)
	}
	if c.s.python == "" {
		return
	}
	r = c.py(b, `
import os, time
block = b"x" * (96 << 20)
def work():
    while time.process_time() < 0.2: pass
pid = os.fork()
if pid == 0: work(); os._exit(0)
work(); os.waitpid(pid, 0)`)
	c.exited(r, 0, "a busy program")
	if r.CPUTime < 350*time.Millisecond {
		c.Errorf("a program and its child that compute 200 ms each used %v", r.CPUTime)
	}
	// 0 means unknown, which is allowed if the kernel does not count.
	if p := r.PeakMemory; p != 0 && (p < 96<<20 || p > 512<<20) {
		c.Errorf("a program of some 100 MiB has its peak at %d bytes", p)
	} else if p == 0 && c.d.Caps().OOMCounted {
		c.Errorf("memory is counted, but PeakMemory is 0")
	}
	e := r.Enforced
	for _, l := range limits() {
		if l.enforced(e) == "" {
			c.Errorf("the result does not say how %s was enforced", l.name)
		}
	}
}

// startErrors tests the error codes for programs that cannot start.
func startErrors(c *C) {
	b := c.box()
	c.exited(c.sh(b, `echo '#!/no/such/interpreter' > orphaned; chmod 755 orphaned; echo data > plain; chmod 644 plain
printf '\177garbage that is no program' > garbage; chmod 755 garbage; mkdir sub; echo 'exit 5' > noexec.sh; ln -s nowhere dangling`), 0, "preparing")
	huge := strings.Repeat("x", 8<<20)
	for what, tc := range map[string]struct {
		cmd   sandbar.Cmd
		codes []sandbar.Code
	}{
		"a program that does not exist":         {sandbar.Cmd{Args: []string{"no-such-program"}}, []sandbar.Code{sandbar.NotFound}},
		"a path that does not exist":            {sandbar.Cmd{Args: []string{"/no/such/program"}}, []sandbar.Code{sandbar.NotFound}},
		"a relative path that does not exist":   {sandbar.Cmd{Args: []string{"./no-such"}}, []sandbar.Code{sandbar.NotFound}},
		"a link to nowhere":                     {sandbar.Cmd{Args: []string{"./dangling"}}, []sandbar.Code{sandbar.NotFound}},
		"a path below a file":                   {sandbar.Cmd{Args: []string{"./plain/x"}}, []sandbar.Code{sandbar.NotFound}},
		"a file without permission":             {sandbar.Cmd{Args: []string{"./plain"}}, []sandbar.Code{sandbar.Denied}},
		"a directory":                           {sandbar.Cmd{Args: []string{"./sub"}}, []sandbar.Code{sandbar.Denied}},
		"a file that is no program":             {sandbar.Cmd{Args: []string{"./garbage"}}, []sandbar.Code{sandbar.Denied}},
		"a script without its interpreter":      {sandbar.Cmd{Args: []string{"./orphaned"}}, []sandbar.Code{sandbar.NotFound}},
		"a directory that does not exist":       {sandbar.Cmd{Args: []string{"true"}, Dir: "/no/such/directory"}, []sandbar.Code{sandbar.NotFound}},
		"a directory that is a file":            {sandbar.Cmd{Args: []string{"true"}, Dir: "plain"}, []sandbar.Code{sandbar.NotFound, sandbar.Conflict}},
		"no program at all":                     {sandbar.Cmd{}, []sandbar.Code{sandbar.Invalid}},
		"an empty name":                         {sandbar.Cmd{Args: []string{""}}, []sandbar.Code{sandbar.Invalid, sandbar.NotFound}},
		"a NUL in an argument":                  {sandbar.Cmd{Args: []string{"echo", "a\x00b"}}, []sandbar.Code{sandbar.Invalid}},
		"a NUL in a variable":                   {sandbar.Cmd{Args: []string{"true"}, Env: map[string]string{"A": "\x00"}}, []sandbar.Code{sandbar.Invalid}},
		"a variable with an equals sign":        {sandbar.Cmd{Args: []string{"true"}, Env: map[string]string{"A=B": "c"}}, []sandbar.Code{sandbar.Invalid}},
		"a variable without a name":             {sandbar.Cmd{Args: []string{"true"}, Env: map[string]string{"": "c"}}, []sandbar.Code{sandbar.Invalid}},
		"an argument beyond the kernel's limit": {sandbar.Cmd{Args: []string{"true", huge}}, []sandbar.Code{sandbar.TooLarge, sandbar.Invalid}},
		"a variable beyond the kernel's limit":  {sandbar.Cmd{Args: []string{"true"}, Env: map[string]string{"A": huge}}, []sandbar.Code{sandbar.TooLarge, sandbar.Invalid}},
	} {
		p, err := b.Start(c.ctx, tc.cmd, driver.Stdio{})
		c.code(err, "Start of "+what, tc.codes...)
		if err == nil {
			c.Logf("%s ended with %+v", what, c.wait(p))
		}
	}
	c.exited(c.sh(b, "exit 6"), 6, "a program after all those")
}

func environment(c *C) {
	name := "SANDBAR_DRIVERTEST_DAEMON_" + nonce()
	os.Setenv(name, "daemon's secret")
	defer os.Unsetenv(name)
	b := c.box(func(s *sandbar.Spec) {
		s.Env["FROM_SPEC"], s.Env["BOTH"] = "spec", "spec"
	})
	r := c.exec(b, sandbar.Cmd{Args: []string{"env"}, Env: map[string]string{"FROM_CMD": "cmd", "BOTH": "cmd", "ODD": "a=b c\td", "EMPTY": ""}}, nil)
	got := map[string]string{}
	for line := range strings.Lines(r.out) {
		k, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		got[k] = v
	}
	for k, want := range map[string]string{"FROM_SPEC": "spec", "FROM_CMD": "cmd", "BOTH": "cmd", "ODD": "a=b c\td", "EMPTY": ""} {
		if v, ok := got[k]; !ok || v != want {
			c.Errorf("variable %s is %q (there: %v); want %q", k, v, ok, want)
		}
	}
	for _, k := range []string{"PATH", "HOME"} {
		if got[k] == "" {
			c.Errorf("there is no %s", k)
		}
	}
	if strings.Contains(r.out, "daemon's secret") {
		c.Errorf("a variable of the daemon's is in the program's environment")
	}
	r = c.exec(b, sandbar.Cmd{Args: []string{"sh", "-c", "echo $BOTH"}}, nil)
	if r.out != "spec\n" {
		c.Errorf("a variable of one command is there in the next: %v", r)
	}
	// The command's own PATH is used to find its program.
	c.exited(c.sh(b, `mkdir -p bin; printf '#!/bin/sh\nexit 33\n' > bin/mine; chmod 755 bin/mine; echo "$HOME" > home`), 0, "preparing")
	home := strings.TrimSpace(c.sh(b, "cat home").out)
	r = c.exec(b, sandbar.Cmd{Args: []string{"mine"}, Env: map[string]string{"PATH": home + "/bin:/usr/bin:/bin"}}, nil)
	c.exited(r, 33, "a program found by the command's own PATH")
}

func directories(c *C) {
	b := c.box()
	home := c.sh(b, `cd "$HOME" && pwd -P`).out
	for dir, want := range map[string]string{
		"":                          home,
		".":                         home,
		sandbar.DefaultDir:          home,
		"sub":                       strings.TrimSuffix(home, "\n") + "/sub\n",
		sandbar.DefaultDir + "/sub": strings.TrimSuffix(home, "\n") + "/sub\n",
		"sub/..":                    home,
		"/":                         "/\n",
		"/usr":                      "/usr\n",
	} {
		c.exited(c.sh(b, "mkdir -p sub"), 0, "preparing")
		r := c.exec(b, sandbar.Cmd{Args: []string{"sh", "-c", "pwd -P"}, Dir: dir}, nil)
		if r.out != want {
			c.Errorf("started in %q, a program is in %q; want %q", dir, r.out, want)
		}
	}
}
