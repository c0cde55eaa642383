package drivertest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// treeCases test that KillTree kills all processes that one program started, and no others.
func treeCases() []testCase {
	needs := []need{needTrees(), needPython()}
	return []testCase{
		{name: "number", run: func(c *C) {
			p, out := c.startSh(c.box(), "echo $$; exec cat")
			c.until(out.has("\n"), "the program is up")
			if got := strconv.Itoa(p.PID()); got != "0" && got+"\n" != out.String() {
				c.Errorf("the program is %s to itself; PID says %s", sandbar.Quote(out.String(), 40), got)
			}
			c.killTree(p)
		}},
		{name: "escaped", needs: needs, run: func(c *C) {
			b := c.box()
			untouched := c.neighbour(b)
			t := c.tree(b, daemons+`
ignore(); daemon(); daemon()
if os.fork() == 0: sleep()
say("up"); sleep()`)
			c.ok(t.p.Signal(15), "Signal")
			t.count(4, "after a TERM that all ignore")
			t.kill()
			if res := c.wait(t.p); res.Outcome != sandbar.Signaled || res.Signal != 9 {
				c.Errorf("a program that was killed: %+v", res)
			}
			untouched()
		}},
		{name: "obedient", needs: needs, run: func(c *C) {
			t := c.tree(c.box(), daemons+`
daemon()
say("up"); sleep()`)
			c.ok(t.p.Signal(15), "Signal")
			if res := c.wait(t.p); res.Signal != 15 {
				c.Errorf("a program that obeys: %+v", res)
			}
			t.count(1, "after the program has obeyed")
			t.kill()
		}},
		{name: "left-alone", needs: needs, run: func(c *C) {
			b := c.box()
			t := c.tree(b, daemons+`
daemon()
if os.fork() == 0: sleep()
say("up")`)
			if res := c.wait(t.p); res.Outcome != sandbar.Exited || res.ExitCode != 0 {
				c.Errorf("a program that leaves two behind: %+v", res)
			}
			t.count(2, "after the program's own end")
			t.kill()
			t.kill() // a second call has no effect
			c.exited(c.sh(b, "exit 4"), 4, "a program after that")
		}},
		{name: "threads", needs: needs, run: func(c *C) {
			// The first thread ends and is a zombie; another thread continues.
			t := c.tree(c.box(), daemons+`
import threading
threading.Thread(target=sleep).start()
say("up")
ctypes.CDLL(None).syscall(ctypes.c_long({"x86_64": 60, "aarch64": 93}[os.uname().machine]), 0)`)
			t.kill()
			c.wait(t.p)
		}},
		{name: "fork-chain", needs: needs, run: func(c *C) {
			b := c.box()
			untouched := c.neighbour(b)
			for range c.s.few(10, 3) {
				t := c.tree(b, daemons+`
def chain():
    while True:
        if os.fork(): os._exit(0)
        os.setsid()
for _ in range(3):
    if os.fork() == 0: chain()
say("up"); chain()`)
				t.kill()
			}
			untouched()
		}},
		{name: "fork-bomb", needs: append(needs, needClaim("to hold processes", func(caps driver.Caps) bool {
			return caps.Enforced.PIDs != sandbar.EnforcedNone
		})), run: func(c *C) {
			b := c.box(func(s *sandbar.Spec) { s.Limits.PIDs = 100 })
			untouched := c.neighbour(b)
			for range c.s.few(5, 2) {
				t := c.tree(b, daemons+`
say("up")
while True:
    try:
        if os.fork() == 0: os.setsid()
    except OSError: pass`)
				t.kill()
				c.exited(c.sh(b, "exit 5"), 5, "a program after the bomb")
			}
			untouched()
		}},
		{name: "mutual-help", needs: append(needs, needClaim("private processes", func(caps driver.Caps) bool {
			return caps.PrivateProcesses
		})), run: func(c *C) {
			b := c.box()
			untouched := c.neighbour(b)
			t := c.tree(b, daemons+`
ignore()
def help():
    os.setsid()
    while True:
        os.kill(-1, signal.SIGCONT)
        if os.fork(): os._exit(0)
for _ in range(4):
    if os.fork() == 0: help()
say("up"); sleep()`)
			t.kill()
			untouched()
		}},
		{name: "two-trees", needs: needs, run: func(c *C) {
			b := c.box()
			program := daemons + "\nignore(); daemon(); say(\"up\"); sleep()"
			trees := []*tree{c.tree(b, program), c.tree(b, program), c.tree(b, program), c.tree(b, program)}
			trees[0].kill()
			for _, t := range trees[1:] {
				t.count(2, "after the end of another tree")
			}
			var all sync.WaitGroup
			for _, t := range trees[1:] {
				all.Go(t.kill)
				all.Go(t.kill)
			}
			all.Wait()
		}},
		{name: "busy-neighbours", needs: needs, run: busyNeighbours},
		{name: "many", needs: needs, run: func(c *C) {
			b := c.box()
			for range c.s.few(200, 20) {
				t := c.tree(b, daemons+`
daemon(); daemon()
say("up"); sleep()`)
				t.count(3, "before the end")
				t.kill()
			}
		}},
		{name: "program-first", needs: needs, run: func(c *C) {
			b := c.box()
			for range c.s.few(50, 10) {
				t := c.tree(b, daemons+`
for _ in range(20):
    if os.fork() == 0: sleep()
pid = os.fork()
if pid == 0:
    os.setsid()
    sleep()
say("up")
os.waitpid(pid, 0)
os._exit(0)`)
				t.kill()
				if res := c.wait(t.p); res.Outcome != sandbar.Signaled || res.Signal != 9 {
					c.Errorf("a program that would end after its child: %+v", res)
				}
			}
		}},
		{name: "destroyed", needs: needs, run: func(c *C) {
			b := c.box()
			t := c.tree(b, daemons+"\ndaemon(); say(\"up\"); sleep()")
			c.destroy(b)
			t.kill()
		}},
	}
}

