package escape

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// processCases are numbers 19 to 30.
func processCases() []Case {
	return []Case{
		{ID: "19-daemon", Title: "double fork, own session, deaf to TERM, HUP and INT", Claim: Always, NeedsPython: true,
			Attack: program(daemon + `
daemonize(lambda: time.sleep(300))
done()`)},
		{ID: "19-daemon-unmarked", Title: "the same, with an environment of its own", Claim: Processes, Leaks: true, NeedsPython: true,
			Attack: program(daemon + `
daemonize(lambda: os.execve(sys.executable, [sys.executable, "-c", "import time; open('alive2', 'w'); time.sleep(300)", sys.argv[1]], {}))
while not os.path.exists("alive2"): time.sleep(0.01)
done()`)},
		{ID: "20-fork-bomb", Title: "as many processes as can be had", Claim: PIDs, Leaks: true, Limits: sandbar.Limits{PIDs: 32}, NeedsPython: true,
			Attack: forkBomb},
		{ID: "21-fork-chain", Title: "a process that forks and exits, faster than a killer can look", Claim: Always, NeedsPython: true,
			Attack: forkChain(``)},
		{ID: "21-fork-chain-session", Title: "the same, in a session of its own without a parent", Claim: Processes, NeedsPython: true,
			Attack: forkChain(`if os.fork(): time.sleep(60); os._exit(0)
os.setsid()`)},
		{ID: "22-orphans", Title: "1,000 orphans, to fill the process table with the dead", Claim: Always, Python: `
def dead():
    n = 0
    for p in pids():
        try: n += open("/proc/%d/stat" % p).read().rpartition(")")[2].split()[0] == "Z"
        except OSError: pass
    return n
before, end = dead(), time.time() + 30
for i in range(1000):
    while True:
        try: pid = os.fork(); break
        except BlockingIOError:
            if time.time() > end: escaped("the table is full after", i); done(); sys.exit()
            time.sleep(0.01)
    if pid == 0:
        try: os.fork()
        except BlockingIOError: pass
        os._exit(0)
    os.waitpid(pid, 0)
end = time.time() + 10
while dead() > before + 20:
    if time.time() > end: escaped(dead() - before, "dead processes are not reaped"); break
    time.sleep(0.02)
done()`},
		{ID: "25-signal-host", Title: "kill a process of the host", Claim: Processes, Leaks: true,
			Shell: `kill -KILL "$BAIT_PID" 2>&1; sleep 0.2; echo DONE`},
		{ID: "25-signal-init", Title: "kill the first process of the sandbox", Claim: Processes, NeedsPython: true, Attack: signalInit},
		{ID: "25-trace-agent", Title: "trace the first process, take its memory and descriptors", Claim: Processes, Python: `
if host_visible(): escaped("processes of the host are visible"); done(); sys.exit()
PTRACE_ATTACH, PTRACE_DETACH, PTRACE_SEIZE = 16, 17, 0x4206
for request in [PTRACE_SEIZE, PTRACE_ATTACH]:
    if denied("ptrace", request, 1, 0, 0) >= 0: call("ptrace", PTRACE_DETACH, 1, 0, 0)
buf = ctypes.create_string_buffer(8)
local = (ctypes.c_void_p * 2)(ctypes.addressof(buf), 8)
remote = (ctypes.c_void_p * 2)(0x400000, 8)
denied("process_vm_readv", 1, local, 1, remote, 1, 0)
denied("process_vm_writev", 1, local, 1, remote, 1, 0)
fd, _ = call("pidfd_open", 1, 0)
if fd >= 0:
    for target in range(64): 
        r, e = call("pidfd_getfd", fd, target, 0)
        if r >= 0: escaped("took descriptor", target)
denied("kcmp", 1, os.getpid(), 0, 0, 0)
done()`},
		{ID: "26-descriptors", Title: "descriptors besides the three standard ones", Claim: Always, Python: `
for fd in range(3, 4096):
    try: st = os.fstat(fd)
    except OSError: continue
    try: name = os.readlink("/proc/self/fd/%d" % fd)
    except OSError: name = "?"
    escaped("descriptor", fd, "is", name)
done()`},
		{ID: "26-environment", Title: "the daemon's environment", Claim: Always,
			Shell: `env; tr '\0' '\n' < /proc/$PPID/environ 2>&1; echo DONE`},
		{ID: "26-sockets", Title: "a socket of the daemon's or of a service in the file system", Claim: Files, Python: `
for where, dirs, names in os.walk("/"):
    dirs[:] = [d for d in dirs if os.path.join(where, d) not in ("/proc", "/sys", "/usr")]
    for n in names:
        path = os.path.join(where, n)
        try:
            if not stat.S_ISSOCK(os.lstat(path).st_mode): continue
        except OSError: continue
        for kind in [socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM]:
            with socket.socket(socket.AF_UNIX, kind) as s:
                s.settimeout(1)
                attempt("connect to " + path, s.connect, path)
done()`},
		{ID: "27-directory", Title: "start in a directory that a descriptor or a process outside has open", Claim: Files, Attack: strangeDirectory},
		{ID: "28-overwrite-agent", Title: "overwrite the file of the program that starts others", Claim: Files, NeedsPython: true, Attack: overwriteAgent},
		{ID: "29-terminal", Title: "type into the operator's terminal", Claim: Always, Python: `
import fcntl
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
attempt("open /dev/tty", os.open, "/dev/tty", os.O_RDWR)
for fd in range(3):
    for name, request in [("TIOCSTI", TIOCSTI), ("TIOCLINUX", TIOCLINUX)]:
        attempt("%s on %d" % (name, fd), fcntl.ioctl, fd, request, b"\n")
done()`},
		{ID: "30-new-privileges", Title: "gain privileges by set-user-ID programs or by asking", Claim: Rights, Python: `
status = dict(l.split(":", 1) for l in open("/proc/self/status") if ":" in l)
if status.get("NoNewPrivs", "?").strip() != "1": escaped("NoNewPrivs is", status.get("NoNewPrivs"))
for what, f in [("setuid", os.setuid), ("setgid", os.setgid)]:
    try: f(0)
    except OSError as e: held(what, why(e.errno))
if os.getuid() != 0: attempt("setgroups", os.setgroups, [0])
after = dict(l.split(":", 1) for l in open("/proc/self/status") if ":" in l)
if int(after["CapEff"], 16): escaped("capabilities after setuid:", after["CapEff"])
done()`},
	}
}

