package escape

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/sandbar-dev/sandbar"
)

// resourceCases are numbers 31 to 42. Each uses at most a small multiple of its limit, so that a
// missing limit does not harm the host.
func resourceCases() []Case {
	memory := sandbar.Limits{Memory: 64 << 20}
	return []Case{
		{ID: "31-memory", Title: "memory without end", Claim: Memory, Leaks: true, Limits: memory, MayDie: true, Python: hog + `
kept = []
def more(): kept.append(b"x" * STEP)
take("memory", more)
done()`},
		{ID: "31-memory-children", Title: "memory, spread over many processes", Claim: Memory, Limits: memory, MayDie: true, Python: hog + `
ends = [os.pipe() for i in range(8)]
def child(w):
    kept = b"x" * (3 * LIMIT // 8); os.write(w, b"1"); os.close(w); time.sleep(10); os._exit(len(kept) & 0)
pids_ = []
for r, w in ends:
    pid = os.fork()
    if pid == 0: child(w)
    pids_.append(pid); os.close(w)
got = sum(os.read(r, 1) == b"1" for r, w in ends)
time.sleep(3) # a watchdog measures at intervals
alive = sum(os.waitpid(p, os.WNOHANG) == (0, 0) for p in pids_)
say(got, "children took their share,", alive, "are alive")
if alive * (3 * LIMIT // 8) > LIMIT * 5 // 4: escaped("the children hold", alive * (3 * LIMIT // 8), "bytes under a limit of", LIMIT)
for p in pids_: os.kill(p, signal.SIGKILL)
done()`},
		{ID: "32-shm", Title: "memory as files in /dev/shm", Claim: Memory, Limits: memory, MayDie: true, Python: hog + `
try: f = open("/dev/shm/escape-hog", "wb", buffering=0)
except OSError as e: held("open", why(e.errno))
else: take("/dev/shm", lambda: f.write(b"x" * STEP)); os.unlink("/dev/shm/escape-hog")
done()`},
		{ID: "32-tmpfs", Title: "memory as files in every tmpfs that can be written", Claim: Memory, Limits: memory, MayDie: true, Python: hog + `
files = []
for line in open("/proc/self/mounts"):
    where, kind = line.split()[1:3]
    if kind != "tmpfs": continue
    try: files.append(open(os.path.join(where, "escape-hog"), "wb", buffering=0))
    except OSError: pass
def more():
    for f in list(files):
        try: f.write(b"x" * STEP); return
        except OSError as e: held(f.name, why(e.errno)); files.remove(f)
    raise OSError(28, "full")
take("tmpfs", more)
done()`},
		{ID: "32-memfd", Title: "memory as anonymous files", Claim: Memory, Limits: memory, MayDie: true, Python: hog + `
try: fd = os.memfd_create("hog")
except OSError as e: held("memfd_create", why(e.errno))
else: take("memfd", lambda: os.write(fd, b"x" * STEP))
done()`},
		{ID: "32-sysv", Title: "memory as System V segments", Claim: Memory, Limits: memory, MayDie: true, Python: hog + `
libc.shmat.restype = ctypes.c_void_p
def more():
    seg = libc.shmget(0, ctypes.c_size_t(STEP), 0o1600)
    if seg < 0: raise OSError(ctypes.get_errno(), "shmget")
    at = libc.shmat(seg, None, 0)
    libc.shmctl(seg, 0, None) # gone with its last user
    if at is None or at == ctypes.c_void_p(-1).value: raise OSError(ctypes.get_errno(), "shmat")
    ctypes.memset(at, 120, STEP)
take("segments", more)
done()`},
		{ID: "32-pipes", Title: "memory as unread pipes", Claim: Memory, Limits: memory, MayDie: true, Python: hog + `
import fcntl
F_SETPIPE_SZ = 1031
pipes = []
def more():
    r, w = os.pipe(); pipes.append((r, w))
    try: fcntl.fcntl(w, F_SETPIPE_SZ, STEP)
    except OSError: pass
    os.set_blocking(w, False)
    n = 0
    try:
        while n < STEP: n += os.write(w, b"x" * (STEP - n))
    except BlockingIOError: pass
    return n
take("pipes", more)
done()`},
		{ID: "33-thrash", Title: "push pages in and out without end, next to a neighbour", Claim: Memory, NeedsPython: true, Limits: memory, Attack: thrash},
		{ID: "34-cpu", Title: "many busy processes under a share of a tenth", Claim: CPUs, Leaks: true, NeedsPython: true, Limits: sandbar.Limits{CPUs: 0.1}, Attack: spin},
		{ID: "34-realtime", Title: "priority over other processes", Claim: Kernel, Python: `
attempt("SCHED_FIFO", os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))
attempt("SCHED_RR", os.sched_setscheduler, 0, os.SCHED_RR, os.sched_param(1))
attempt("nice -20", os.nice, -20)
done()`},
		{ID: "35-disk", Title: "fill all directories that can be written", Claim: Disk, Leaks: true, Limits: sandbar.Limits{Disk: 4 << 20}, MayDie: true, Python: writable + `
limit, total, files = int(env("LIMIT_DISK")), 0, []
for where in places():
    try: f = open(os.path.join(where, "escape-fill"), "wb", buffering=0)
    except OSError: continue
    files.append(f)
    try:
        while total < 3 * limit: total += f.write(b"x" * 65536)
    except OSError as e: held(where, why(e.errno))
say("wrote", total)
if total > limit * 5 // 4: escaped("wrote", total, "bytes under a limit of", limit)
for name in {os.path.realpath(f.name) for f in files}: os.unlink(name)
done()`},
		{ID: "35-fallocate", Title: "reserve more than the disk, in a sparse file", Claim: Disk, Leaks: true, Limits: sandbar.Limits{Disk: 4 << 20}, Python: `
limit = int(env("LIMIT_DISK"))
fd = os.open("sparse", os.O_RDWR | os.O_CREAT)
try: os.ftruncate(fd, 1 << 40)
except OSError as e: held("truncate", why(e.errno))
os.ftruncate(fd, 0)
attempt("fallocate", os.posix_fallocate, fd, 0, 3 * limit)
os.unlink("sparse")
done()`},
		{ID: "35-inodes", Title: "empty files without end", Claim: Inodes, Leaks: true, Limits: sandbar.Limits{Inodes: 256}, Python: writable + `
limit, n = int(env("LIMIT_INODES")), 0
for where in places():
    try: os.mkdir(os.path.join(where, "escape-many"))
    except OSError: continue
    try:
        while n < 3 * limit: os.close(os.open(os.path.join(where, "escape-many", str(n)), os.O_CREAT | os.O_WRONLY)); n += 1
    except OSError as e: held(where, why(e.errno))
say("made", n)
if n > limit * 5 // 4: escaped("made", n, "files under a limit of", limit)
done()`},
		{ID: "36-descriptors", Title: "descriptors without end", Claim: Descriptors, Leaks: true, Limits: sandbar.Limits{Files: 64}, Python: `
limit, kept = int(env("LIMIT_FILES")), []
try:
    while len(kept) < 4 * limit: kept.append(os.open("/dev/null", os.O_RDONLY))
except OSError as e: held("open", why(e.errno))
if len(kept) > limit: escaped(len(kept), "descriptors under a limit of", limit)
done()`},
		{ID: "36-raise", Title: "raise the limits of this process", Claim: Kernel, Limits: sandbar.Limits{Files: 64}, Python: `
import resource
for name in ["NOFILE", "NPROC", "CORE", "MEMLOCK", "AS", "FSIZE", "RTPRIO", "NICE", "SIGPENDING", "MSGQUEUE"]:
    what = getattr(resource, "RLIMIT_" + name, None)
    if what is None: continue
    soft, hard = resource.getrlimit(what)
    if hard == resource.RLIM_INFINITY: continue
    try: resource.setrlimit(what, (soft, hard + 1))
    except (OSError, ValueError) as e: held(name, e); continue
    now = resource.getrlimit(what)[1] # a filter may say yes and do nothing
    if now > hard or now == resource.RLIM_INFINITY: escaped("raised", name, "from", hard, "to", now)
done()`},
		{ID: "42-core", Title: "a core dump handed to the host's handler", Claim: Kernel, Python: `
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
if hard > 1 or hard == resource.RLIM_INFINITY: escaped("core files may have", hard, "bytes")
before = set(os.listdir("."))
for sig in [signal.SIGABRT, signal.SIGSEGV]:
    def crash():
        signal.signal(sig, signal.SIG_DFL); os.kill(os.getpid(), sig); time.sleep(1)
    status = apart(crash)
    if os.WIFSIGNALED(status) and os.WCOREDUMP(status): escaped("signal", int(sig), "dumped core")
for name in set(os.listdir(".")) - before: escaped("there is a file", name)
done()`},
	}
}

