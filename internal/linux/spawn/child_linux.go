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

// Show returns a mount of a directory that is nowhere yet: read-only, and
// with what belongs to the host's root belonging to the sandbox's: the agent's
// user namespace says what that is.
func (c *Child) Show(dir string) (fd int, err error) {
	ns, err := c.Open("ns/user")
	if err != nil {
		return -1, sandbar.Errorf(sandbar.Internal, "opening the agent's user namespace: %w", err)
	}
	defer unix.Close(ns)
	fd, err = unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return -1, sandbar.Errorf(sandbar.Internal, "opening the root of an image: %w", err)
	}
	attr := unix.MountAttr{
		Attr_set:  unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Userns_fd: uint64(ns),
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		unix.Close(fd)
		return -1, &sandbar.Error{Code: sandbar.Unsupported, Field: "image", Err: err,
			Message: "the file system that holds the image cannot show it under other ids",
			Fix:     "keep images (images.dir) on ext4, xfs, btrfs or tmpfs"}
	}
	return fd, nil
}
