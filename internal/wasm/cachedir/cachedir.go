// Package cachedir is for directories in which a user's processes keep what they
// could make again: what one of them has written the others execute or restore,
// so nobody else may write there.
package cachedir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// errOthers says that a directory is not for this user alone.
var errOthers = errors.New("the directory belongs to somebody else, or others may write in it")

// Open finds or makes a directory: dir, or sub of the user's cache directory if
// dir is empty. It fails if others may write there. The path is absolute.
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

// Lock waits until this process alone works in a directory that Open returned,
// or until ctx ends. The lock ends with the process.
func Lock(ctx context.Context, dir string) (unlock func(), err error) {
	return lock(ctx, filepath.Join(dir, "lock"))
}