// hog defines take, which allocates step by step up to three times the limit.
const hog = `
LIMIT, STEP = int(env("LIMIT_MEMORY")), 1 << 20
def take(what, more):
    total = 0
    try:
        while total < 3 * LIMIT:
            n = more()
            total += n if isinstance(n, int) else STEP
            if n == 0: break
    except (OSError, MemoryError) as e: held(what, why(getattr(e, "errno", "no memory")))
    say("took", total)
    # A watchdog measures at intervals, which are longer on a busy host.
    if total > LIMIT * 5 // 4: time.sleep(3); escaped("took", total, "bytes of", what, "under a limit of", LIMIT)
`

// writable defines places: the home directory first, then all other writable directories.
const writable = `
def places():
    seen = []
    for where in [HOME, env("TMPDIR", "/tmp"), "/tmp", "/var/tmp", "/dev/shm", "/run", "/dev", "/dev/mqueue"] + [l.split()[1] for l in open("/proc/self/mounts")]:
        if where not in seen and os.path.isdir(where) and os.access(where, os.W_OK): seen.append(where)
    return seen
`

// storm uses half its memory again and again while it reads more files than the other half can
// cache, until its input ends.
const storm = `
import mmap, select
LIMIT, PAGE = int(env("LIMIT_MEMORY")), 4096
memory = mmap.mmap(-1, LIMIT // 2)
def files():
    while True:
        for where, _, names in os.walk("/usr/lib"):
            for name in names:
                path = os.path.join(where, name)
                try:
                    if os.path.isfile(path) and not os.path.islink(path): yield path
                except OSError: pass
say("READY")
rounds = 0
for path in files():
    if select.select([0], [], [], 0)[0]: break
    try:
        with open(path, "rb", buffering=0) as f:
            while f.read(1 << 20): pass
    except OSError: pass
    for at in range(rounds % 2 * PAGE, LIMIT // 2, 2 * PAGE): memory[at] = rounds & 255
    rounds += 1
done()`

