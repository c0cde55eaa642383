package memfs

import (
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Flags for OpenFile besides those of package os.
const (
	Directory = 1 << 29 // fail with ENOTDIR unless the file is a directory
	NoFollow  = 1 << 30 // fail with ELOOP if the file is a symbolic link
)

// File is an open file, directory or device. Concurrent reads and writes without an offset happen
// in an unspecified order.
type File struct {
	fs     *FS
	life   uint64
	number uint64
	name   string
	device Device
	read   bool
	write  bool

	mu      sync.Mutex // guards the fields below; taken before fs.mu
	append  bool
	closed  bool
	off     int64
	entries []*Info // of a directory, after the first ReadDir
}

// OpenFile opens a file. flag consists of the O_ constants of package syscall, Directory and
// NoFollow. perm is the mode of a new file. A directory can be opened for reading only.
func (f *FS) OpenFile(cwd, path string, flag int, perm fs.FileMode) (*File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	access := flag & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR)
	write := access == os.O_WRONLY || access == os.O_RDWR
	exclusive := flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0
	if flag&os.O_CREATE != 0 && strings.HasSuffix(path, "/") {
		// The last name must be valid for a new file even if the path exists.
		if _, err := f.entry(cwd, path); err != nil {
			return nil, err
		}
		return nil, syscall.EISDIR
	}
	p, err := f.locate(cwd, path, flag&NoFollow == 0 && !exclusive)
	if err != nil {
		return nil, err
	}
	i, err := f.openPlace(p, flag, perm, write, exclusive)
	if err != nil {
		return nil, err
	}
	if flag&os.O_TRUNC != 0 && write && i.mode.IsRegular() {
		i = f.writable(i.number)
		if err := f.truncate(i, 0); err != nil {
			return nil, err
		}
		i.touch()
	}
	f.opens[i.number]++
	return &File{fs: f, life: f.generation, number: i.number, name: lastName(path), device: i.device,
		read: access != os.O_WRONLY, write: write, append: flag&os.O_APPEND != 0}, nil
}

// openPlace returns the inode to open, and creates it if necessary.
func (f *FS) openPlace(p place, flag int, perm fs.FileMode, write, exclusive bool) (*inode, error) {
	if p.inode == nil {
		switch {
		case flag&os.O_CREATE == 0:
			return nil, syscall.ENOENT
		case flag&Directory != 0:
			return nil, syscall.EINVAL
		}
		return f.add(p.dir, p.name, permission(perm), nil)
	}
	switch i := p.inode; {
	case exclusive:
		return nil, syscall.EEXIST
	case i.isLink():
		return nil, syscall.ELOOP
	case i.mode.IsDir() && (write || flag&os.O_CREATE != 0):
		return nil, syscall.EISDIR
	case !i.mode.IsDir() && flag&Directory != 0:
		return nil, syscall.ENOTDIR
	}
	return p.inode, nil
}

func (i *inode) isLink() bool { return i.mode&fs.ModeSymlink != 0 }

// Name returns the last name of the path with which the file was opened.
func (h *File) Name() string { return h.name }

// usable returns the handle's inode for reading. The caller holds fs.mu.
func (h *File) usable() (*inode, error) {
	if h.closed {
		return nil, syscall.EBADF
	}
	if h.life != h.fs.generation {
		return nil, syscall.ESTALE
	}
	return h.fs.inode(h.number), nil
}

// Read reads from the current offset.
func (h *File) Read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, err := h.readAt(p, h.off)
	h.off += int64(n)
	return n, err
}

// ReadAt reads from an offset. It returns io.EOF if it reads less than len(p).
func (h *File) ReadAt(p []byte, off int64) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, err := h.readAt(p, off)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

func (h *File) readAt(p []byte, off int64) (int, error) {
	h.fs.mu.RLock()
	defer h.fs.mu.RUnlock()
	switch {
	case h.closed || !h.read:
		return 0, syscall.EBADF
	case off < 0:
		return 0, syscall.EINVAL
	}
	i, err := h.usable()
	switch {
	case err != nil:
		return 0, err
	case i.mode.IsDir():
		return 0, syscall.EISDIR
	case h.device != "":
		return h.device.read(p)
	}
	n := i.readAt(p, off)
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Write writes at the current offset, or at the end with O_APPEND. At the limit it writes as much
// as fits and returns ENOSPC.
func (h *File) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	off := h.off
	if h.append {
		off = atEnd
	}
	n, end, err := h.writeAt(p, off)
	if n > 0 {
		h.off = end
	}
	return n, err
}

