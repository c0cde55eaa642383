package main

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// divert returns a duplicate of f and lets f itself lead to standard error.
func redirectToStderr(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		err = unix.Dup3(int(os.Stderr.Fd()), int(f.Fd()), 0)
	}
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "setting standard output aside: %w", err)
	}
	return os.NewFile(uintptr(fd), "responses"), nil
}
