package cachedir

import (
	"os"

	"golang.org/x/sys/windows"
)

// private checks that the path is a directory. Access control lists protect the user's cache
// directory.
func private(dir string) error {
	info, err := os.Lstat(dir)
	if err == nil && !info.IsDir() {
		err = &os.PathError{Op: "use", Path: dir, Err: errOthers}
	}
	return err
}

// TryLock locks an open file for this process until it is closed. busy reports whether another
// process has the lock.
func TryLock(f *os.File) (busy bool, err error) {
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{})
	return err == windows.ERROR_LOCK_VIOLATION, err
}
