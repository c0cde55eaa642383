package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sandbar-dev/sandbar/driver"
)

// youth is how long a directory without a lock is left in peace: its daemon
// may be about to make one, or to remove the directory.
const youth = time.Minute

// Collect finds the directories and processes of instances whose daemon is
// dead: their lock can be taken. It holds the lock while it removes, so two
// collectors do not disturb each other.
func (d *Driver) Collect(ctx context.Context, remove bool) ([]driver.Leftover, error) {
	entries, err := os.ReadDir(d.base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fileError("read", "the runtime directory", err)
	}
	var all []driver.Leftover
	for _, e := range entries {
		if err := contextError(ctx); err != nil {
			return all, err
		}
		if !e.IsDir() || e.Name() == d.instance.name {
			continue
		}
		left, err := collectInstance(ctx, filepath.Join(d.base, e.Name()), remove)
		if err != nil {
			return all, err
		}
		all = append(all, left...)
	}
	return all, nil
}

// collectInstance looks at one directory. A live one has nothing left over.
func collectInstance(ctx context.Context, dir string, remove bool) ([]driver.Leftover, error) {
	lock, dead := takeOver(dir)
	if !dead {
		return nil, nil
	}
	if lock != nil {
		defer lock.Close()
	}
	pids, killErr := leftProcesses(ctx, filepath.Base(dir), remove)
	var left []driver.Leftover
	for _, pid := range pids {
		left = append(left, driver.Leftover{Kind: "process", Name: strconv.Itoa(pid), Err: killErr})
	}
	l := driver.Leftover{Kind: "directory", Name: dir, Err: killErr}
	if remove && killErr == nil {
		if err := removeAll(dir); err != nil {
			l.Err = fileError("remove", "the directory", err)
		}
	}
	return append(left, l), nil
}

// takeOver locks the directory of a dead instance. Without a lock file the
// instance is being born or was being removed: dead if that is long ago.
func takeOver(dir string) (lock *os.File, dead bool) {
	path := filepath.Join(dir, lockName)
	lock, err := lockFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		info, err := os.Stat(dir)
		return nil, err == nil && time.Since(info.ModTime()) > youth
	}
	if err != nil {
		return nil, false // its daemon lives, or another collector is at it
	}
	if !sameFile(lock, path) {
		lock.Close() // removed and perhaps made anew since it was opened
		return nil, false
	}
	return lock, true
}

func sameFile(f *os.File, path string) bool {
	a, err1 := f.Stat()
	b, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}
