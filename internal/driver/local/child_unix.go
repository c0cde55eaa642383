//go:build unix

package local

import (
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// child is a child process that leads its own session and process group.
type child struct {
	id    int
	floor int64 // see peakOf

	mu    sync.Mutex // held to reap: while it is held, id names this child
	ended bool
}

// pid returns the process id. After wait has returned it may belong to another process.
func (c *child) pid() int { return c.id }

// wait blocks until the program has exited and reaps it. It must be called once.
func (c *child) wait() (exitStatus, error) {
	if err := awaitEnd(c.id); err != nil {
		return exitStatus{outcome: sandbar.Lost}, sandbar.Errorf(sandbar.Internal, "waiting for process %d: %w", c.id, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	var status syscall.WaitStatus
	var usage syscall.Rusage
	for {
		_, err := syscall.Wait4(c.id, &status, 0, &usage)
		if err == nil {
			return endingOf(status, &usage, c.floor), nil
		}
		if err != syscall.EINTR {
			return exitStatus{outcome: sandbar.Lost}, sandbar.Errorf(sandbar.Internal, "reaping process %d: %w", c.id, err)
		}
	}
}

func endingOf(w syscall.WaitStatus, ru *syscall.Rusage, floor int64) exitStatus {
	e := exitStatus{
		cpu:  time.Duration(ru.Utime.Nano() + ru.Stime.Nano()),
		peak: peakOf(ru, floor),
	}
	if w.Signaled() {
		e.outcome, e.signal = sandbar.Signaled, int(w.Signal())
	} else {
		e.outcome, e.code = sandbar.Exited, w.ExitStatus()
	}
	return e
}

// lingers reports whether the child must be remembered after its end. Here its descendants are
// found by their tag, so it need not.
func (c *child) lingers() bool { return false }

// signal signals the process group. After the program's end it does nothing.
func (c *child) signal(sig int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil
	}
	switch err := syscall.Kill(-c.id, syscall.Signal(sig)); err {
	case nil, syscall.ESRCH:
		return nil
	case syscall.EPERM:
		return sandbar.Errorf(sandbar.Denied, "process %d may not be signalled: it has changed its user", c.id)
	default:
		return sandbar.Errorf(sandbar.Internal, "signal %d to process %d: %w", sig, c.id, err)
	}
}

// kill kills the process group.
func (c *child) kill() { c.signal(int(syscall.SIGKILL)) }

// blocking returns the descriptors for a child, in blocking mode. Pipes of package os are
// non-blocking, which programs do not expect of their standard streams.
func blocking(files [3]*os.File) []uintptr {
	fds := make([]uintptr, len(files))
	for i, f := range files {
		fds[i] = f.Fd()
		syscall.SetNonblock(int(fds[i]), false)
	}
	return fds
}

// sealDescriptors sets close-on-exec on the descriptors that this process has inherited. Go sets it
// only on those that it opens itself.
func sealDescriptors() error {
	names, err := os.ReadDir("/dev/fd")
	if err != nil {
		return sandbar.Errorf(sandbar.Internal, "listing the daemon's descriptors: %w", err)
	}
	for _, n := range names {
		if fd, err := strconv.Atoi(n.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}

// pending returns the number of bytes in a pipe (FIONREAD).
func pending(f *os.File) int {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	conn.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), pendingRequest) })
	if err != nil {
		return 0
	}
	return n
}

// executable checks that this user can execute path.
func executable(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.IsDir() {
		return "", syscall.EACCES
	}
	return path, unix.Access(path, unix.X_OK)
}

// newLock creates a locked file. The file is locked before it gets its name, so that no process
// sees it unlocked.
func newLock(path string) (*os.File, error) {
	young := path + ".new"
	if f, err := os.OpenFile(young, os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	} else if err := f.Close(); err != nil {
		return nil, err
	}
	f, err := lockFile(young)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(young, path); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// lockFile opens and locks a file. The kernel releases the lock at the end of the process.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