// daemon defines daemonize, which returns when the daemon lives.
const daemon = `
def daemonize(f):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for s in [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1]: signal.signal(s, signal.SIG_IGN)
            null = os.open("/dev/null", os.O_RDWR)
            for fd in range(3): os.dup2(null, fd)
            open("alive", "w").close()
            f()
        os._exit(0)
    os.wait()
    while not os.path.exists("alive"): time.sleep(0.01)
`

// program makes an Attack of one Python program. The sandbox is destroyed while processes of the
// program live.
func program(python string) func(context.Context, *Scene) error {
	return func(ctx context.Context, s *Scene) error {
		box, err := s.Box(ctx)
		if err != nil {
			return err
		}
		_, err = s.Program(ctx, box, python, "")
		if err == nil && len(carriers(s.token)) == 0 && s.seesInside() {
			return fmt.Errorf("the daemon was not there to begin with")
		}
		return err
	}
}

// seesInside reports whether the host's process table has the sandbox's programs. Those of a
// virtual machine are not in it.
func (s *Scene) seesInside() bool {
	switch s.Driver.Caps().Boundary {
	case driver.BoundaryNone, driver.BoundaryNamespaces, driver.BoundaryContainer:
		return true
	}
	return false
}

func forkBomb(ctx context.Context, s *Scene) error {
	box, err := s.Box(ctx)
	if err != nil {
		return err
	}
	out := &limitedBuffer{}
	stdin, release := io.Pipe()
	defer release.Close()
	p, err := s.Begin(ctx, box, `
limit, children = int(env("LIMIT_PIDS")), []
for i in range(2 * limit + 20):
    try: pid = os.fork()
    except OSError as e: held("fork", why(e.errno)); break
    if pid == 0:
        signal.pause(); os._exit(0)
    children.append(pid)
say("FORKED", len(children))
if len(children) + 1 > limit: escaped(len(children) + 1, "processes under a limit of", limit)
sys.stdin.read()
for pid in children: os.kill(pid, signal.SIGKILL)
done()`, stdin, out)
	if err != nil {
		return err
	}
	if err := awaitText(ctx, out, "FORKED"); err != nil {
		return err
	}
	if err := exec.CommandContext(ctx, "true").Run(); err != nil {
		s.Escape("the host cannot start a program: %v", err)
	}
	release.Close()
	res, err := wait(ctx, p)
	s.listen(out.String(), res)
	return err
}