// busyNeighbours tests that a tree is found while other programs start and end processes all the
// time. The other programs must continue, and a stopped one must stay stopped.
func busyNeighbours(c *C) {
	b := c.box()
	busy := c.tree(b, daemons+`
say("up")
while True:
    for _ in range(50):
        pid = os.fork()
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0)
    say("on")`)
	still := c.tree(b, daemons+`
say("up"); os.kill(os.getpid(), signal.SIGSTOP)
os._exit(29)`)
	c.until(func() bool { return still.states() == "T" }, "the neighbour has stopped itself")
	for range c.s.few(5, 2) {
		t := c.tree(b, daemons+`
daemon()
say("up"); sleep()`)
		t.kill()
	}
	if got := still.states(); got != "T" {
		c.Errorf("a neighbour that had stopped itself is in the state %q", got)
	}
	before := len(busy.out.String())
	c.until(func() bool { return len(busy.out.String()) > before }, "the busy neighbour goes on")
	c.ok(still.p.Signal(18), "Signal")
	if res := c.wait(still.p); res.ExitCode != 29 {
		c.Errorf("a neighbour that had stopped itself and goes on: %+v", res)
	}
	busy.kill()
}

// states are the process states of the tree's live processes.
func (t *tree) states() (letters string) {
	for _, state := range t.living() {
		letters += state
	}
	return letters
}

// living returns the live processes of the tree with their states. It looks on the host, where no
// process can hide, or inside the sandbox if programs have another kernel.
func (t *tree) living() map[int]string {
	switch t.c.s.caps.Boundary {
	case driver.BoundaryGVisor, driver.BoundaryVM, driver.BoundaryRemote:
		return t.livingInside()
	}
	all := map[int]string{}
	for _, pid := range carriers(t.token) {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if _, rest, ok := strings.Cut(string(b[bytes.LastIndexByte(b, ')')+1:]), " "); ok && rest != "" {
			all[pid] = rest[:1]
		}
	}
	return all
}

