package testenv

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// V86Cache returns a directory for snapshots of booted machines, kept between test runs. For
// a user who cannot write to Cache, it is a directory in the user's cache with copies of the
// snapshots in Cache.
func V86Cache() (string, error) {
	const name, snapshots = "v86/machines", "*.snapshot"
	dir, err := Kept(name)
	if shared := filepath.Join(Cache(), filepath.FromSlash(name)); err != nil || dir == shared {
		return dir, err
	}
	found, err := filepath.Glob(filepath.Join(Cache(), filepath.FromSlash(name), snapshots))
	for _, from := range found {
		err = errors.Join(err, copyOnce(from, filepath.Join(dir, filepath.Base(from))))
	}
	return dir, err
}

// copyOnce copies a file atomically, unless the copy exists.
func copyOnce(from, to string) error {
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.CreateTemp(filepath.Dir(to), ".copying-")
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if err := errors.Join(err, dst.Close()); err != nil {
		return errors.Join(err, os.Remove(dst.Name()))
	}
	return os.Rename(dst.Name(), to)
}
