package native

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// run runs a Python program and returns its output.
func run(t *testing.T, b driver.Sandbox, program string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"/usr/bin/python3", "-c", program}}, driver.Stdio{Stdout: &out, Stderr: &errOut})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	return out.String() + errOut.String()
}

// newBox creates a sandbox, which is destroyed at the test's end.
func newBox(t *testing.T, d *Driver) driver.Sandbox {
	t.Helper()
	s := spec(d)
	s.AllowDegraded = true
	b, err := d.Create(t.Context(), sandbar.NewID(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// A program can read process tags, its own and others', but change none of them, by setrlimit(2) or
// prlimit(2), and it cannot change the agent's limits. It can lower its own other limits.
func TestTagsCannotBeChanged(t *testing.T) {
	testenv.Need(t, testenv.Python)
	b := newBox(t, newDriver(t))
	got := run(t, b, `
import ctypes, os, resource as r
libc = ctypes.CDLL(None, use_errno=True)
LOCKS = 10
def tag(pid): return [l.split()[-2] for l in open("/proc/%s/limits" % pid) if l.startswith("Max file locks")][0]
def attempt(what, f, *args):
    before = tag("self")
    try: f(*args); print(what, "worked")
    except PermissionError: print(what, "refused")
    except ValueError: print(what, "refused") # as Python calls it from setrlimit
    if tag("self") != before: print(what, "changed the tag")
def raw(nr, *args):
    if libc.syscall(ctypes.c_long(nr), *[ctypes.c_void_p(a) for a in args]) != 0:
        raise PermissionError(ctypes.get_errno(), "")
own = int(tag("self"))
print("it has one", own > 1 << 15, r.prlimit(0, LOCKS) == (own, own), flush=True)
child = os.fork()
if child == 0:
    os.setsid()
    print("a child has the same", int(tag("self")) == own, flush=True)
    os._exit(0)
os.waitpid(child, 0)
attempt("setrlimit", r.setrlimit, LOCKS, (own - 1, own - 1))
attempt("the same", r.setrlimit, LOCKS, (own, own))
attempt("prlimit of its own", r.prlimit, os.getpid(), LOCKS, (5, 5))
attempt("prlimit of PID 1", r.prlimit, 1, LOCKS, (5, 5))
limit = (ctypes.c_uint64 * 2)(5, 5)
prlimit, setrlimit = {"x86_64": (302, 160), "aarch64": (261, 164)}[os.uname().machine]
attempt("prlimit with high bits", raw, prlimit, 1 << 32, LOCKS | 1 << 32, ctypes.addressof(limit), 0)
attempt("setrlimit with high bits", raw, setrlimit, LOCKS | 1 << 32, ctypes.addressof(limit))
attempt("files of PID 1", r.prlimit, 1, r.RLIMIT_NOFILE, (0, 0))
for tid in os.listdir("/proc/1/task"):
    attempt("files of a thread of PID 1", r.prlimit, int(tid), r.RLIMIT_NOFILE, (0, 0))
    break
attempt("its own files", r.setrlimit, r.RLIMIT_NOFILE, (50, 50))
`)
	const want = `it has one True True
a child has the same True
setrlimit refused
the same refused
prlimit of its own refused
prlimit of PID 1 refused
prlimit with high bits refused
setrlimit with high bits refused
files of PID 1 refused
files of a thread of PID 1 refused
its own files worked
`
	if got != want {
		t.Errorf("got:\n%s", got)
	}
	one, two := run(t, b, markOfSelf), run(t, b, markOfSelf)
	if one == two || one == "" || two == "" {
		t.Errorf("two programs have the marks %q and %q", one, two)
	}
}

const markOfSelf = `print([l.split()[-2] for l in open("/proc/self/limits") if l.startswith("Max file locks")][0])`

// In a long-lived sandbox a time limit, a cancellation and an output limit kill the whole process
// tree of a program and no process of another program, in both modes of the agent.
func TestEndsOfPrograms(t *testing.T) {
	testenv.Need(t, testenv.Python)
	for _, mode := range []string{agent.ModeSocket, agent.ModeStream} {
		t.Run(mode, func(t *testing.T) { endsOfPrograms(t, mode) })
	}
}

func endsOfPrograms(t *testing.T, mode string) {
	d := newDriver(t)
	d.mode = mode
	e, err := engine.New(engine.Config{Driver: d, AllowDegraded: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Shutdown(context.Background())
	s, err := e.Create(t.Context(), sandbar.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	neighbour, err := s.Start(t.Context(), sandbar.Cmd{Args: []string{"sleep", "600"}, Env: map[string]string{"WHO": "neighbour-" + mode}}, nil, sandbar.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	const program = `
import os, signal, sys, time
if "stubborn" in sys.argv:
    for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)
def sleep():
    while True: time.sleep(60)
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork() == 0: os.setsid(); sleep()
        os._exit(0)
    os.waitpid(pid, 0)
if os.fork() == 0: sleep()
if "flood" in sys.argv:
    while True: os.write(1, b"x" * 4096)
print("up", flush=True)
if "own-end" not in sys.argv: sleep()
`
	for _, c := range []struct {
		how  string
		lim  sandbar.Limits
		act  func(*engine.Process)
		want sandbar.Outcome
		left int
	}{
		{"obedient", sandbar.Limits{Timeout: 500 * time.Millisecond}, nil, sandbar.TimedOut, 0},
		{"stubborn", sandbar.Limits{Timeout: 500 * time.Millisecond}, nil, sandbar.TimedOut, 0},
		{"flood", sandbar.Limits{Output: 10_000}, nil, sandbar.OutputLimit, 0},
		{"obedient", sandbar.Limits{}, (*engine.Process).Cancel, sandbar.Cancelled, 0},
		{"stubborn", sandbar.Limits{}, (*engine.Process).Cancel, sandbar.Cancelled, 0},
		{"stubborn", sandbar.Limits{}, (*engine.Process).Kill, sandbar.Cancelled, 0},
		{"own-end", sandbar.Limits{}, nil, sandbar.Exited, 3},
	} {
		who := "tree-" + string(sandbar.NewID())
		up := make(sink, 1)
		p, err := s.StartSink(t.Context(), sandbar.Cmd{Args: []string{"/usr/bin/python3", "-c", program, c.how}, Env: map[string]string{"WHO": who}}, nil, c.lim, up)
		if err != nil {
			t.Fatal(err)
		}
		if p.PID() < 2 {
			t.Errorf("the program has the number %d", p.PID())
		}
		if c.act != nil {
			select {
			case <-up:
			case <-p.Done():
			}
			c.act(p)
		}
		r, err := p.Wait(t.Context())
		if err != nil || r.Outcome != c.want {
			t.Errorf("%s, want %v: %+v, %v", c.how, c.want, r, err)
		}
		if n := carriers(who); n != c.left {
			t.Errorf("%s, want %v: %d processes are left, want %d", c.how, c.want, n, c.left)
		}
	}
	if n := carriers("neighbour-" + mode); n != 1 {
		t.Errorf("of the neighbour %d processes live", n)
	}
	neighbour.Kill()
	if _, err := neighbour.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// sink signals the first output.
type sink chan struct{}

func (s sink) Started() {}

func (s sink) Output(sandbar.Chunk) error {
	select {
	case s <- struct{}{}:
	default:
	}
	return nil
}

// carriers counts the running processes of the host with a word in their environment.
func carriers(word string) (n int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		if b, err := os.ReadFile("/proc/" + e.Name() + "/environ"); err == nil && strings.Contains(string(b), "WHO="+word) {
			n++
		}
	}
	return n
}
