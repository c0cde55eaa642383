package call

import (
	"errors"
	"io"
	"syscall"
)

// Errno is the error number of a system call, numbered as WASI preview 1 does
// (witx, "errno"), 0 for success.
type Errno uint8

// The error numbers that are used.
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

// row is one error under its several names. system is that of the operating
// system we run on, whose numbers may be any.
type row struct {
	wasi   Errno
	linux  uint32
	system syscall.Errno
	name   string
}

func rows() []row {
	return []row{
		{E2BIG, 7, syscall.E2BIG, "E2BIG"},
		{EACCES, 13, syscall.EACCES, "EACCES"},
		{EAGAIN, 11, syscall.EAGAIN, "EAGAIN"},
		{EBADF, 9, syscall.EBADF, "EBADF"},
		{EBUSY, 16, syscall.EBUSY, "EBUSY"},
		{ECANCELED, 125, syscall.ECANCELED, "ECANCELED"},
		{ECHILD, 10, syscall.ECHILD, "ECHILD"},
		{ECONNREFUSED, 111, syscall.ECONNREFUSED, "ECONNREFUSED"},
		{EDQUOT, 122, syscall.EDQUOT, "EDQUOT"},
		{EEXIST, 17, syscall.EEXIST, "EEXIST"},
		{EFAULT, 14, syscall.EFAULT, "EFAULT"},
		{EFBIG, 27, syscall.EFBIG, "EFBIG"},
		{EINTR, 4, syscall.EINTR, "EINTR"},
		{EINVAL, 22, syscall.EINVAL, "EINVAL"},
		{EIO, 5, syscall.EIO, "EIO"},
		{EISDIR, 21, syscall.EISDIR, "EISDIR"},
		{ELOOP, 40, syscall.ELOOP, "ELOOP"},
		{EMFILE, 24, syscall.EMFILE, "EMFILE"},
		{EMLINK, 31, syscall.EMLINK, "EMLINK"},
		{ENAMETOOLONG, 36, syscall.ENAMETOOLONG, "ENAMETOOLONG"},
		{ENFILE, 23, syscall.ENFILE, "ENFILE"},
		{ENODEV, 19, syscall.ENODEV, "ENODEV"},
		{ENOENT, 2, syscall.ENOENT, "ENOENT"},
		{ENOEXEC, 8, syscall.ENOEXEC, "ENOEXEC"},
		{ENOMEM, 12, syscall.ENOMEM, "ENOMEM"},
		{ENOSPC, 28, syscall.ENOSPC, "ENOSPC"},
		{ENOSYS, 38, syscall.ENOSYS, "ENOSYS"},
		{ENOTDIR, 20, syscall.ENOTDIR, "ENOTDIR"},
		{ENOTEMPTY, 39, syscall.ENOTEMPTY, "ENOTEMPTY"},
		{ENOTSOCK, 88, syscall.ENOTSOCK, "ENOTSOCK"},
		{ENOTSUP, 95, syscall.ENOTSUP, "ENOTSUP"},
		{ENOTTY, 25, syscall.ENOTTY, "ENOTTY"},
		{ENXIO, 6, syscall.ENXIO, "ENXIO"},
		{EOVERFLOW, 75, syscall.EOVERFLOW, "EOVERFLOW"},
		{EPERM, 1, syscall.EPERM, "EPERM"},
		{EPIPE, 32, syscall.EPIPE, "EPIPE"},
		{EPROTO, 71, syscall.EPROTO, "EPROTO"},
		{EROFS, 30, syscall.EROFS, "EROFS"},
		{ESPIPE, 29, syscall.ESPIPE, "ESPIPE"},
		{ESRCH, 3, syscall.ESRCH, "ESRCH"},
		{ESTALE, 116, syscall.ESTALE, "ESTALE"},
		{ETIMEDOUT, 110, syscall.ETIMEDOUT, "ETIMEDOUT"},
		{ETXTBSY, 26, syscall.ETXTBSY, "ETXTBSY"},
		{EXDEV, 18, syscall.EXDEV, "EXDEV"},
	}
}

// Errnos translates error numbers.
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

// Of is the number of an error of the operating system's, EPIPE for that of a
// pipe nobody reads, EIO for one that has none.
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

// Linux is the number that Linux has for an error of the operating system's.
func (t *Errnos) Linux(err error) uint32 {
	if err == nil {
		return 0
	}
	return t.wasi[t.Of(err)].linux
}

// Name is the name of an error: "ENOENT".
func (t *Errnos) Name(e Errno) string { return t.wasi[e].name }
