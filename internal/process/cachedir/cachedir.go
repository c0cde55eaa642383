// Package cachedir manages directories for data that a user's processes can recreate. Processes
// execute or restore what others have written there, so no other user may write to it.
package cachedir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// errOthers: the directory is not private to this user.
var errOthers = errors.New("the directory belongs to another user, or other users may write to it")

// Open opens or creates a directory: dir, or sub of the user's cache directory if dir is empty. It
// fails if others can write there. The result is absolute.
func Open(dir string, sub ...string) (string, error) {
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(append([]string{user}, sub...)...)
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = private(dir)
	}
	return dir, err
}

// Lock waits until this process has the exclusive lock of a directory of Open, or until ctx ends.
// The lock ends with the process.
func Lock(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	t := time.NewTicker(lockPoll)
	defer t.Stop()
	for {
		busy, err := TryLock(f)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !busy {
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

// lockPoll is the interval of attempts to take a busy lock.
const lockPoll = 20 * time.Millisecond
