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
	if err := refuseKernelFile(fd); err != nil {
		return nil, err
	}
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
		info, err := statInfo(fd, name)
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

// level is one directory on the way down a tree.
type dirID struct {
	dev, ino uint64
	name     string
}

// removeContents empties the open directory and closes it. However deep the
// tree, it holds two descriptors: it goes down by name and up by "..", and
// checks that up is where it came from. Links are removed, never followed;
// a mount is not entered.
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
		if child != "" { // a directory that is not empty: go down
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

// removeFlat removes everything in fd that goes at once and returns the name of
// a directory that does not, "" when fd is empty.
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

// enter opens a directory below fd that is on the same mount.
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

// leave opens the parent of fd and checks that it is the directory expected.
func openParentDir(fd int, want dirID) (int, error) {
	up, err := openAt(fd, "..", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	id, err := dirIdentity(up)
	if err == nil && (id.dev != want.dev || id.ino != want.ino) {
		err = unix.EBUSY // a program moved the tree while we were in it
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

// change is what fsChmod and fsChown do to a file that find has found.
type fileChange func(fd int) error

func (a *agent) fsChmod(path string, mode uint32, recursive bool) error {
	if err := checkMode(mode); err != nil {
		return err
	}
	return a.change(path, recursive, func(fd int) error { return chmod(fd, mode) })
}

// fsChown gives files to a user and a group.
func (a *agent) fsChown(path string, uid, gid uint32, recursive bool) error {
	return a.change(path, recursive, func(fd int) error { return chown(fd, uid, gid) })
}

// change changes path, and what is below it. A link at path itself is followed, if it
// is not a magic one.
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

// maxChangeDepth bounds the descriptors a recursive change holds.
const maxChangeDepth = 200

// tree changes a directory that find has found, children before parents, so that a mode
// without the right to search does not stop it. Links are left alone. It closes found.
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

// entry changes name in an open directory, and what is below it.
func (c fileChange) applyEntry(dir int, name string, depth int) error {
	fd, st, err := openPath(dir, name, unix.O_NOFOLLOW)
	if err == unix.ENOENT {
		return nil // it has just been removed
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
