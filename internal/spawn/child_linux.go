package spawn

import (
	"context"
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// Child is an agent. It is the spawner's child, not this process's, and the
// kernel reaps it: everything is done by its pidfd, which never comes to mean
// another process, as its number could.
type Child struct {
	pid  int
	file *os.File // the pidfd
	raw  syscall.RawConn
}

// newChild takes over a pidfd.
func newChild(pid, pidfd int) (*Child, error) {
	err := unix.SetNonblock(pidfd, true) // so that the runtime waits for it, and no thread
	c := &Child{pid: pid, file: os.NewFile(uintptr(pidfd), "agent")}
	if err == nil {
		c.raw, err = c.file.SyscallConn()
	}
	if err != nil {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
		c.file.Close()
		return nil, sandbar.Errorf(sandbar.Internal, "watching an agent: %w", err)
	}
	return c, nil
}

// signal sends a signal, 0 to ask whether the agent is alive; ESRCH: it is not.
func (c *Child) signal(sig unix.Signal) (err error) {
	if cerr := c.raw.Control(func(fd uintptr) { err = unix.PidfdSendSignal(int(fd), sig, nil, 0) }); cerr != nil {
		return cerr
	}
	return err
}

// Open opens a file of the agent's in /proc. It is the agent's and not that of a
// process that has its number since.
func (c *Child) Open(name string) (fd int, err error) {
	fd, err = unix.Open("/proc/"+strconv.Itoa(c.pid)+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := c.signal(0); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// End kills the agent and waits as long as ctx allows until it, and with it
// everything in its PID namespace, is gone. Not to be called concurrently.
func (c *Child) End(ctx context.Context) error {
	if err := c.signal(unix.SIGKILL); err != nil && err != unix.ESRCH {
		return sandbar.Errorf(sandbar.Internal, "killing an agent: %w", err)
	}
	for {
		err := c.wait(ctx)
		if err == nil {
			return c.file.Close()
		}
		if ctx.Err() != nil {
			return sandbar.Errorf(sandbar.Timeout, "a killed sandbox has not ended yet: %w", ctx.Err())
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) { // of an earlier call, set late
			return sandbar.Errorf(sandbar.Internal, "waiting for a killed agent: %w", err)
		}
	}
}

// wait waits for the agent's end.
func (c *Child) wait(ctx context.Context) (err error) {
	if err := c.file.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { c.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	werr := c.raw.Read(func(fd uintptr) bool {
		n, perr := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if perr != nil && perr != unix.EINTR {
			err = perr
		}
		return n > 0 || err != nil
	})
	if err != nil {
		return err
	}
	return werr
}
