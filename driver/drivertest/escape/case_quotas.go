package escape

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// quotaCases are number 94: kernel limits per user.
func quotaCases() []Case {
	return []Case{
		{ID: "94-user-quotas", Title: "exhaust the kernel's limits per user: inotify, message queues, pending signals", Claim: Quotas, NeedsPython: true,
			Attack: userQuotas},
	}
}

// quotas defines take, which allocates one object of a kind, or raises OSError if the limit is
// reached.
const quotas = `
def check(r):
    if r < 0: e = ctypes.get_errno(); raise OSError(e, os.strerror(e))
    return r
pending = signal.SIGRTMIN + 5
signal.pthread_sigmask(signal.SIG_BLOCK, [pending])
files, notify = iter(()), -1
def instance(n): check(libc.inotify_init1(0))
def watch(n):
    global files, notify
    if n == 0:
        notify = check(libc.inotify_init1(0))
        files = (os.path.join(d, f).encode() for top in [HOME, "/usr", "/bin", "/etc"] for d, dirs, names in os.walk(top) for f in ["."] + names)
    for f in files:
        if check(libc.inotify_add_watch(notify, f, 2)) > n: return # else it was there
    raise OSError(2, "no more files")
def queue(n):
    name = b"/escape-%d-%d" % (os.getpid(), n)
    check(libc.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, None)); libc.mq_unlink(name)
def queued(n): check(libc.sigqueue(os.getpid(), pending, None))
# Other errors say that a sandbox has none of a kind at all.
none_left = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EAGAIN, errno.EDQUOT}
kinds = [("inotify watch", watch, 20000), ("inotify instance", instance, 1000), ("message queue", queue, 200), ("pending signal", queued, 200000)]
`

// userQuotas reaches each limit in one sandbox. Then another sandbox and this process of the host
// must be able to allocate one object of each kind.
func userQuotas(ctx context.Context, s *Scene) error {
	greedy, err := s.Box(ctx)
	if err != nil {
		return err
	}
	in, hold := io.Pipe()
	defer hold.Close()
	if err := takeQuotas(); err != nil {
		return fmt.Errorf("the host has none left to begin with: %w", err)
	}
	out := &limitedBuffer{}
	p, err := s.Begin(ctx, greedy, quotas+`
for what, take, most in kinds:
    n = 0
    try:
        while n < most: take(n); n += 1
    except OSError as e: say(what, n, why(e.errno))
    else: say(what, n)
say("READY")
sys.stdin.read()
done()`, in, out)
	if err != nil {
		return err
	}
	if err := awaitText(ctx, out, "READY"); err != nil {
		return err
	}
	neighbour, err := s.Box(ctx)
	if err != nil {
		s.Escape("no sandbox can be made: %v", err)
		return nil
	}
	_, err = s.Program(ctx, neighbour, quotas+`
for what, take, most in kinds:
    try: take(0)
    except OSError as e: (escaped if e.errno in none_left else held)("a neighbour has no", what, why(e.errno))
done()`, "")
	if herr := takeQuotas(); herr != nil {
		s.Escape("this user of the host has none: %v", herr)
	}
	hold.Close()
	res, werr := wait(ctx, p)
	s.listen(out.String(), res)
	return errors.Join(err, werr)
}
