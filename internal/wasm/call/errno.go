package call

import (
	"errors"
	"io"
	"maps"
	"slices"
	"syscall"
)

// Errno is the error number of a system call, with the numbers of WASI preview 1 (witx, "errno"), 0
// for success.
type Errno uint8

// The error numbers in use.
const (
	E2BIG        Errno = 1
	EACCES       Errno = 2
	EAGAIN       Errno = 6
	EBADF        Errno = 8
	EBUSY        Errno = 10
	ECANCELED    Errno = 11
	ECHILD       Errno = 12
	ECONNREFUSED Errno = 14
	EDQUOT       Errno = 19
	EEXIST       Errno = 20
	EFAULT       Errno = 21
	EFBIG        Errno = 22
	EINTR        Errno = 27
	EINVAL       Errno = 28
	EIO          Errno = 29
	EISDIR       Errno = 31
	ELOOP        Errno = 32
	EMFILE       Errno = 33
	EMLINK       Errno = 34
	ENAMETOOLONG Errno = 37
	ENFILE       Errno = 41
	ENODEV       Errno = 43
	ENOENT       Errno = 44
	ENOEXEC      Errno = 45
	ENOMEM       Errno = 48
	ENOSPC       Errno = 51
	ENOSYS       Errno = 52
	ENOTDIR      Errno = 54
	ENOTEMPTY    Errno = 55
	ENOTSOCK     Errno = 57
	ENOTSUP      Errno = 58
	ENOTTY       Errno = 59
	ENXIO        Errno = 60
	EOVERFLOW    Errno = 61
	EPERM        Errno = 63
	EPIPE        Errno = 64
	EPROTO       Errno = 65
	EROFS        Errno = 69
	ESPIPE       Errno = 70
	ESRCH        Errno = 71
	ESTALE       Errno = 72
	ETIMEDOUT    Errno = 73
	ETXTBSY      Errno = 74
	EXDEV        Errno = 75
)

// row is one error in the different numberings. system is that of the host's operating system.
type row struct {
	wasi   Errno
	linux  uint32
	system syscall.Errno
	name   string
	text   string
}

