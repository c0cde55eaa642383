package local

import (
	"math"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// spawner starts programs. This system has no parent-death signal and cannot set another process's
// limits, so the type has no state.
type spawner struct{}

func newSpawner() (*spawner, error) { return &spawner{}, sealDescriptors() }

func (s *spawner) close() {}

func (s *spawner) setsLimits() bool { return false }

// start starts a program in a session of its own.
func (s *spawner) start(l launch, std [3]*os.File) (*child, error) {
	pid, err := syscall.ForkExec(l.path, l.args, &syscall.ProcAttr{
		Dir:   l.dir,
		Env:   l.env,
		Files: blocking(std),
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	runtime.KeepAlive(std)
	if err != nil {
		return nil, err
	}
	return &child{id: pid}, nil
}

func maxFiles() int64 { return math.MaxInt64 }

// peakOf returns a child's peak memory in bytes, which is the unit of ru_maxrss on this system.
func peakOf(ru *syscall.Rusage, floor int64) int64 { return ru.Maxrss }

// awaitEnd blocks until the child has exited, and leaves it to be reaped, so that its pid stays
// valid.
func awaitEnd(pid int) error {
	kq, err := unix.Kqueue()
	if err != nil {
		return err
	}
	defer unix.Close(kq)
	unix.CloseOnExec(kq)
	event := unix.Kevent_t{Ident: uint64(pid), Filter: unix.EVFILT_PROC, Flags: unix.EV_ADD, Fflags: unix.NOTE_EXIT}
	got := make([]unix.Kevent_t, 1)
	for {
		n, err := unix.Kevent(kq, []unix.Kevent_t{event}, got, nil)
		switch {
		case err == unix.EINTR:
		case err == unix.ESRCH: // exited before it could be watched
			return nil
		case err != nil:
			return err
		case n == 1 && got[0].Flags&unix.EV_ERROR != 0:
			if e := unix.Errno(got[0].Data); e != unix.ESRCH {
				return e
			}
			return nil
		case n == 1:
			return nil
		}
	}
}

const defaultPath = "/usr/local/bin:/usr/bin:/bin"

var (
	inheritedBySystem = []string(nil)
	homeNames         = []string{"HOME"}
	tmpNames          = []string{"TMPDIR"}
)

// pendingRequest is FIONREAD of sys/filio.h.
const pendingRequest = 0x4004667f
