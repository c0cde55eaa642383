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

// Child is an agent. It is a child of the spawner process, not of this process. All operations use
// its pidfd, because its pid may be reused.
type Child struct {
	pid  int
	file *os.File // the pidfd
	raw  syscall.RawConn
}

// newChild takes ownership of a pidfd. On failure it kills the process.
func newChild(pid, pidfd int) (*Child, error) {
	err := unix.SetNonblock(pidfd, true) // a wait then uses the runtime's poller, not a thread
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

// signal sends a signal. 0 only tests whether the agent is alive. ESRCH: it has ended.
func (c *Child) signal(sig unix.Signal) (err error) {
	if cerr := c.raw.Control(func(fd uintptr) { err = unix.PidfdSendSignal(int(fd), sig, nil, 0) }); cerr != nil {
		return cerr
	}
	return err
}

// PID returns the process id of the agent on the host.
func (c *Child) PID() int { return c.pid }

// Open opens a file of the agent in /proc. The check after the open ensures that the file is not
// that of a process that reused the agent's pid.
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

// Kill kills the agent and waits until it has ended, and with it all processes of its PID namespace
// (pid_namespaces(7)). Timeout: ctx ended first. It must not be called concurrently.
func (c *Child) Kill(ctx context.Context) error {
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
		if !errors.Is(err, os.ErrDeadlineExceeded) { // an earlier call may have set the deadline late
			return sandbar.Errorf(sandbar.Internal, "waiting for a killed agent: %w", err)
		}
	}
}

// wait waits until the agent has ended, or ctx.
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

// IDMappedMount returns a detached, read-only, idmapped mount of a directory (mount_setattr(2)):
// files of the host's uid 0 appear as files of uid 0 in the agent's user namespace. Unsupported:
// the file system does not support idmapped mounts.
func (c *Child) IDMappedMount(dir string) (fd int, err error) {
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
			Message: "the image's file system does not support idmapped mounts",
			Fix:     "keep images (images.dir) on ext4, xfs, btrfs or tmpfs"}
	}
	return fd, nil
}