// forkChain starts a chain of processes, each of which forks the next and exits, and leaves it
// running for Destroy. The chain ends itself after some time if Destroy does not.
func forkChain(before string) func(context.Context, *Scene) error {
	return func(ctx context.Context, s *Scene) error {
		box, err := s.Box(ctx)
		if err != nil {
			return err
		}
		out := &limitedBuffer{}
		_, err = s.Begin(ctx, box, `
end = time.time() + 20
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
say("READY")
`+before+`
first = os.getpid()
while time.time() < end:
    try:
        if os.fork():
            if os.getpid() == first: time.sleep(60)
            os._exit(0)
    except OSError: pass
`, nil, out)
		if err != nil {
			return err
		}
		return awaitText(ctx, out, "READY")
	}
}

func signalInit(ctx context.Context, s *Scene) error {
	box, err := s.Box(ctx)
	if err != nil {
		return err
	}
	// A signal for which init has no handler is accepted and ignored (pid_namespaces(7)), so the
	// check is that the sandbox works afterwards.
	if _, err := s.Program(ctx, box, `
if host_visible(): escaped("processes of the host are visible"); done(); sys.exit()
for sig in range(1, signal.NSIG):
    try: os.kill(1, sig)
    except OSError as e: held("signal", sig, why(e.errno))
for sig in list(range(1, signal.NSIG)) * 50: # some may arrive while it handles another
    try: os.kill(1, sig)
    except OSError: pass
done()`, ""); err != nil {
		return err
	}
	if text, err := s.Program(ctx, box, "", "echo DONE"); err != nil {
		s.Escape("after signals to its first process the sandbox runs nothing more: %v %s", err, text)
	}
	return nil
}

func strangeDirectory(ctx context.Context, s *Scene) error {
	box, err := s.Box(ctx)
	if err != nil {
		return err
	}
	dirs := []string{"/proc/1/cwd", "/proc/1/root", "/proc/self/root", "/proc/self/cwd", "/proc/thread-self/root"}
	for fd := range 24 {
		dirs = append(dirs, fmt.Sprintf("/proc/self/fd/%d", fd), fmt.Sprintf("/proc/1/fd/%d", fd), fmt.Sprintf("/dev/fd/%d", fd))
	}
	up := strings.Repeat("../", 20)
	for _, dir := range dirs {
		out := &limitedBuffer{}
		p, err := box.Start(ctx, sandbar.Cmd{Dir: dir, Args: []string{"cat", up + s.Bait.File[1:], s.Bait.File[1:]}}, driver.Stdio{Stdout: out, Stderr: out})
		if err != nil {
			continue
		}
		res, err := wait(ctx, p)
		if err != nil {
			return err
		}
		s.listen(out.String(), res)
	}
	return nil
}

func overwriteAgent(ctx context.Context, s *Scene) error {
	before, err := digestSelf()
	if err != nil {
		return err
	}
	box, err := s.Box(ctx)
	if err != nil {
		return err
	}
	if _, err := s.Program(ctx, box, `
for pid in pids():
    attempt("open the file of %d for writing" % pid, lambda: os.close(os.open("/proc/%d/exe" % pid, os.O_WRONLY)))
for name, line in [("again", "#!/proc/self/exe\n"), ("again1", "#!/proc/1/exe\n")]:
    open(name, "w").write(line); os.chmod(name, 0o755)
done()`, ""); err != nil {
		return err
	}
	for _, script := range []string{"./again", "./again1"} {
		// The process that starts others is made to start itself. It must end with the sandbox in
		// any case.
		p, err := box.Start(ctx, sandbar.Cmd{Args: []string{script}}, driver.Stdio{})
		if err != nil {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		wait(bounded, p)
		cancel()
	}
	if after, err := digestSelf(); err != nil || after != before {
		s.Escape("this program's own file was overwritten")
	}
	return nil
}

// digestSelf returns the digest of this program's executable.
func digestSelf() (sum [sha256.Size]byte, err error) {
	path, err := os.Executable()
	if err != nil {
		return sum, err
	}
	f, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	return sum, nil
}