// thrash runs a storm in one sandbox and programs in another. All programs must end with the right
// result, and the storm must stay within its limit. Their duration depends on the host and is not
// checked.
func thrash(ctx context.Context, s *Scene) error {
	box, err := s.Box(ctx)
	if err != nil {
		return err
	}
	neighbour, err := s.Box(ctx)
	if err != nil {
		return err
	}
	in, end := io.Pipe()
	defer end.Close()
	out := &limitedBuffer{}
	p, err := s.Begin(ctx, box, storm, in, out)
	if err != nil {
		return err
	}
	if err := awaitText(ctx, out, "READY"); err != nil {
		return err
	}
	for i := range 100 {
		text, err := s.Program(ctx, neighbour, "", fmt.Sprintf(`i=%d; while [ $i -lt 2000 ]; do i=$((i+1)); done; echo "$i"; echo DONE`, i))
		if err != nil || text != "2000\nDONE\n\n" {
			s.Escape("the neighbour of a storm: %v, %s", err, sandbar.Quote(text, 100))
		}
	}
	end.Close()
	res, err := wait(ctx, p)
	s.listen(out.String(), res)
	if err != nil {
		return err
	}
	if most := s.Case.Limits.Memory * 5 / 4; res.PeakMemory > most {
		s.Escape("the storm had %d bytes at a time under a limit of %d", res.PeakMemory, s.Case.Limits.Memory)
	}
	if res.Outcome != sandbar.Exited && res.Outcome != sandbar.OutOfMemory && res.Outcome != sandbar.Signaled {
		return errors.New("the storm was lost")
	}
	return nil
}

// spinner keeps all processors busy with many processes, so that without a limit it gets a large
// share of a busy host too. First it prints the processor time it had before, for its start.
const spinner = `
say("STARTED %.6f" % time.process_time())
start, busy = time.time(), []
for i in range(12):
    pid = os.fork()
    if pid == 0:
        while time.time() < start + 1.5: pass
        os._exit(0)
    busy.append(pid)
for pid in busy: os.waitpid(pid, 0)
done()`

// enoughShare is more than a tenth of a processor, without the quota of a first period.
const enoughShare = 0.15

// spin runs a spinner. The driver reports its processor time. A kernel in user space reports how
// long its programs wanted to run, and not how long they ran on the host. If an interpreter was
// started ahead, its start is in the processor time, and not in the duration: so it is subtracted.
func spin(ctx context.Context, s *Scene) error {
	box, err := s.Box(ctx)
	if err != nil {
		return err
	}
	// The best of several attempts counts: on a busy host a program may get little although there
	// is no limit. If the driver claims no limit, attempts continue until one exceeds enoughShare.
	tries, most := 3, 0.0
	if !s.Case.Claim.Claimed(s.Driver.Caps()) {
		tries = 30
	}
	for range tries {
		if most > enoughShare {
			break
		}
		out := &limitedBuffer{}
		p, err := s.Begin(ctx, box, spinner, nil, out)
		if err != nil {
			return err
		}
		res, err := wait(ctx, p)
		s.listen(out.String(), res)
		if err != nil {
			return err
		}
		if res.Outcome != sandbar.Exited || res.ExitCode != 0 {
			return fmt.Errorf("the spinner ended with %v, exit code %d: %s", res.Outcome, res.ExitCode, sandbar.Quote(out.String(), 200))
		}
		var started float64
		if n, err := fmt.Sscanf(out.String(), "STARTED %f\n", &started); n != 1 {
			return fmt.Errorf("the spinner did not print its processor time, but %s: %w", sandbar.Quote(out.String(), 200), err)
		}
		most = max(most, (res.CPUTime.Seconds()-started)/res.Duration.Seconds())
	}
	if most > enoughShare {
		s.Escape("it had %.2f processors", most)
	}
	return nil
}
