package local

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// renameNew renames without replacing (RENAME_NOREPLACE).
func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if err == unix.ENOSYS {
		return sandbar.Errorf(sandbar.Unsupported, "rename without replacing: %w", err)
	}
	return err
}

// openSubdir opens a directory that is neither a link nor a mount point (openat2(2), Linux 5.6).
// Older kernels cannot distinguish a mount of the same file system from a directory.
func openSubdir(dir int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: flags,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV})
	// EPERM: a container's seccomp profile denies openat2
	if err == unix.ENOSYS || err == unix.EPERM {
		return unix.Openat(dir, name, flags, 0)
	}
	return fd, err
}

// chmodNoFollow sets the mode of a file that is not a link. Linux before 6.6 has no fchmodat2(2)
// and needs /proc.
func chmodNoFollow(dir int, name string, mode uint32) error {
	err := unix.Fchmodat(dir, name, mode, unix.AT_SYMLINK_NOFOLLOW)
	if err != unix.EOPNOTSUPP && err != unix.ENOSYS {
		return err
	}
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil
	}
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode)
}
