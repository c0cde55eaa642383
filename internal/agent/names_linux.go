package agent

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// This file is the only way from a path in the guest's tree to a file. TestNamesAreResolvedSafely
// forbids every other call that resolves one.
//
// A program may replace any component of a path at any moment. So a path is resolved once, by
// openat2(2) with RESOLVE_NO_MAGICLINKS. The magic links of /proc lead to files without a name in
// the tree: the agent's executable, its descriptors, the roots of other processes. The inode that
// was found is checked and changed through its descriptor; the path is not used again.

// openAt opens path below dir. A magic link is ELOOP.
func openAt(dir int, path string, flags uint64, mode uint32) (int, error) {
	return unix.Openat2(dir, path, &unix.OpenHow{
		Flags: flags | unix.O_CLOEXEC, Mode: uint64(mode), Resolve: unix.RESOLVE_NO_MAGICLINKS})
}

// openDir opens a directory. A link at any place of its path is ELOOP.
func openDir(path string) (int, error) {
	return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
}

// openPath returns an O_PATH descriptor of path below dir, with its stat. flags may have O_NOFOLLOW
// and O_DIRECTORY. A file of a kernel file system is EACCES.
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

// kernelFileSystems are the file systems whose files are interfaces of the kernel. In /proc an
// operation would reach the agent's own entries instead of the program's.
var kernelFileSystems = []int64{
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEBUGFS_MAGIC,
	unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.BPF_FS_MAGIC, unix.NSFS_MAGIC, unix.PIPEFS_MAGIC, unix.SOCKFS_MAGIC,
	unix.ANON_INODE_FS_MAGIC,
}

// refuseKernelFile returns EACCES for a file of a kernel file system.
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

// requireRegular returns EISDIR for a directory, ENXIO for any other file that is not regular, and
// EACCES for a file of a kernel file system.
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

// split returns the directory of a path and the last name in it. A path that ends in a slash, "."
// or ".." is EINVAL: it names a directory that has another name in its parent.
func split(path string) (dir, name string, err error) {
	path = strings.TrimRight(path, "/")
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", "", unix.EINVAL // the root directory
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

// openParent opens the parent directory of path, after creating missing ones if parents is set, and
// returns the last name of path.
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

// makeDirs creates the missing directories of an absolute path and opens the last.
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

// allowedMode has the mode bits that a request may set: permissions and the sticky bit. Set-user-ID
// and set-group-ID have no effect in a sandbox (nosuid), and would be harmful on a file that the
// host shares.
const allowedMode = 0o1777

func checkMode(mode uint32) error {
	if mode&^allowedMode != 0 {
		return unix.EINVAL
	}
	return nil
}

// chmod changes the mode of a descriptor of openPath. Linux before 6.6 has no fchmodat2(2), and
// fchmod(2) refuses O_PATH descriptors.
func chmod(fd int, mode uint32) error {
	err := unix.Fchmodat(fd, "", mode, unix.AT_EMPTY_PATH)
	if err == unix.EOPNOTSUPP {
		return chmodByProc(fd, mode)
	}
	return err
}

// chmodByProc changes the mode through the magic link of the agent's own descriptor, which leads to
// the inode that openPath has checked. That holds only if the directory is procfs, so its type is
// checked; programs cannot unmount or replace /proc.
func chmodByProc(fd int, mode uint32) error {
	dir, err := openDescriptors()
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return unix.Fchmodat(dir, strconv.Itoa(fd), mode, 0)
}

// openDescriptors opens the directory of the agent's own descriptors. EOPNOTSUPP: it is not procfs.
func openDescriptors() (int, error) {
	dir, err := openAt(unix.AT_FDCWD, "/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	var fs unix.Statfs_t
	if err = unix.Fstatfs(dir, &fs); err == nil && int64(fs.Type) != unix.PROC_SUPER_MAGIC {
		err = unix.EOPNOTSUPP
	}
	if err != nil {
		unix.Close(dir)
		return -1, err
	}
	return dir, nil
}

// watchDir adds an open directory to an inotify instance. inotify_add_watch(2) takes only a path,
// so the path is that of the agent's own descriptor, as in chmodByProc.
func watchDir(inotify, fd int, mask uint32) (int, error) {
	dir, err := openDescriptors()
	if err != nil {
		return -1, err
	}
	unix.Close(dir)
	return unix.InotifyAddWatch(inotify, "/proc/self/fd/"+strconv.Itoa(fd), mask)
}

// openBelow opens a directory below dir for reading its entries; "" is dir itself. A link at any
// place of the path is ELOOP.
func openBelow(dir int, path string) (int, error) {
	if path == "" {
		path = "."
	}
	fd, err := unix.Openat2(dir, path, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH})
	if err != nil {
		return -1, err
	}
	if err := refuseKernelFile(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// chown changes the owner of a descriptor of openPath. An id that the user namespace does not map
// is EINVAL in the kernel; callers get EPERM.
func chown(fd int, uid, gid uint32) error {
	err := unix.Fchownat(fd, "", int(uid), int(gid), unix.AT_EMPTY_PATH)
	if err == unix.EINVAL {
		return unix.EPERM
	}
	return err
}

// lstat describes name in an open directory, without following a link.
func lstat(dir int, name string) (st unix.Stat_t, err error) {
	err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

// readLink reads a link in a directory that openPath or openParent has checked. It returns "" on an
// error.
func readLink(dir int, name string) string {
	buf := make([]byte, maxPath)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// openEntry opens an entry of an open directory, "." or "..". A link is ELOOP, unless flags have
// O_PATH: then it is opened itself. Another file system is EXDEV.
func openEntry(dir int, name string, flags uint64) (int, error) {
	return unix.Openat2(dir, name, &unix.OpenHow{Flags: flags | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV})
}

// createEntry creates a file in an open directory. EEXIST: there is an entry with this name.
func createEntry(dir int, name string) (int, error) {
	return unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Mode: 0o600, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV})
}

// linkIn makes name in dir another name of an entry of an open directory. It follows no link.
func linkIn(fromDir int, from string, dir int, name string) error {
	return unix.Linkat(fromDir, from, dir, name, 0)
}

// symlinkIn makes a symbolic link in an open directory.
func symlinkIn(dir int, name, text string) error { return unix.Symlinkat(text, dir, name) }

// setTimes sets the times of an entry of an open directory; "" is the descriptor itself.
func setTimes(dir int, name string, ns int64) error {
	t := unix.NsecToTimespec(ns)
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags = unix.AT_EMPTY_PATH
	}
	return unix.UtimesNanoAt(dir, name, []unix.Timespec{t, t}, flags)
}

// renameBySteps renames without RENAME_NOREPLACE, which gVisor lacks for a volume of the host. Each
// step fails if the new name exists. No step follows a link.
func renameBySteps(fromDir int, fromName string, toDir int, toName string) error {
	st, err := lstat(fromDir, fromName)
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if err := linkIn(fromDir, fromName, toDir, toName); err != nil {
			return err
		}
		return unix.Unlinkat(fromDir, fromName, 0)
	}
	if err := unix.Mkdirat(toDir, toName, 0o700); err != nil {
		return err
	}
	err = unix.Renameat(fromDir, fromName, toDir, toName) // replaces an empty directory
	if err != nil {
		_ = unix.Unlinkat(toDir, toName, unix.AT_REMOVEDIR)
	}
	return err
}
