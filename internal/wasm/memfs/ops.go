package memfs

import (
	"cmp"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Stat describes a file. It follows symbolic links.
func (f *FS) Stat(cwd, path string) (*Info, error) { return f.stat(cwd, path, true) }

// Lstat describes a file. It does not follow a symbolic link in the last component.
func (f *FS) Lstat(cwd, path string) (*Info, error) { return f.stat(cwd, path, false) }

func (f *FS) stat(cwd, name string, follow bool) (*Info, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	p, err := f.found(cwd, name, follow)
	if err != nil {
		return nil, err
	}
	return newInfo(path.Base(name), p.inode), nil
}

// Mkdir creates a directory.
func (f *FS) Mkdir(cwd, path string, perm fs.FileMode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mkdir(cwd, path, perm)
}

func (f *FS) mkdir(cwd, path string, perm fs.FileMode) error {
	p, err := f.vacant(cwd, path)
	if err != nil {
		return err
	}
	_, err = f.add(p.dir, p.name, fs.ModeDir|permission(perm), nil)
	return err
}

// MkdirAll creates a directory and its missing parents. An existing directory is not an error.
func (f *FS) MkdirAll(cwd, path string, perm fs.FileMode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir, err := f.start(cwd, path)
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(path, "/") {
		if name == "" {
			continue
		}
		w := walk{fs: f, follow: true}
		p, err := w.from(dir, name)
		if err != nil {
			return err
		}
		i := p.inode
		switch {
		case i == nil && (p.dir != dir || p.name != name): // a dangling symbolic link
			return syscall.EEXIST
		case i == nil:
			if i, err = f.add(dir, name, fs.ModeDir|permission(perm), nil); err != nil {
				return err
			}
		case !i.mode.IsDir():
			return syscall.ENOTDIR
		}
		dir = i.number
	}
	return nil
}

// Symlink creates a symbolic link at path. The target need not exist.
func (f *FS) Symlink(target, cwd, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := checkPath(target); err != nil {
		return err
	}
	p, err := f.vacant(cwd, path)
	if err != nil {
		return err
	}
	if p.slash {
		return syscall.ENOENT
	}
	_, err = f.add(p.dir, p.name, fs.ModeSymlink|0o777, func(i *inode) {
		i.target, i.size = target, int64(len(target))
	})
	return err
}

// Readlink returns the target of a symbolic link; EINVAL for another file.
func (f *FS) Readlink(cwd, path string) (string, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	p, err := f.found(cwd, path, false)
	if err != nil {
		return "", err
	}
	if !p.inode.isLink() {
		return "", syscall.EINVAL
	}
	return p.inode.target, nil
}

// Link creates the hard link to for the file from, which must not be a directory. It does not
// follow a symbolic link at from.
func (f *FS) Link(cwd, from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	src, err := f.found(cwd, from, false)
	if err != nil {
		return err
	}
	dst, err := f.vacant(cwd, to)
	switch {
	case err != nil:
		return err
	case dst.slash:
		return syscall.ENOENT
	case src.inode.mode.IsDir():
		return syscall.EPERM
	}
	if src.inode.links >= maxLinks {
		return syscall.EMLINK
	}
	if err := f.addEntry(dst.dir, dst.name, src.inode.number); err != nil {
		return err
	}
	i := f.writable(src.inode.number)
	i.links++
	i.ctime = time.Now()
	return nil
}

// Mknod creates a device.
func (f *FS) Mknod(cwd, path string, d Device, perm fs.FileMode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.vacant(cwd, path)
	if err != nil {
		return err
	}
	_, err = f.add(p.dir, p.name, fs.ModeDevice|fs.ModeCharDevice|permission(perm), func(i *inode) { i.device = d })
	return err
}

// Remove removes a file that is not a directory.
func (f *FS) Remove(cwd, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.existing(cwd, path)
	if err != nil {
		return err
	}
	if p.inode.mode.IsDir() {
		return syscall.EISDIR
	}
	f.removeEntry(p.dir, p.name)
	f.unlink(p.inode.number)
	return nil
}

// Rmdir removes an empty directory.
func (f *FS) Rmdir(cwd, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.existing(cwd, path)
	switch {
	case err != nil:
		return err
	case !p.inode.mode.IsDir():
		return syscall.ENOTDIR
	case lastName(path) == ".":
		return syscall.EINVAL
	case lastName(path) == "..":
		return syscall.ENOTEMPTY
	case p.inode.number == rootNumber:
		return syscall.EBUSY
	case len(p.inode.entries) > 0:
		return syscall.ENOTEMPTY
	}
	f.removeEntry(p.dir, p.name)
	f.unlink(p.inode.number)
	return nil
}

// RemoveAll removes a file or a directory tree atomically. It does not follow symbolic links. A
// path that does not exist is not an error. The root, "." and ".." cannot be removed (EBUSY,
// EINVAL).
func (f *FS) RemoveAll(cwd, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := lastName(path); last == "." || last == ".." {
		return syscall.EINVAL
	}
	p, err := f.entry(cwd, path)
	if err == syscall.ENOENT || (err == nil && p.inode == nil) {
		return nil
	}
	switch {
	case err != nil:
		return err
	case p.misplacedSlash():
		return syscall.ENOTDIR
	case p.inode.number == rootNumber:
		return syscall.EBUSY
	}
	f.removeTree(p)
	return nil
}

// removeTree removes a directory tree without recursion, because it can be deeper than the longest
// path.
func (f *FS) removeTree(top place) {
	pending := []place{top}
	for len(pending) > 0 {
		p := pending[len(pending)-1]
		if len(p.inode.entries) == 0 {
			pending = pending[:len(pending)-1]
			f.removeEntry(p.dir, p.name)
			f.unlink(p.inode.number)
			continue
		}
		dir := f.writable(p.inode.number)
		pending[len(pending)-1].inode = dir
		for name, n := range dir.entries {
			i := f.inode(n)
			if len(i.entries) > 0 {
				pending = append(pending, place{dir: dir.number, name: name, inode: i})
				continue
			}
			f.removeEntry(dir.number, name)
			f.unlink(n)
		}
	}
}

// lastName returns the last component of a path.
func lastName(path string) string {
	path = strings.TrimRight(path, "/")
	return path[strings.LastIndexByte(path, '/')+1:]
}

// Rename renames from to to atomically, as in rename(2). It replaces a file, a symbolic link or an
// empty directory at to. If both are links of the same file, it does nothing.
func (f *FS) Rename(cwd, from, to string) error { return f.rename(cwd, from, to, false) }

// RenameNew is Rename with RENAME_NOREPLACE: EEXIST if to exists.
func (f *FS) RenameNew(cwd, from, to string) error { return f.rename(cwd, from, to, true) }

func (f *FS) rename(cwd, from, to string, keep bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	src, err := f.entry(cwd, from)
	if err != nil {
		return err
	}
	dst, err := f.entry(cwd, to)
	if err != nil {
		return err
	}
	if keep && src.inode != nil && dst.inode != nil {
		return syscall.EEXIST
	}
	if same, err := f.checkRename(src, dst); same || err != nil {
		return err
	}
	if dst.inode == nil && !f.charge(entryCharge(dst.name)) {
		return syscall.ENOSPC
	}
	if dst.inode != nil {
		f.removeEntry(dst.dir, dst.name)
		f.unlink(dst.inode.number)
		f.charge(entryCharge(dst.name)) // cannot fail: the entry was just removed
	}
	f.removeEntry(src.dir, src.name)
	d := f.writable(dst.dir)
	d.entries[dst.name] = src.inode.number
	d.touch()
	moved := f.writable(src.inode.number)
	moved.ctime = time.Now()
	if moved.mode.IsDir() && src.dir != dst.dir {
		moved.parent = dst.dir
		f.writable(src.dir).links--
		f.writable(dst.dir).links++
	}
	return nil
}

// checkRename returns an error if src cannot be renamed to dst. same reports whether both are links
// of the same file.
func (f *FS) checkRename(src, dst place) (same bool, err error) {
	switch {
	case src.name == "" || dst.name == "":
		return false, syscall.EBUSY
	case src.inode == nil:
		return false, syscall.ENOENT
	case src.misplacedSlash():
		return false, syscall.ENOTDIR
	case src.inode.mode.IsDir() && f.inside(dst.dir, src.inode.number):
		return false, syscall.EINVAL
	case dst.slash && !src.inode.mode.IsDir():
		return false, syscall.ENOTDIR
	case dst.inode == nil:
		return false, nil
	case dst.inode.mode.IsDir() && f.inside(src.dir, dst.inode.number):
		return false, syscall.ENOTEMPTY
	case dst.inode.number == src.inode.number:
		return true, nil
	case src.inode.mode.IsDir() && !dst.inode.mode.IsDir():
		return false, syscall.ENOTDIR
	case !src.inode.mode.IsDir() && dst.inode.mode.IsDir():
		return false, syscall.EISDIR
	case len(dst.inode.entries) > 0:
		return false, syscall.ENOTEMPTY
	}
	return false, nil
}

// inside reports whether directory n is top or a descendant of it.
func (f *FS) inside(n, top uint64) bool {
	for n != top {
		if n == rootNumber {
			return false
		}
		n = f.inode(n).parent
	}
	return true
}

// Chmod sets the permission bits. It follows symbolic links.
func (f *FS) Chmod(cwd, path string, perm fs.FileMode) error {
	return f.change(cwd, path, true, func(i *inode) error {
		i.chmod(perm)
		return nil
	})
}

func (i *inode) chmod(perm fs.FileMode) {
	i.mode = i.mode.Type() | permission(perm)
	i.ctime = time.Now()
}

// Chtimes sets the times and follows symbolic links. A zero time leaves one unchanged.
func (f *FS) Chtimes(cwd, path string, atime, mtime time.Time) error {
	return f.change(cwd, path, true, func(i *inode) error {
		i.chtimes(atime, mtime)
		return nil
	})
}

// Lchtimes is Chtimes without following a symbolic link in the last component.
func (f *FS) Lchtimes(cwd, path string, atime, mtime time.Time) error {
	return f.change(cwd, path, false, func(i *inode) error {
		i.chtimes(atime, mtime)
		return nil
	})
}

func (i *inode) chtimes(atime, mtime time.Time) {
	if !atime.IsZero() {
		i.atime = atime
	}
	if !mtime.IsZero() {
		i.mtime = mtime
	}
	i.ctime = time.Now()
}

// Truncate sets the size of a regular file. Added bytes read as zeros.
func (f *FS) Truncate(cwd, path string, size int64) error {
	return f.change(cwd, path, true, func(i *inode) error {
		switch {
		case i.mode.IsDir():
			return syscall.EISDIR
		case !i.mode.IsRegular():
			return syscall.EINVAL
		}
		if err := f.truncate(i, size); err != nil {
			return err
		}
		i.touch()
		return nil
	})
}

// change applies a function to the inode of a path.
func (f *FS) change(cwd, path string, follow bool, apply func(*inode) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.found(cwd, path, follow)
	if err != nil {
		return err
	}
	return apply(f.writable(p.inode.number))
}

// ReadDir returns the entries of a directory, sorted by name.
func (f *FS) ReadDir(cwd, path string) ([]*Info, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	p, err := f.found(cwd, path, true)
	if err != nil {
		return nil, err
	}
	if !p.inode.mode.IsDir() {
		return nil, syscall.ENOTDIR
	}
	return f.list(p.inode), nil
}

// list returns the entries of a directory, sorted by name.
func (f *FS) list(dir *inode) []*Info {
	infos := make([]*Info, 0, len(dir.entries))
	for name, n := range dir.entries {
		infos = append(infos, newInfo(name, f.inode(n)))
	}
	slices.SortFunc(infos, func(a, b *Info) int { return cmp.Compare(a.name, b.name) })
	return infos
}

// Realpath returns the absolute path of an existing file, without symbolic links, "." and "..".
func (f *FS) Realpath(cwd, path string) (string, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	p, err := f.found(cwd, path, true)
	if err != nil {
		return "", err
	}
	dir := p.dir
	if p.inode.mode.IsDir() {
		dir, p.name = p.inode.number, ""
	}
	at, err := f.path(dir)
	if err != nil {
		return "", err
	}
	if at == "" || p.name != "" {
		at += "/" + p.name
	}
	return at, nil
}

// permission returns the bits that chmod can set.
func permission(m fs.FileMode) fs.FileMode {
	return m & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
}