// WriteAt writes at an offset, also with O_APPEND.
func (h *File) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, syscall.EINVAL
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n, _, err := h.writeAt(p, off)
	return n, err
}

// atEnd is the offset that stands for the end of the file.
const atEnd = -1

// writeAt writes at an offset and also returns the offset after the written bytes.
func (h *File) writeAt(p []byte, off int64) (int, int64, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.closed || !h.write {
		return 0, 0, syscall.EBADF
	}
	if _, err := h.usable(); err != nil {
		return 0, 0, err
	}
	if h.device != "" {
		n, err := h.device.write(p)
		return n, 0, err
	}
	if len(p) == 0 {
		return 0, 0, nil
	}
	i := h.fs.writable(h.number)
	if off == atEnd {
		off = i.size
	}
	n, err := h.fs.writeAt(i, p, off)
	if n > 0 {
		i.touch()
	}
	return n, off + int64(n), err
}

// Seek sets the current offset. A directory's can only be set to 0; ReadDir then lists it again.
func (h *File) Seek(offset int64, whence int) (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fs.mu.RLock()
	defer h.fs.mu.RUnlock()
	i, err := h.usable()
	if err != nil {
		return 0, err
	}
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += h.off
	case io.SeekEnd:
		offset += i.size
	default:
		return 0, syscall.EINVAL
	}
	switch {
	case offset < 0 || (i.mode.IsDir() && offset != 0):
		return 0, syscall.EINVAL
	case h.device != "":
		return 0, nil
	}
	h.off, h.entries = offset, nil
	return offset, nil
}

// Truncate sets the size. Added bytes read as zeros.
func (h *File) Truncate(size int64) error {
	return h.change(func(i *inode) error {
		if !h.write || !i.mode.IsRegular() {
			return syscall.EINVAL
		}
		if err := h.fs.truncate(i, size); err != nil {
			return err
		}
		i.touch()
		return nil
	})
}

// Chmod sets the permission bits.
func (h *File) Chmod(perm fs.FileMode) error {
	return h.change(func(i *inode) error {
		i.chmod(perm)
		return nil
	})
}

// Chtimes sets the times. A zero time leaves one unchanged.
func (h *File) Chtimes(atime, mtime time.Time) error {
	return h.change(func(i *inode) error {
		i.chtimes(atime, mtime)
		return nil
	})
}

func (h *File) change(apply func(*inode) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if _, err := h.usable(); err != nil {
		return err
	}
	return apply(h.fs.writable(h.number))
}

// Stat describes the file.
func (h *File) Stat() (*Info, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fs.mu.RLock()
	defer h.fs.mu.RUnlock()
	i, err := h.usable()
	if err != nil {
		return nil, err
	}
	return newInfo(h.name, i), nil
}

// ReadDir returns the next n entries of a directory, sorted by name, and io.EOF at the end. If n <=
// 0, it returns all remaining entries without io.EOF. The entries are those at the time of the
// first call.
func (h *File) ReadDir(n int) ([]*Info, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fs.mu.RLock()
	defer h.fs.mu.RUnlock()
	i, err := h.usable()
	if err != nil {
		return nil, err
	}
	if !i.mode.IsDir() {
		return nil, syscall.ENOTDIR
	}
	if h.entries == nil {
		h.entries = h.fs.list(i)
	}
	left := h.entries[min(h.off, int64(len(h.entries))):]
	if n <= 0 {
		n = len(left)
	} else if len(left) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(left))
	h.off += int64(n)
	return left[:n], nil
}

// SetAppend sets or clears O_APPEND.
func (h *File) SetAppend(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.append = on
}

// IsAppend reports whether O_APPEND is set.
func (h *File) IsAppend() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.append
}

// Sync does nothing, because the file system has no persistent storage.
func (h *File) Sync() error { return nil }

// Close closes the file. A second call returns EBADF. The last Close of a file without a name frees
// it.
func (h *File) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.closed {
		return syscall.EBADF
	}
	h.closed = true
	if h.life != h.fs.generation {
		return nil
	}
	if h.fs.opens[h.number]--; h.fs.opens[h.number] > 0 {
		return nil
	}
	delete(h.fs.opens, h.number)
	if h.fs.orphans[h.number] {
		delete(h.fs.orphans, h.number)
		h.fs.free(h.fs.inode(h.number))
	}
	return nil
}
