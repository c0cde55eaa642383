package agent

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// This file is the agent's only way from a name in the guest's tree to a file. A test
// (TestNamesAreResolvedSafely) forbids every other call that resolves one.
//
// A program may exchange any part of a name at any moment. So a name is resolved once,
// by openat2(2) without the magic links of /proc, which lead to files that have no name
// in the tree: the agent's program, its descriptors, other processes' roots. The inode
// found is checked and changed by its descriptor; the name is not used again.

// openAt opens path below dir. A magic link is ELOOP.
func openAt(dir int, path string, flags uint64, mode uint32) (int, error) {
	return unix.Openat2(dir, path, &unix.OpenHow{
		Flags: flags | unix.O_CLOEXEC, Mode: uint64(mode), Resolve: unix.RESOLVE_NO_MAGICLINKS})
}

// find returns an O_PATH descriptor of what path names below dir, and describes it.
// flags may have O_NOFOLLOW and O_DIRECTORY. A file of the kernel's is EACCES.
func openPath(dir int, path string, flags uint64) (fd int, st unix.Stat_t, err error) {
	fd, err = openAt(dir, path, unix.O_PATH|flags, 0)
	if err != nil {
		return -1, st, err
	}
	if err = refuseKernelFile(fd); err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

// kernelFiles are the file systems whose files are the kernel's. In /proc the agent
// would reach its own entries, where a program would reach the program's.
var kernelFileSystems = []int64{
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEBUGFS_MAGIC,
	unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.BPF_FS_MAGIC, unix.NSFS_MAGIC, unix.PIPEFS_MAGIC, unix.SOCKFS_MAGIC,
	unix.ANON_INODE_FS_MAGIC,
}

// ordinary refuses a file that is the kernel's.
func refuseKernelFile(fd int) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return err
	}
	if slices.Contains(kernelFileSystems, int64(fs.Type)) {
		return unix.EACCES
	}
	return nil
}

// regular refuses what is not a regular file, and files of the kernel's.
func requireRegular(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return unix.EISDIR
	default:
		return unix.ENXIO
	}
	return refuseKernelFile(fd)
}

// absolute checks a path and makes it absolute.
func (a *agent) absolute(path string) (string, error) {
	switch {
	case path == "":
		return "", unix.ENOENT
	case len(path) >= maxPath:
		return "", unix.ENAMETOOLONG
	case strings.IndexByte(path, 0) >= 0:
		return "", unix.EINVAL
	case path[0] != '/':
		return a.dir + "/" + path, nil
	}
	return path, nil
}

// split returns the directory of a path and the name in it. A path that ends in
// a slash, "." or ".." names a directory by another name; it has no name here.
func split(path string) (dir, name string, err error) {
	path = strings.TrimRight(path, "/")
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", "", unix.EINVAL // the root
	}
	dir, name = path[:i+1], path[i+1:]
	if len(name) > maxName {
		return "", "", unix.ENAMETOOLONG
	}
	if name == "." || name == ".." {
		return "", "", unix.EINVAL
	}
	return dir, name, nil
}

// openDir opens the directory of path, and makes it if parents, and returns the last
// name of path.
func (a *agent) openParent(path string, parents bool) (fd int, name string, err error) {
	path, err = a.absolute(path)
	if err != nil {
		return -1, "", err
	}
	dir, name, err := split(path)
	if err != nil {
		return -1, "", err
	}
	fd, err = openAt(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == unix.ENOENT && parents {
		fd, err = makeDirs(dir)
	}
	if err != nil {
		return -1, "", err
	}
	if err := refuseKernelFile(fd); err != nil {
		unix.Close(fd)
		return -1, "", err
	}
	return fd, name, nil
}

// makeDirs makes the missing directories of an absolute path and opens the last.
func makeDirs(path string) (fd int, err error) {
	fd, err = openAt(unix.AT_FDCWD, "/", unix.O_PATH|unix.O_DIRECTORY, 0)
	for part := range strings.SplitSeq(path, "/") {
		if err != nil {
			return -1, err
		}
		if part == "" {
			continue
		}
		made := unix.Mkdirat(fd, part, 0o755)
		next, nerr := openAt(fd, part, unix.O_PATH|unix.O_DIRECTORY, 0)
		unix.Close(fd)
		if fd, err = next, nerr; err == unix.ENOENT && made != nil && made != unix.EEXIST {
			err = made
		}
	}
	return fd, err
}

// possibleMode is the bits that files may be given: those of permission, and the
// sticky bit. Set-user-ID and set-group-ID give nothing in a sandbox, and harm where
// a file of the host's is reached.
const allowedMode = 0o1777

func checkMode(mode uint32) error {
	if mode&^allowedMode != 0 {
		return unix.EINVAL
	}
	return nil
}

// chmod changes the mode of what find has found. Before Linux 6.6 no call does that
// to an O_PATH descriptor.
func chmod(fd int, mode uint32) error {
	err := unix.Fchmodat(fd, "", mode, unix.AT_EMPTY_PATH)
	if err == unix.EOPNOTSUPP {
		return chmodByProc(fd, mode)
	}
	return err
}

// chmodByProc is chmod by the magic link of the agent's own descriptor. The link leads
// to the inode that find has checked, if the directory is the kernel's: /proc is a mount
// that no program can replace, and that is checked.
func chmodByProc(fd int, mode uint32) error {
	dir, err := openAt(unix.AT_FDCWD, "/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	var fs unix.Statfs_t
	if err := unix.Fstatfs(dir, &fs); err != nil {
		return err
	}
	if int64(fs.Type) != unix.PROC_SUPER_MAGIC {
		return unix.EOPNOTSUPP
	}
	return unix.Fchmodat(dir, strconv.Itoa(fd), mode, 0)
}

// chown changes the owner of what find has found. An id that the sandbox does not
// have is refused as one that is somebody else's.
func chown(fd int, uid, gid uint32) error {
	err := unix.Fchownat(fd, "", int(uid), int(gid), unix.AT_EMPTY_PATH)
	if err == unix.EINVAL {
		return unix.EPERM
	}
	return err
}

// lstat describes name in an open directory, a link itself.
func lstat(dir int, name string) (st unix.Stat_t, err error) {
	err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

// readLink reads a link of an open directory that find or openDir has checked.
func readLink(dir int, name string) string {
	buf := make([]byte, maxPath)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}
