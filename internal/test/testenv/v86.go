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
	dir, err := Kept(v86Machines)
	if shared := filepath.Join(Cache(), filepath.FromSlash(v86Machines)); err != nil || dir == shared {
		return dir, err
	}
	return dir, CopyMachines(Cache(), dir)
}

const v86Machines = "v86/machines"

// CopyMachines copies the machines that have booted from a cache directory to the directory to,
// readable by everyone, and leaves out those that are there.
func CopyMachines(cache, to string) error {
	found, err := filepath.Glob(filepath.Join(cache, filepath.FromSlash(v86Machines), "*.snapshot"))
	if err == nil && len(found) > 0 {
		err = os.MkdirAll(to, 0o755)
	}
	for _, from := range found {
		err = errors.Join(err, copyOnce(from, filepath.Join(to, filepath.Base(from))))
	}
	return err
}

// copyOnce copies a file unless the copy exists. Another process sees the whole copy or none.
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
	if err := errors.Join(err, dst.Chmod(0o644), dst.Close()); err != nil {
		return errors.Join(err, os.Remove(dst.Name()))
	}
	return os.Rename(dst.Name(), to)
}
