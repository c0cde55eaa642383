package local

import (
	"errors"
	"math"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// spawner starts programs from one thread of its own. The kernel ties two
// things to the thread that forks: the parent-death signal is sent when that
// thread ends (Go ends threads as it likes), and only that thread may command
// a child it traces.
type spawner struct {
	work   chan func()
	ended  chan struct{}
	traces bool
}

func newSpawner() (*spawner, error) {
	if err := sealDescriptors(); err != nil {
		return nil, err
	}
	s := &spawner{work: make(chan func()), ended: make(chan struct{})}
	go s.loop()
	s.do(func() { s.traces = probeTrace() })
	return s, nil
}

func (s *spawner) loop() {
	defer close(s.ended)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for f := range s.work {
		f()
	}
}

// do runs f on the spawner's thread.
func (s *spawner) do(f func()) {
	done := make(chan struct{})
	s.work <- func() { defer close(done); f() }
	<-done
}

// close ends the thread. No start may be under way or follow.
func (s *spawner) close() {
	close(s.work)
	<-s.ended
}

// setsLimits reports whether rlimits can be set before a program runs.
func (s *spawner) setsLimits() bool { return s.traces }

// probeTrace finds out whether this process may trace its children: it starts
// itself, stopped at exec, and kills that child before its first instruction.
func probeTrace() bool {
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"sandbar-probe"}, &syscall.ProcAttr{
		Sys: &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return false
	}
	err = awaitExec(pid)
	syscall.Kill(pid, syscall.SIGKILL)
	for {
		if _, werr := syscall.Wait4(pid, nil, 0, nil); werr != syscall.EINTR {
			return err == nil
		}
	}
}

// awaitExec waits until a traced child has stopped at its exec. A child that
// was killed instead is left to be reaped, and is ESRCH.
func awaitExec(pid int) error {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT|unix.WALL, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if info.Code != cldTrapped {
			return unix.ESRCH
		}
		return nil
	}
}

// cldTrapped is CLD_TRAPPED of waitid(2).
const cldTrapped = 4

// busyTries bounds how often a program file that is "busy" is tried again.
// Another child, forked while the file was being written, holds it open until
// that child's own exec, a moment later.
const busyTries = 20

// start starts a program in a session of its own.
func (s *spawner) start(l launch, std [3]*os.File) (c *child, err error) {
	s.do(func() {
		for try := 0; ; try++ {
			c, err = s.fork(l, std)
			if !errors.Is(err, syscall.ETXTBSY) || try == busyTries {
				return
			}
			time.Sleep(time.Duration(try) * time.Millisecond)
		}
	})
	return c, err
}

func (s *spawner) fork(l launch, std [3]*os.File) (*child, error) {
	pid, err := syscall.ForkExec(l.path, l.args, &syscall.ProcAttr{
		Dir:   l.dir,
		Env:   l.env,
		Files: blocking(std),
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Ptrace: s.traces},
	})
	runtime.KeepAlive(std)
	if err != nil {
		return nil, err
	}
	c := &child{id: pid, floor: ownPeak()}
	if s.traces {
		if err := s.release(pid, l.files); err != nil {
			c.kill()
			c.wait()
			return nil, err
		}
	}
	return c, nil
}

// release sets the limits of a child that is stopped at its exec and lets it
// run. A child that somebody killed already is not an error; its end is seen
// by wait.
func (s *spawner) release(pid int, files int64) error {
	if err := awaitExec(pid); err == unix.ESRCH {
		return nil
	} else if err != nil {
		return err
	}
	// 1, not 0: where core dumps go to a program, the kernel starts that
	// program for a limit of 0 but not for 1; and no file fits in 1.
	limits := []rlimit{{unix.RLIMIT_CORE, 1}}
	if files > 0 {
		limits = append(limits, rlimit{unix.RLIMIT_NOFILE, uint64(files)})
	}
	for _, l := range limits {
		if err := l.set(pid); err != nil && err != unix.ESRCH {
			return err
		}
	}
	if err := syscall.PtraceDetach(pid); err != nil && err != syscall.ESRCH {
		return err
	}
	return nil
}

// rlimit is a limit to set, never above what the daemon itself has.
type rlimit struct {
	resource int
	max      uint64
}

func (l rlimit) set(pid int) error {
	var now unix.Rlimit
	if err := unix.Prlimit(pid, l.resource, nil, &now); err != nil {
		return err
	}
	if l.resource == unix.RLIMIT_CORE {
		l.max = min(l.max, now.Max)
	}
	return unix.Prlimit(pid, l.resource, &unix.Rlimit{Cur: l.max, Max: l.max}, nil)
}

// maxFiles is the most open files that a program can be allowed.
func maxFiles() int64 {
	var l unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &l); err != nil || l.Max > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(l.Max)
}

// ownPeak is the most memory this process ever held, in bytes.
func ownPeak() int64 {
	var ru syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &ru) != nil {
		return math.MaxInt64
	}
	return ru.Maxrss << 10
}

// peakOf takes the peak from a child's usage. A child is born with the
// daemon's own peak, since it shares the daemon's memory until its exec; a
// value that is not above it says nothing about the program: 0, unknown.
func peakOf(ru *syscall.Rusage, floor int64) int64 {
	if peak := ru.Maxrss << 10; peak > floor {
		return peak
	}
	return 0
}

// awaitEnd blocks until the child has ended and leaves it to be reaped, so
// that its number stays its own.
func awaitEnd(pid int) error {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT|unix.WALL, nil); err != unix.EINTR {
			return err
		}
	}
}

const defaultPath = "/usr/local/bin:/usr/bin:/bin"

var (
	inheritedBySystem = []string(nil)
	homeNames         = []string{"HOME"}
	tmpNames          = []string{"TMPDIR"}
)

// pendingRequest asks a pipe how much it holds.
const pendingRequest = unix.TIOCINQ
