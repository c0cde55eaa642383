//go:build unix

package local

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Trees are walked by descriptors, one directory at a time and never through a link. So the walk
// stays below its start, even if directories are exchanged meanwhile.

const nonblock = syscall.O_NONBLOCK

// errQuota is the error for an exhausted disk quota.
const errQuota = syscall.EDQUOT

func owner(info fs.FileInfo) (uid, gid uint32) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Uid, st.Gid
	}
	return 0, 0
}

// renameFile renames with the kernel's own checks only, unlike os.Rename.
func renameFile(from, to string) error {
	err := syscall.Rename(from, to)
	if err == syscall.EEXIST {
		return syscall.ENOTEMPTY // rename(2) may return either for a directory that is not empty
	}
	return err
}

// notLink makes an open fail at a link.
const notLink = syscall.O_NOFOLLOW

// openDir opens a directory, and nothing else.
func openDir(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|nonblock, 0)
}

// openBelow opens the directory called name in dir, unless it is a link or, if the kernel can tell,
// a mount point.
func openBelow(dir *os.File, name string) (*os.File, error) {
	fd, err := openSubdir(int(dir.Fd()), name)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// removal removes a tree.
type removal struct {
	ctx   context.Context
	force bool     // change directories that deny access, if they are this user's
	dev   uint64   // the device of the tree, which is not left
	top   *os.File // destination of branches that are too deep
	moved int      // number of moved branches
}

// maxDepth is the number of directories that a removal holds open. Deeper branches are first moved
// to the top, since a tree can be as deep as its file system allows.
const maxDepth = 64

// removeTree removes path and everything below it. It crosses no mount: mount points and their
// parents stay, and the error is EBUSY.
func removeTree(ctx context.Context, path string) error {
	return (&removal{ctx: ctx}).run(path)
}

// removeAll removes a directory of the driver, whatever permissions a program has set in it. A
// missing directory is no error.
func removeAll(path string) error {
	err := (&removal{ctx: context.Background(), force: true}).run(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (r *removal) run(path string) error {
	above, name := splitLast(path)
	if name == "" || name == "." || name == ".." {
		return unix.EINVAL
	}
	parent, err := openDir(above)
	if err != nil {
		return err
	}
	defer parent.Close()
	var st unix.Stat_t
	if err := unix.Fstatat(int(parent.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	r.dev = uint64(st.Dev)
	return r.entry(parent, name, 0)
}

// entry removes one name in dir.
func (r *removal) entry(dir *os.File, name string, depth int) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	fd := int(dir.Fd())
	err := unix.Unlinkat(fd, name, 0)
	if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	if rerr := unix.Unlinkat(fd, name, unix.AT_REMOVEDIR); rerr == nil || rerr == unix.ENOTDIR {
		return orNil(rerr == nil, err)
	}
	if depth == maxDepth {
		return r.moveUp(dir, name)
	}
	if err := r.branch(dir, name, depth); err != nil {
		return err
	}
	return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
}

func orNil(ok bool, err error) error {
	if ok {
		return nil
	}
	return err
}

// branch empties the directory called name.
func (r *removal) branch(dir *os.File, name string, depth int) error {
	sub, err := openBelow(dir, name)
	if r.force && errors.Is(err, unix.EACCES) {
		// no program is left that could put a link here
		if err := unix.Fchmodat(int(dir.Fd()), name, 0o700, 0); err != nil {
			return err
		}
		sub, err = openBelow(dir, name)
	}
	if err != nil {
		return err
	}
	defer sub.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(sub.Fd()), &st); err != nil {
		return err
	}
	if uint64(st.Dev) != r.dev {
		return unix.EBUSY
	}
	if r.force {
		unix.Fchmod(int(sub.Fd()), 0o700)
	}
	if depth == 0 {
		r.top = sub
	}
	return r.contents(sub, depth)
}

// contents removes everything in dir. Some file systems skip names if files are removed during a
// listing, so it lists until nothing is left.
func (r *removal) contents(dir *os.File, depth int) error {
	for {
		names, err := dir.Readdirnames(256)
		if err != nil && err != io.EOF {
			return err
		}
		if len(names) == 0 {
			return nil
		}
		for _, n := range names {
			if err := r.entry(dir, n, depth+1); err != nil && err != unix.ENOENT {
				return err
			}
		}
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
}

// moveUp moves a branch that is too deep to the top directory, which is listed again until it is
// empty.
func (r *removal) moveUp(dir *os.File, name string) error {
	if r.force { // moving a directory requires write permission on it
		unix.Fchmodat(int(dir.Fd()), name, 0o700, 0)
	}
	for {
		r.moved++
		to := ".sandbar-deep-" + strconv.Itoa(r.moved)
		err := unix.Renameat(int(dir.Fd()), name, int(r.top.Fd()), to)
		if err != unix.EEXIST && err != unix.ENOTEMPTY && err != unix.ENOTDIR && err != unix.EISDIR {
			return err
		}
	}
}

// changeDepth bounds the depth of a recursive chmod or chown, since each level holds a descriptor.
// Deeper trees are ELOOP.
const changeDepth = 512

// chmodBelow sets the mode of everything below path. It skips links and crosses no mount.
func chmodBelow(ctx context.Context, path string, mode fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return err
	}
	dir, err := openDir(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return err
	}
	return chmodContents(ctx, dir, uint32(mode), uint64(st.Dev), 0)
}

func chmodContents(ctx context.Context, dir *os.File, mode uint32, dev uint64, depth int) error {
	if depth == changeDepth {
		return unix.ELOOP
	}
	return eachName(ctx, dir, func(name string) error { return chmodEntry(ctx, dir, name, mode, dev, depth) })
}

// eachName calls f for everything in dir. A name that was just removed is no error.
func eachName(ctx context.Context, dir *os.File, f func(name string) error) error {
	for {
		names, err := dir.Readdirnames(256)
		for _, n := range names {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := f(n); err != nil && err != unix.ENOENT {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// chmodEntry sets the mode of a file, or of a directory and its contents: the contents first if the
// new mode denies access to the directory.
func chmodEntry(ctx context.Context, dir *os.File, name string, mode uint32, dev uint64, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK, uint64(st.Dev) != dev:
		return nil
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return chmodNoFollow(int(dir.Fd()), name, mode)
	}
	before := mode | 0o700
	if err := chmodNoFollow(int(dir.Fd()), name, before); err != nil {
		return err
	}
	sub, err := openBelow(dir, name)
	if err == nil {
		err = chmodContents(ctx, sub, mode, dev, depth+1)
		sub.Close()
	}
	if err != nil && !errors.Is(err, unix.EXDEV) {
		return err
	}
	if before == mode {
		return nil
	}
	return chmodNoFollow(int(dir.Fd()), name, mode)
}

// chownTree changes the user and group of path and, with recursive, of everything below it. It
// skips links below path and crosses no mount.
func chownTree(ctx context.Context, path string, uid, gid uint32, recursive bool) error {
	if info, err := os.Lstat(path); recursive && err == nil && info.IsDir() {
		dir, err := openDir(path)
		if err != nil {
			return err
		}
		defer dir.Close()
		var st unix.Stat_t
		if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
			return err
		}
		c := chowner{ctx: ctx, uid: int(uid), gid: int(gid), dev: uint64(st.Dev)}
		if err := c.contents(dir, 0); err != nil {
			return err
		}
	}
	return unix.Chown(path, int(uid), int(gid))
}

// chowner changes the owner of a tree on one file system.
type chowner struct {
	ctx      context.Context
	uid, gid int
	dev      uint64
}

func (c chowner) contents(dir *os.File, depth int) error {
	if depth == changeDepth {
		return unix.ELOOP
	}
	return eachName(c.ctx, dir, func(name string) error { return c.entry(dir, name, depth) })
}

func (c chowner) entry(dir *os.File, name string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK || uint64(st.Dev) != c.dev {
		return nil
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		sub, err := openBelow(dir, name)
		if errors.Is(err, unix.EXDEV) {
			return nil
		}
		if err != nil {
			return err
		}
		defer sub.Close()
		if err := c.contents(sub, depth+1); err != nil {
			return err
		}
	}
	return unix.Fchownat(int(dir.Fd()), name, c.uid, c.gid, unix.AT_SYMLINK_NOFOLLOW)
}
