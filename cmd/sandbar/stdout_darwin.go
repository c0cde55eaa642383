package main

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// redirectToStderr returns a duplicate of f, and makes f's descriptor a duplicate of
// standard error.
func redirectToStderr(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		err = unix.Dup2(int(os.Stderr.Fd()), int(f.Fd()))
	}
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "redirecting standard output: %w", err)
	}
	return os.NewFile(uintptr(fd), "responses"), nil
}
