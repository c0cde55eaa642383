package agent

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// fsReadDir lists the first entries of a directory, in the order of their
// names, after the name after. Memory is bounded by the page, not the directory.
func (a *agent) fsReadDir(path, after string, limit int) ([]byte, error) {
	path, err := a.absolute(path)
	if err != nil {
		return nil, err
	}
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if limit <= 0 || limit > maxListing {
		limit = maxListing
	}
	var page []string // sorted, at most limit
	err = eachName(fd, func(name string) bool {
		if name <= after && after != "" {
			return true
		}
		if len(page) == limit && name >= page[limit-1] {
			return true
		}
		i, _ := slices.BinarySearch(page, name)
		if len(page) == limit {
			page = page[:limit-1]
		}
		page = slices.Insert(page, i, name)
		return true
	})
	if err != nil {
		return nil, err
	}
	infos := make([]wire.FileInfo, 0, len(page))
	whole, size := len(page) < limit, 0
	for _, name := range page {
		info, err := statInfo(fd, name, unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			continue // it has just been removed
		}
		if size += len(info.Name) + len(info.Target) + 64; size > maxListData && len(infos) > 0 {
			whole = false // the host asks again, from here
			break
		}
		infos = append(infos, info)
	}
	return wire.AppendListing(make([]byte, 0, size), whole, infos), nil
}

