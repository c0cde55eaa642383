//go:build unix

package image

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// tryLock locks the file at path, exclusively or shared, after creating it if mk is set. If the
// previous holder has removed the file, the lock is on an unlinked inode that others do not see, so
// it tries again.
func tryLock(path string, alone, mk bool) (*os.File, error) {
	how, flags := unix.LOCK_SH, os.O_RDONLY
	if alone {
		how = unix.LOCK_EX
	}
	if mk {
		flags = os.O_RDWR | os.O_CREATE
	}
	for {
		f, err := os.OpenFile(path, flags, 0o600)
		if err != nil {
			return nil, err
		}
		if err := flock(f, how|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, errBusy
			}
			return nil, err
		}
		mine, err := f.Stat()
		there, err2 := os.Stat(path)
		if err == nil && err2 == nil && os.SameFile(mine, there) {
			return f, nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err != unix.EINTR {
			return err
		}
	}
}

// waitLock waits for an exclusive lock.
func waitLock(ctx context.Context, path string) (*os.File, error) {
	t := time.NewTicker(lockPoll)
	defer t.Stop()
	for {
		f, err := tryLock(path, true, true)
		if !errors.Is(err, errBusy) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-t.C:
		}
	}
}
