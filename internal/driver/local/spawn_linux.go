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

// spawner starts programs from a thread of its own. The kernel binds two things to the forking
// thread: it sends the parent-death signal when that thread exits (prctl(2); Go ends threads at any
// time), and only that thread can control a traced child (ptrace(2)).
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

// close ends the thread. No start may be in progress or follow.
func (s *spawner) close() {
	close(s.work)
	<-s.ended
}

// setsLimits reports whether rlimits can be set before a program runs.
func (s *spawner) setsLimits() bool { return s.traces }

// probeTrace reports whether this process can trace its children: it starts itself, stopped at
// execve(2), and kills that child before its first instruction.
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

// awaitExec waits until a traced child has stopped at its execve(2). A child that was killed
// instead is left to be reaped, and is ESRCH.
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

// busyTries bounds the retries after ETXTBSY. Another child, which was forked while the executable
// was being written, has it open until its own execve(2), a moment later.
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

// release sets the limits of a child that is stopped at execve(2) and detaches from it. A child
// that was killed meanwhile is no error; wait reports its end.
func (s *spawner) release(pid int, files int64) error {
	if err := awaitExec(pid); err == unix.ESRCH {
		return nil
	} else if err != nil {
		return err
	}
	// 1 and not 0: if core_pattern is a pipe, the kernel runs the handler at 0 but not at 1, and no
	// core file fits into 1 byte (core(5)).
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

// rlimit is a limit to set, at most the daemon's own.
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

// maxFiles returns the highest limit of open files that a program can have.
func maxFiles() int64 {
	var l unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &l); err != nil || l.Max > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(l.Max)
}

// ownPeak returns this process's peak memory in bytes.
func ownPeak() int64 {
	var ru syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &ru) != nil {
		return math.MaxInt64
	}
	return ru.Maxrss << 10
}

// peakOf returns a child's peak memory in bytes. A child starts with the daemon's peak, since it
// shares the daemon's memory until execve(2). So a value up to floor says nothing about the
// program, and the result is 0, unknown.
func peakOf(ru *syscall.Rusage, floor int64) int64 {
	if peak := ru.Maxrss << 10; peak > floor {
		return peak
	}
	return 0
}

// awaitEnd blocks until the child has exited, and leaves it to be reaped, so that its pid stays
// valid.
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

// pendingRequest is the ioctl for the number of bytes in a pipe.
const pendingRequest = unix.TIOCINQ
