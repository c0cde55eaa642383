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

// Stat describes what a path leads to; symbolic links are followed.
func (f *FS) Stat(cwd, path string) (*Info, error) { return f.stat(cwd, path, true) }

// Lstat describes what stands at a path; a link there is described itself.
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

// Mkdir makes a directory.
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

// MkdirAll makes a directory and those above it that are missing. One that
// exists is no error.
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
		case i == nil && (p.dir != dir || p.name != name): // a link that leads nowhere
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

// Symlink makes a symbolic link at path that holds target, which need not exist.
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

// Readlink returns what a symbolic link holds, EINVAL for anything else.
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

// Link makes another name, to, for the file from. Directories have one only.
// A link at from is not followed.
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
	if err := f.enter(dst.dir, dst.name, src.inode.number); err != nil {
		return err
	}
	i := f.own(src.inode.number)
	i.links++
	i.ctime = time.Now()
	return nil
}

// Mknod makes a device.
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

// Remove removes a name that is not a directory.
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
	f.leave(p.dir, p.name)
	f.drop(p.inode.number)
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
	f.leave(p.dir, p.name)
	f.drop(p.inode.number)
	return nil
}

// RemoveAll removes whatever stands at path with all that is in it, in one
// step. Links are removed, not followed. That nothing is there is no error;
// the root, "." and ".." cannot be removed (EBUSY, EINVAL).
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

// removeTree empties directories before it removes them, without recursion: a
// tree can be deeper than any path is long.
func (f *FS) removeTree(top place) {
	pending := []place{top}
	for len(pending) > 0 {
		p := pending[len(pending)-1]
		if len(p.inode.entries) == 0 {
			pending = pending[:len(pending)-1]
			f.leave(p.dir, p.name)
			f.drop(p.inode.number)
			continue
		}
		dir := f.own(p.inode.number)
		pending[len(pending)-1].inode = dir
		for name, n := range dir.entries {
			i := f.inode(n)
			if len(i.entries) > 0 {
				pending = append(pending, place{dir: dir.number, name: name, inode: i})
				continue
			}
			f.leave(dir.number, name)
			f.drop(n)
		}
	}
}

// lastName is the last name of a path as it is written.
func lastName(path string) string {
	path = strings.TrimRight(path, "/")
	return path[strings.LastIndexByte(path, '/')+1:]
}

// Rename moves from to to, replacing a file, a link or an empty directory that
// is there, in one step. Two names of the same file stay as they are.
func (f *FS) Rename(cwd, from, to string) error { return f.rename(cwd, from, to, false) }

// RenameNew is Rename, but whatever is at to stays, with EEXIST.
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
	if dst.inode == nil && !f.take(entryCharge(dst.name)) {
		return syscall.ENOSPC
	}
	if dst.inode != nil {
		f.leave(dst.dir, dst.name)
		f.drop(dst.inode.number)
		f.take(entryCharge(dst.name)) // just given back
	}
	f.leave(src.dir, src.name)
	d := f.own(dst.dir)
	d.entries[dst.name] = src.inode.number
	d.touch()
	moved := f.own(src.inode.number)
	moved.ctime = time.Now()
	if moved.mode.IsDir() && src.dir != dst.dir {
		moved.parent = dst.dir
		f.own(src.dir).links--
		f.own(dst.dir).links++
	}
	return nil
}

// checkRename tells why src cannot be moved to dst, or that both are one file.
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

// inside reports whether directory n is top or below it.
func (f *FS) inside(n, top uint64) bool {
	for n != top {
		if n == rootNumber {
			return false
		}
		n = f.inode(n).parent
	}
	return true
}

// Chmod sets the permission bits of what a path leads to.
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

// Chtimes sets the times of what a path leads to; a zero time leaves one as it is.
func (f *FS) Chtimes(cwd, path string, atime, mtime time.Time) error {
	return f.change(cwd, path, true, func(i *inode) error {
		i.chtimes(atime, mtime)
		return nil
	})
}

// Lchtimes is Chtimes without following a link in the last place.
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

// Truncate sets the size of a regular file; what is added reads as zeros.
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

// change applies a change to what a path leads to.
func (f *FS) change(cwd, path string, follow bool, apply func(*inode) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.found(cwd, path, follow)
	if err != nil {
		return err
	}
	return apply(f.own(p.inode.number))
}

// ReadDir lists a directory in the order of names.
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

// list describes the entries of a directory.
func (f *FS) list(dir *inode) []*Info {
	infos := make([]*Info, 0, len(dir.entries))
	for name, n := range dir.entries {
		infos = append(infos, newInfo(name, f.inode(n)))
	}
	slices.SortFunc(infos, func(a, b *Info) int { return cmp.Compare(a.name, b.name) })
	return infos
}

// Realpath returns the absolute path without links, "." and ".." of something
// that exists.
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

// permission keeps the bits that can be set.
func permission(m fs.FileMode) fs.FileMode {
	return m & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
}
