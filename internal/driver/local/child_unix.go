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

// child is a program that is a child of this process and leads its own
// session and process group.
type child struct {
	id    int
	floor int64 // see peakOf

	mu    sync.Mutex // held to reap, so that id names this child while held
	ended bool
}

// pid is the program's number; it may be another's once wait has returned.
func (c *child) pid() int { return c.id }

// wait blocks until the program has ended and reaps it. It is called once.
func (c *child) wait() (ending, error) {
	if err := awaitEnd(c.id); err != nil {
		return ending{outcome: sandbar.Lost}, sandbar.Errorf(sandbar.Internal, "waiting for process %d: %w", c.id, err)
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
			return ending{outcome: sandbar.Lost}, sandbar.Errorf(sandbar.Internal, "reaping process %d: %w", c.id, err)
		}
	}
}

func endingOf(w syscall.WaitStatus, ru *syscall.Rusage, floor int64) ending {
	e := ending{
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

// lingers reports whether the child must be remembered after its end. Here
// what it left behind is found by its mark.
func (c *child) lingers() bool { return false }

// signal sends a signal to the group; after the program's end it does nothing.
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

// kill ends the whole group.
func (c *child) kill() { c.signal(int(syscall.SIGKILL)) }

// blocking returns the descriptors for a child. A pipe of package os does not
// block, which programs do not expect of their standard streams.
func blocking(files [3]*os.File) []uintptr {
	fds := make([]uintptr, len(files))
	for i, f := range files {
		fds[i] = f.Fd()
		syscall.SetNonblock(int(fds[i]), false)
	}
	return fds
}

// sealDescriptors makes the descriptors that this process was itself given
// close on exec. Go makes its own so; those from before it are not, and
// programs would inherit them.
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

// pending is how many bytes can be read from a pipe without waiting.
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

// executable checks that path can be executed by this user.
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

// newLock makes a locked file. It gets its name when it is locked, so that
// nobody finds it unlocked.
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

// lockFile opens and locks a file. The lock is the process's: it goes when the
// process does, however that ends.
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
