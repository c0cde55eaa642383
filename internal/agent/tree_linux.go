package agent

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// fsReadDir lists the entries of a directory after the name after, in byte order. It keeps at most
// limit names, however large the directory is.
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
	if err := refuseKernelFile(fd); err != nil {
		return nil, err
	}
	if limit <= 0 || limit > maxListing {
		limit = maxListing
	}
	var page []string // sorted, at most limit names
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
		info, err := statInfo(fd, name)
		if err != nil {
			continue // a program has just removed it
		}
		if size += len(info.Name) + len(info.Target) + 64; size > maxListData && len(infos) > 0 {
			whole = false // the host asks again from here
			break
		}
		infos = append(infos, info)
	}
	return wire.AppendListing(make([]byte, 0, size), whole, infos), nil
}

// eachName calls f for each entry of an open directory until f returns false.
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

// firstNames returns the first entries of an open directory, none if it is empty. It returns
// several at once because some kernels list a changed directory again from its start.
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

// maxNames is the most names that firstNames returns.
const maxNames = 256

func (a *agent) fsRemove(path string, recursive bool) error {
	dir, name, err := a.openParent(path, false)
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

// dirID identifies one directory on the path down a tree.
type dirID struct {
	dev, ino uint64
	name     string
}

// removeContents empties the open directory and closes it. It holds two descriptors at any depth:
// it descends by name and ascends by "..", and verifies that the parent is the directory it came
// from. It removes links without following them, and enters no other mount.
func removeContents(fd int) error {
	defer func() { unix.Close(fd) }()
	top, err := dirIdentity(fd)
	if err != nil {
		return err
	}
	stack := []dirID{top}
	for {
		child, err := removeEntries(fd)
		if err != nil {
			return err
		}
		if child != "" { // not empty: descend
			next, id, err := openSubdir(fd, child, top.dev, len(stack))
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
		up, err := openParentDir(fd, stack[len(stack)-1])
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

// removeEntries removes the entries of fd and returns the name of the first directory that is not
// empty, "" when fd is empty.
func removeEntries(fd int) (string, error) {
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

// openSubdir opens a directory below fd on the same device.
func openSubdir(fd int, name string, dev uint64, depth int) (int, dirID, error) {
	if depth >= maxTree {
		return -1, dirID{}, unix.ELOOP
	}
	next, err := openAt(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, dirID{}, err
	}
	id, err := dirIdentity(next)
	if err == nil && id.dev != dev {
		err = unix.EXDEV
	}
	if err != nil {
		unix.Close(next)
		return -1, dirID{}, err
	}
	return next, id, nil
}

// openParentDir opens the parent of fd and verifies its identity.
func openParentDir(fd int, want dirID) (int, error) {
	up, err := openAt(fd, "..", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	id, err := dirIdentity(up)
	if err == nil && (id.dev != want.dev || id.ino != want.ino) {
		err = unix.EBUSY // a program has moved the directory meanwhile
	}
	if err != nil {
		unix.Close(up)
		return -1, err
	}
	return up, nil
}

func dirIdentity(fd int) (dirID, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return dirID{dev: st.Dev, ino: st.Ino}, err
}

// fileChange is one change to an open file: that of fsChmod or fsChown.
type fileChange func(fd int) error

func (a *agent) fsChmod(path string, mode uint32, recursive bool) error {
	if err := checkMode(mode); err != nil {
		return err
	}
	return a.change(path, recursive, func(fd int) error { return chmod(fd, mode) })
}

// fsChown changes the user and group of files.
func (a *agent) fsChown(path string, uid, gid uint32, recursive bool) error {
	return a.change(path, recursive, func(fd int) error { return chown(fd, uid, gid) })
}

// change applies c to path and, if recursive, to everything below it. It follows a symbolic link at
// path itself, but no magic link.
func (a *agent) change(path string, recursive bool, c fileChange) error {
	abs, err := a.absolute(path)
	if err != nil {
		return err
	}
	fd, st, err := openPath(unix.AT_FDCWD, abs, 0)
	if err != nil {
		return err
	}
	if recursive && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return c.applyTree(fd, 0)
	}
	defer unix.Close(fd)
	return c(fd)
}

// maxChangeDepth bounds the descriptors that a recursive change holds.
const maxChangeDepth = 200

// applyTree changes a directory, children before parents, so that a mode without search permission
// does not stop it. It skips symbolic links, and closes found.
func (c fileChange) applyTree(found, depth int) error {
	fd, err := openAt(found, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	unix.Close(found)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if depth > maxChangeDepth {
		return unix.ELOOP
	}
	var failed error
	err = eachName(fd, func(name string) bool {
		failed = c.applyEntry(fd, name, depth)
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	if err != nil {
		return err
	}
	return c(fd)
}

// applyEntry changes name in an open directory and everything below it.
func (c fileChange) applyEntry(dir int, name string, depth int) error {
	fd, st, err := openPath(dir, name, unix.O_NOFOLLOW)
	if err == unix.ENOENT {
		return nil // a program has just removed it
	}
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return c.applyTree(fd, depth+1)
	}
	defer unix.Close(fd)
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil
	}
	return c(fd)
}
