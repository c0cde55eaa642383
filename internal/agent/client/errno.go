package client

import (
	"errors"
	"io/fs"
	"strconv"
	"syscall"

	"github.com/sandbar-dev/sandbar"
)

// linuxErrno maps Linux error numbers, which the agent sends, to those of this operating system.
var linuxErrno = map[uint32]syscall.Errno{
	1: syscall.EPERM, 2: syscall.ENOENT, 3: syscall.ESRCH, 4: syscall.EINTR, 5: syscall.EIO, 6: syscall.ENXIO, 7: syscall.E2BIG,
	8: syscall.ENOEXEC, 9: syscall.EBADF, 11: syscall.EAGAIN, 12: syscall.ENOMEM, 13: syscall.EACCES,
	16: syscall.EBUSY, 17: syscall.EEXIST, 18: syscall.EXDEV, 20: syscall.ENOTDIR, 21: syscall.EISDIR,
	22: syscall.EINVAL, 23: syscall.ENFILE, 24: syscall.EMFILE, 27: syscall.EFBIG, 28: syscall.ENOSPC,
	30: syscall.EROFS, 31: syscall.EMLINK, 36: syscall.ENAMETOOLONG, 38: syscall.ENOSYS, 39: syscall.ENOTEMPTY,
	40: syscall.ELOOP, 71: syscall.EPROTO, 74: syscall.EBADMSG, 95: syscall.EOPNOTSUPP, 97: syscall.EAFNOSUPPORT,
	103: syscall.ECONNABORTED, 104: syscall.ECONNRESET, 110: syscall.ETIMEDOUT, 111: syscall.ECONNREFUSED,
}

// errnoOf returns the error for an error number of the agent's kernel.
func errnoOf(n uint32) error {
	if e, ok := linuxErrno[n]; ok {
		return e
	}
	return errors.New("error " + strconv.FormatUint(uint64(n), 10) + " of the sandbox's kernel")
}

// fileError returns the error of an operation on path.
func fileError(verb, path string, n uint32) error {
	cause := errnoOf(n)
	code := sandbar.Internal
	switch cause {
	case syscall.EINVAL, syscall.ENAMETOOLONG:
		code = sandbar.Invalid
	case syscall.EEXIST:
		code = sandbar.Exists
	case syscall.ENOTDIR, syscall.EISDIR, syscall.ENOTEMPTY, syscall.EXDEV, syscall.EBUSY, syscall.ENXIO, syscall.EBADF, syscall.ELOOP:
		code = sandbar.Conflict
	case syscall.EROFS:
		code = sandbar.Denied
	case syscall.ENOSPC, syscall.EFBIG:
		code = sandbar.NoSpace
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM:
		code = sandbar.Exhausted
	default:
		switch {
		case errors.Is(cause, fs.ErrNotExist):
			code = sandbar.NotFound
		case errors.Is(cause, fs.ErrPermission):
			code = sandbar.Denied
		}
	}
	return sandbar.Errorf(code, "%s %s: %w", verb, sandbar.Quote(path, 200), cause)
}

// writeError classifies the error of a write to a passed descriptor.
func writeError(path string, err error) error {
	code := sandbar.Internal
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EFBIG) || errors.Is(err, syscall.EDQUOT) {
		code = sandbar.NoSpace
	}
	return sandbar.Errorf(code, "write %s: %w", sandbar.Quote(path, 200), errors.Unwrap(err))
}

// forbidden adds a fix to an error that the host's kernel or a seccomp filter around this process
// caused.
func forbidden(err *sandbar.Error, cause error) *sandbar.Error {
	if errors.Is(cause, syscall.EPERM) || errors.Is(cause, syscall.EACCES) {
		err.Code = sandbar.Unsupported
		err.Fix = "in a container, start it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined " +
			"--security-opt systempaths=unconfined (docs/deploy.md); in a chroot the kernel allows no user namespaces, so use a container; " +
			"elsewhere \"sandbar doctor\" lists what this host forbids"
	}
	return err
}
