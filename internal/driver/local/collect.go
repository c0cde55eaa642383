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

// minAge is the age up to which a directory without a lock is left alone: its daemon may be about
// to create the lock, or to remove the directory.
const minAge = time.Minute

// Collect finds the directories and processes of instances with a dead daemon: their lock can be
// taken. It holds the lock while it removes them, so that collectors do not interfere.
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

// collectInstance examines one directory. A live instance has no leftovers.
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

// takeOver locks the directory of a dead instance. An instance without a lock file is being created
// or removed; it counts as dead if it is old.
func takeOver(dir string) (lock *os.File, dead bool) {
	path := filepath.Join(dir, lockName)
	lock, err := lockFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		info, err := os.Stat(dir)
		return nil, err == nil && time.Since(info.ModTime()) > minAge
	}
	if err != nil {
		return nil, false // its daemon is alive, or another collector works on it
	}
	if !sameFile(lock, path) {
		lock.Close() // it was removed, and possibly created again, since it was opened
		return nil, false
	}
	return lock, true
}

func sameFile(f *os.File, path string) bool {
	a, err1 := f.Stat()
	b, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}
