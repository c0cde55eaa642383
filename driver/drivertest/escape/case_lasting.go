package escape

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar/driver"
)

// lastingCases are number 91: programs that hide from KillTree.
func lastingCases() []Case {
	var cases []Case
	for _, x := range []struct{ name, title, python string }{
		{"undumpable", "a process of another session that is not dumpable", `
away(); libc.prctl(4, 0, 0, 0, 0) # PR_SET_DUMPABLE
up()`},
		{"unreadable", "a program whose file is unreadable", `
import shutil
shutil.copy(os.path.realpath("/bin/sh"), "unreadable"); os.chmod("unreadable", 0o111)
away()
try: os.execv("unreadable", ["unreadable", "-c", "echo up; while :; do sleep 1000; done", TOKEN])
except OSError as e: held("exec", why(e.errno)); up() # a kernel that reads it as the program would`},
		{"renamed", "a process with a name that reads like a dead one's", `
away(); libc.prctl(15, b"a) Z 1 1 (b", 0, 0, 0) # PR_SET_NAME
up()`},
		{"headless", "a process that is not dumpable and whose first thread has ended", `
import threading
away(); libc.prctl(4, 0, 0, 0, 0)
threading.Thread(target=up).start()
libc.syscall(ctypes.c_long({"x86_64": 60, "aarch64": 93}[os.uname().machine]), 0)`},
		{"vfork", "a process that waits for a child by vfork, neither dumpable", `
away(); libc.prctl(4, 0, 0, 0, 0)
if os.uname().machine == "x86_64": libc.syscall(ctypes.c_long(NR["clone"]), 0x4000 | 17, 0, 0, 0, 0) # CLONE_VFORK
else: os.fork()
up()`},
		{"forks", "processes that are not dumpable and fork without a pause", `
away(); libc.prctl(4, 0, 0, 0, 0)
for _ in range(3): os.fork()
say("up")
while True:
    try:
        if os.fork(): os._exit(0)
        os.setsid()
    except OSError: pass`},
	} {
		cases = append(cases, Case{ID: "91-" + x.name, Title: x.title, Claim: Processes, NeedsPython: true,
			Attack: func(ctx context.Context, s *Scene) error { return s.outlive(ctx, lasting+x.python) }})
	}
	return cases
}

// lasting leaves the program's session and parent.
const lasting = `
TOKEN = sys.argv[1]
def away():
    if os.fork(): time.sleep(1000)
    os.setsid()
    if os.fork(): os._exit(0)
    os.setsid()
def up():
    say("up")
    while True: time.sleep(1000)
`

// outlive starts a program that hides, calls KillTree and searches for processes that still live.
func (s *Scene) outlive(ctx context.Context, python string) error {
	box, err := s.Box(ctx)
	if err != nil {
		return err
	}
	out := &signalled{wrote: make(chan struct{}, 1)}
	p, err := s.Begin(ctx, box, python, nil, out)
	if err != nil {
		return err
	}
	if err := out.await(ctx, "up"); err != nil {
		return err
	}
	kerr := p.KillTree()
	live, err := s.alive(ctx, box)
	if len(live) > 0 {
		s.Escape("after KillTree, which returned %v, these processes live: %v", kerr, live)
	}
	return errors.Join(kerr, err)
}

// alive lists the live processes of the case: on the host, where none can hide, or inside the
// sandbox if programs are not processes of the host.
func (s *Scene) alive(ctx context.Context, box driver.Sandbox) ([]int, error) {
	switch s.Driver.Caps().Boundary {
	case driver.BoundaryGVisor, driver.BoundaryVM, driver.BoundaryRemote:
	case driver.BoundaryNone:
		return carriers(s.token), nil
	default:
		// A process outside the sandbox's PID namespace is not a program: the process that holds a
		// fork's memory has the fork's arguments, and lives as long as the sandbox.
		return slices.DeleteFunc(carriers(s.token), outsideSandbox), nil
	}
	text, err := s.Program(ctx, box, `
own = sys.argv.pop().encode()
for p in pids():
    try:
        if p != os.getpid() and own in open("/proc/%d/cmdline" % p, "rb").read(): say("LIVES", p)
    except OSError: pass
done()`, "")
	var live []int
	for line := range strings.Lines(text) {
		var pid int
		if n, _ := fmt.Sscanf(line, "LIVES %d", &pid); n == 1 {
			live = append(live, pid)
		}
	}
	return slices.Clip(live), err
}

// outsideSandbox reports whether a process is in this process's PID namespace.
func outsideSandbox(pid int) bool {
	own, err := os.Readlink("/proc/self/ns/pid")
	its, ierr := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/pid")
	return err == nil && ierr == nil && its == own
}

// signalled is a program's output so far.
type signalled struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	wrote chan struct{}
}

func (b *signalled) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.wrote <- struct{}{}:
	default:
	}
	b.buf.Write(p[:min(len(p), max(0, maxBuffered-b.buf.Len()))])
	return len(p), nil
}

// upBound is how long a program may take to start.
const upBound = 20 * time.Second

// await waits until the program has printed a word on its own line.
func (b *signalled) await(ctx context.Context, word string) error {
	ctx, cancel := context.WithTimeout(ctx, upBound)
	defer cancel()
	for {
		b.mu.Lock()
		text := b.buf.String()
		b.mu.Unlock()
		if strings.Contains("\n"+text, "\n"+word+"\n") {
			return nil
		}
		select {
		case <-b.wrote:
		case <-ctx.Done():
			return fmt.Errorf("the program has not printed %q but: %s", word, text)
		}
	}
}