func rows() []row {
	return []row{
		{E2BIG, 7, syscall.E2BIG, "E2BIG", "argument list too long"},
		{EACCES, 13, syscall.EACCES, "EACCES", "permission denied"},
		{EAGAIN, 11, syscall.EAGAIN, "EAGAIN", "resource temporarily unavailable"},
		{EBADF, 9, syscall.EBADF, "EBADF", "bad file descriptor"},
		{EBUSY, 16, syscall.EBUSY, "EBUSY", "resource busy or locked"},
		{ECANCELED, 125, syscall.ECANCELED, "ECANCELED", "operation canceled"},
		{ECHILD, 10, syscall.ECHILD, "ECHILD", "no child processes"},
		{ECONNREFUSED, 111, syscall.ECONNREFUSED, "ECONNREFUSED", "connection refused"},
		{EDQUOT, 122, syscall.EDQUOT, "EDQUOT", "disk quota exceeded"},
		{EEXIST, 17, syscall.EEXIST, "EEXIST", "file already exists"},
		{EFAULT, 14, syscall.EFAULT, "EFAULT", "bad address in system call argument"},
		{EFBIG, 27, syscall.EFBIG, "EFBIG", "file too large"},
		{EINTR, 4, syscall.EINTR, "EINTR", "interrupted system call"},
		{EINVAL, 22, syscall.EINVAL, "EINVAL", "invalid argument"},
		{EIO, 5, syscall.EIO, "EIO", "i/o error"},
		{EISDIR, 21, syscall.EISDIR, "EISDIR", "illegal operation on a directory"},
		{ELOOP, 40, syscall.ELOOP, "ELOOP", "too many symbolic links encountered"},
		{EMFILE, 24, syscall.EMFILE, "EMFILE", "too many open files"},
		{EMLINK, 31, syscall.EMLINK, "EMLINK", "too many links"},
		{ENAMETOOLONG, 36, syscall.ENAMETOOLONG, "ENAMETOOLONG", "name too long"},
		{ENFILE, 23, syscall.ENFILE, "ENFILE", "file table overflow"},
		{ENODEV, 19, syscall.ENODEV, "ENODEV", "no such device"},
		{ENOENT, 2, syscall.ENOENT, "ENOENT", "no such file or directory"},
		{ENOEXEC, 8, syscall.ENOEXEC, "ENOEXEC", "exec format error"},
		{ENOMEM, 12, syscall.ENOMEM, "ENOMEM", "not enough memory"},
		{ENOSPC, 28, syscall.ENOSPC, "ENOSPC", "no space left on device"},
		{ENOSYS, 38, syscall.ENOSYS, "ENOSYS", "function not implemented"},
		{ENOTDIR, 20, syscall.ENOTDIR, "ENOTDIR", "not a directory"},
		{ENOTEMPTY, 39, syscall.ENOTEMPTY, "ENOTEMPTY", "directory not empty"},
		{ENOTSOCK, 88, syscall.ENOTSOCK, "ENOTSOCK", "socket operation on non-socket"},
		{ENOTSUP, 95, syscall.ENOTSUP, "ENOTSUP", "operation not supported"},
		{ENOTTY, 25, syscall.ENOTTY, "ENOTTY", "inappropriate ioctl for device"},
		{ENXIO, 6, syscall.ENXIO, "ENXIO", "no such device or address"},
		{EOVERFLOW, 75, syscall.EOVERFLOW, "EOVERFLOW", "value too large for defined data type"},
		{EPERM, 1, syscall.EPERM, "EPERM", "operation not permitted"},
		{EPIPE, 32, syscall.EPIPE, "EPIPE", "broken pipe"},
		{EPROTO, 71, syscall.EPROTO, "EPROTO", "protocol error"},
		{EROFS, 30, syscall.EROFS, "EROFS", "read-only file system"},
		{ESPIPE, 29, syscall.ESPIPE, "ESPIPE", "invalid seek"},
		{ESRCH, 3, syscall.ESRCH, "ESRCH", "no such process"},
		{ESTALE, 116, syscall.ESTALE, "ESTALE", "stale file handle"},
		{ETIMEDOUT, 110, syscall.ETIMEDOUT, "ETIMEDOUT", "connection timed out"},
		{ETXTBSY, 26, syscall.ETXTBSY, "ETXTBSY", "text file is busy"},
		{EXDEV, 18, syscall.EXDEV, "EXDEV", "cross-device link not permitted"},
	}
}

// Errnos converts error numbers.
type Errnos struct {
	system map[syscall.Errno]row
	wasi   map[Errno]row
}

// NewErrnos returns the tables.
func NewErrnos() *Errnos {
	t := &Errnos{system: map[syscall.Errno]row{}, wasi: map[Errno]row{}}
	for _, r := range rows() {
		t.system[r.system], t.wasi[r.wasi] = r, r
	}
	return t
}

// Of returns the number of an error of the operating system, EPIPE for a pipe without a reader, EIO
// for an unknown one.
func (t *Errnos) Of(err error) Errno {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		if r, ok := t.system[e]; ok {
			return r.wasi
		}
		return EIO
	}
	if errors.Is(err, io.ErrClosedPipe) {
		return EPIPE
	}
	return EIO
}

// Linux returns Linux's number of an error of the operating system.
func (t *Errnos) Linux(err error) uint32 {
	if err == nil {
		return 0
	}
	return t.wasi[t.Of(err)].linux
}

// Name returns an error's name: "ENOENT".
func (t *Errnos) Name(e Errno) string { return t.wasi[e].name }

// Number returns Linux's number of an error.
func (t *Errnos) Number(e Errno) uint32 { return t.wasi[e].linux }

// Text returns an error's text, as libuv has it.
func (t *Errnos) Text(e Errno) string { return t.wasi[e].text }

// All returns all errors, sorted by number.
func (t *Errnos) All() []Errno { return slices.Sorted(maps.Keys(t.wasi)) }
