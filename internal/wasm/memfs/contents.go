package memfs

import (
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ReadFile returns the content of a regular file.
func (f *FS) ReadFile(cwd, path string) ([]byte, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	p, err := f.found(cwd, path, true)
	switch {
	case err != nil:
		return nil, err
	case p.inode.mode.IsDir():
		return nil, syscall.EISDIR
	case !p.inode.mode.IsRegular():
		return nil, syscall.EINVAL
	}
	b := make([]byte, p.inode.size)
	p.inode.readAt(b, 0)
	return b, nil
}

// WriteFile creates a file or replaces the content of an existing one.
func (f *FS) WriteFile(cwd, path string, data []byte, perm fs.FileMode) error {
	h, err := f.OpenFile(cwd, path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = h.Write(data)
	if cerr := h.Close(); err == nil {
		err = cerr
	}
	return err
}

var _ io.ReadWriteSeeker = (*File)(nil)
