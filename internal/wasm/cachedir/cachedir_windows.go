package cachedir

import (
	"context"
	"os"
	"time"

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

// lockPoll is the interval of attempts to take a busy lock.
const lockPoll = 20 * time.Millisecond

// lock waits for a lock that ends with this process.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	t := time.NewTicker(lockPoll)
	defer t.Stop()
	for {
		err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{})
		if err == nil {
			return func() { f.Close() }, nil
		}
		if err != windows.ERROR_LOCK_VIOLATION {
			f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-t.C:
		}
	}
}