// livingInside asks a program in the sandbox. If that cannot start, no process lives.
func (t *tree) livingInside() map[int]string {
	const look = `
import os, sys
for p in os.listdir("/proc"):
    try:
        if p.isdigit() and ("TREE=" + sys.argv[1]).encode() in open("/proc/%s/environ" % p, "rb").read().split(b"\0"):
            print(p, open("/proc/%s/stat" % p).read().rpartition(")")[2].split()[0])
    except OSError: pass
print("looked")`
	var out bytes.Buffer
	all := map[int]string{}
	p, err := t.box.Start(t.c.ctx, sandbar.Cmd{Args: []string{t.c.s.python, "-c", look, t.token}}, driver.Stdio{Stdout: &out})
	if sandbar.CodeOf(err) == sandbar.Gone {
		return all
	}
	t.c.ok(err, "listing live processes")
	t.c.wait(p)
	if !strings.HasSuffix(out.String(), "looked\n") {
		t.c.Fatalf("the list of live processes: %s", sandbar.Quote(out.String(), 300))
	}
	for line := range strings.Lines(out.String()) {
		var pid int
		var state string
		if n, _ := fmt.Sscan(line, &pid, &state); n == 2 {
			all[pid] = state
		}
	}
	return all
}

// daemons is the common Python code of these cases.
const daemons = `
import ctypes, os, signal, time
def say(s): os.write(1, (s + "\n").encode())
def sleep():
    while True: time.sleep(60)
def ignore():
    for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)
def daemon():
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            sleep()
        os._exit(0)
    os.waitpid(pid, 0)
`

func needTrees() need {
	return need{ofDriver: true, unmet: func(s *suite) string {
		if runtime.GOOS != "linux" {
			return "live processes are counted on Linux only"
		}
		return ""
	}}
}

// killTree calls KillTree of p. An error is a failure.
func (c *C) killTree(p driver.Process) {
	if err := p.KillTree(); err != nil {
		c.Errorf("KillTree: %v", err)
	}
}

// tree is a program with all processes that it started.
type tree struct {
	c     *C
	box   driver.Sandbox
	p     driver.Process
	out   *buffer
	token string // in the environment of all its processes
}

// tree starts a Python program and waits until it prints "up".
func (c *C) tree(b driver.Sandbox, program string) *tree {
	out := &buffer{}
	t := &tree{c: c, box: b, out: out, token: "tree-" + nonce()}
	t.p = c.start(b, sandbar.Cmd{Args: []string{c.s.python, "-c", program}, Env: map[string]string{"TREE": t.token}},
		driver.Stdio{Stdout: both{out}, Stderr: both{out}})
	c.until(func() bool { return strings.Contains(out.String(), "up\n") || len(out.String()) > 1<<10 }, "the program is up")
	if !out.has("up\n")() {
		c.Fatalf("the program prints %s", sandbar.Quote(out.String(), 400))
	}
	return t
}

// count waits until this number of processes of the tree live.
func (t *tree) count(want int, when string) {
	t.c.until(func() bool { return len(t.living()) == want }, "%s %d processes of the tree live", when, want)
}

// kill kills the tree and checks repeatedly that nothing lives: one look could miss a process that
// forks all the time.
func (t *tree) kill() {
	t.c.killTree(t.p)
	for range 5 {
		if live := t.living(); len(live) > 0 {
			t.c.Errorf("after KillTree these processes of the tree live, in their states: %v", live)
			return
		}
	}
}

// neighbour starts a program that must not be affected. The returned function ends it and checks
// that.
func (c *C) neighbour(b driver.Sandbox) (untouched func()) {
	in, feed := io.Pipe()
	c.Cleanup(func() { feed.Close() })
	out := &buffer{}
	p := c.start(b, sandbar.Cmd{Args: []string{"sh", "-c", "echo up; cat & wait; cat; exit 23"}}, driver.Stdio{Stdin: in, Stdout: both{out}, Stderr: both{out}})
	c.until(out.has("up"), "the neighbour is up")
	return func() {
		fmt.Fprintln(feed, "still here")
		feed.Close()
		if res := c.wait(p); res.Outcome != sandbar.Exited || res.ExitCode != 23 || !out.has("still here")() {
			c.Errorf("a neighbour that must not be touched: %+v, %s", res, sandbar.Quote(out.String(), 200))
		}
	}
}
