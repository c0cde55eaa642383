// Package cachedir manages directories for data that a user's processes can recreate. Processes
// execute or restore what others have written there, so no other user may write to it.
package cachedir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// errOthers: the directory is not private to this user.
var errOthers = errors.New("the directory belongs to somebody else, or others may write in it")

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
	return lock(ctx, filepath.Join(dir, "lock"))
}
