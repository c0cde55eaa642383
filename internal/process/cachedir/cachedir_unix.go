//go:build unix

package cachedir

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// private checks that a directory is private to its user.
func private(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return &os.PathError{Op: "use", Path: dir, Err: errOthers}
	}
	return nil
}

// TryLock locks an open file for this process until it is closed. busy reports whether another
// process has the lock.
func TryLock(f *os.File) (busy bool, err error) {
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	return err == unix.EWOULDBLOCK || err == unix.EINTR, err
}