// eachName calls f for the entries of an open directory until f returns false.
func eachName(fd int, f func(name string) bool) error {
	buf := make([]byte, 16<<10)
	names := make([]string, 0, 64)
	for {
		n, err := unix.ReadDirent(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		for rest := buf[:n]; len(rest) > 0; {
			var used int
			used, _, names = syscall.ParseDirent(rest, -1, names[:0])
			rest = rest[used:]
			for _, name := range names {
				if !f(name) {
					return nil
				}
			}
			if used == 0 {
				break
			}
		}
	}
}

// firstNames returns the first entries of an open directory, none if it is empty.
// They are several because some kernels list a directory anew, however large, when
// it has changed.
func firstNames(fd int) (names []string, err error) {
	if _, err := unix.Seek(fd, 0, 0); err != nil {
		return nil, err
	}
	err = eachName(fd, func(n string) bool {
		names = append(names, n)
		return len(names) < maxNames
	})
	return names, err
}

// maxNames is how many names are looked at together.
const maxNames = 256

func (a *agent) fsRemove(path string, recursive bool) error {
	dir, name, err := a.openDir(path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	err = unix.Unlinkat(dir, name, 0)
	if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if !recursive || (err != unix.ENOTEMPTY && err != unix.EEXIST) {
		return err
	}
	fd, err := openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	if err := removeContents(fd); err != nil {
		return err
	}
	return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
}

// level is one directory on the way down a tree.
type level struct {
	dev, ino uint64
	name     string
}

// removeContents empties the open directory and closes it. However deep the
// tree, it holds two descriptors: it goes down by name and up by "..", and
// checks that up is where it came from. Links are removed, never followed;
// a mount is not entered.
func removeContents(fd int) error {
	defer func() { unix.Close(fd) }()
	top, err := identify(fd)
	if err != nil {
		return err
	}
	stack := []level{top}
	for {
		child, err := removeFlat(fd)
		if err != nil {
			return err
		}
		if child != "" { // a directory that is not empty: go down
			next, id, err := enter(fd, child, top.dev, len(stack))
			if err != nil {
				return err
			}
			id.name = child
			unix.Close(fd)
			fd = next
			stack = append(stack, id)
			continue
		}
		if len(stack) == 1 {
			return nil
		}
		name := stack[len(stack)-1].name
		stack = stack[:len(stack)-1]
		up, err := leave(fd, stack[len(stack)-1])
		if err != nil {
			return err
		}
		unix.Close(fd)
		fd = up
		if err := unix.Unlinkat(fd, name, unix.AT_REMOVEDIR); err != nil {
			return err
		}
	}
}

// removeFlat removes everything in fd that goes at once and returns the name of
// a directory that does not, "" when fd is empty.
func removeFlat(fd int) (string, error) {
	for {
		names, err := firstNames(fd)
		if err != nil || len(names) == 0 {
			return "", err
		}
		for _, name := range names {
			err = unix.Unlinkat(fd, name, 0)
			if err == unix.EISDIR || err == unix.EPERM {
				err = unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
			}
			switch err {
			case nil, unix.ENOENT:
			case unix.ENOTEMPTY, unix.EEXIST:
				return name, nil
			default:
				return "", err
			}
		}
	}
}

// enter opens a directory below fd that is on the same mount.
func enter(fd int, name string, dev uint64, depth int) (int, level, error) {
	if depth >= maxTree {
		return -1, level{}, unix.ELOOP
	}
	next, err := openAt(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, level{}, err
	}
	id, err := identify(next)
	if err == nil && id.dev != dev {
		err = unix.EXDEV
	}
	if err != nil {
		unix.Close(next)
		return -1, level{}, err
	}
	return next, id, nil
}

// leave opens the parent of fd and checks that it is the directory expected.
func leave(fd int, want level) (int, error) {
	up, err := openAt(fd, "..", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	id, err := identify(up)
	if err == nil && (id.dev != want.dev || id.ino != want.ino) {
		err = unix.EBUSY // a program moved the tree while we were in it
	}
	if err != nil {
		unix.Close(up)
		return -1, err
	}
	return up, nil
}

func identify(fd int) (level, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return level{dev: st.Dev, ino: st.Ino}, err
}

// change is what fsChmod and fsChown do to a file: to an open one, and to name
// in the directory dir, which is no link.
type change struct {
	open func(fd int) error
	at   func(dir int, name string) error
}

func (a *agent) fsChmod(path string, mode uint32, recursive bool) error {
	mode &= 0o7777
	return a.change(path, recursive, change{
		open: func(fd int) error { return unix.Fchmod(fd, mode) },
		at:   func(dir int, name string) error { return unix.Fchmodat(dir, name, mode, 0) },
	})
}

// fsChown gives files to a user and a group. An id that the sandbox does not
// have is refused as one that is somebody else's.
func (a *agent) fsChown(path string, uid, gid uint32, recursive bool) error {
	return a.change(path, recursive, change{
		open: func(fd int) error { return refused(unix.Fchown(fd, int(uid), int(gid))) },
		at: func(dir int, name string) error {
			return refused(unix.Fchownat(dir, name, int(uid), int(gid), 0))
		},
	})
}

// refused is what the kernel says of a change of owner, and of an id that it has
// no number for.
func refused(err error) error {
	if err == unix.EINVAL {
		return unix.EPERM
	}
	return err
}

// change changes path, and what is below it. A link at path itself is followed.
func (a *agent) change(path string, recursive bool, c change) error {
	abs, err := a.absolute(path)
	if err != nil {
		return err
	}
	if !recursive {
		return c.at(unix.AT_FDCWD, abs)
	}
	fd, err := openAt(unix.AT_FDCWD, abs, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err == unix.ENOTDIR {
		return c.at(unix.AT_FDCWD, abs)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := c.below(fd, 0); err != nil {
		return err
	}
	// Last, so that a mode without the right to search does not stop us.
	return c.open(fd)
}

// maxChangeDepth bounds the descriptors a recursive change holds.
const maxChangeDepth = 200

// below changes everything in fd, children before parents. Links are left
// alone.
func (c change) below(fd, depth int) error {
	if depth > maxChangeDepth {
		return unix.ELOOP
	}
	var failed error
	err := eachName(fd, func(name string) bool {
		failed = c.entry(fd, name, depth)
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	return err
}

func (c change) entry(dir int, name string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil // it has just been removed
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return nil
	case unix.S_IFDIR:
		fd, err := openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := c.below(fd, depth+1); err != nil {
			return err
		}
		return c.open(fd)
	}
	return c.at(dir, name)
}
