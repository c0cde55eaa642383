package local

import (
	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// renameNew renames without replacing.
func renameNew(from, to string) error {
	err := unix.RenamexNp(from, to, unix.RENAME_EXCL)
	if err == unix.ENOTSUP {
		return sandbar.Errorf(sandbar.Unsupported, "rename without replacing: %w", err)
	}
	return err
}

// openSubdir opens a directory that is not a link. A mount is detected by its device.
func openSubdir(dir int, name string) (int, error) {
	return unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// chmodNoFollow sets the mode of a file, or of the link itself.
func chmodNoFollow(dir int, name string, mode uint32) error {
	return unix.Fchmodat(dir, name, mode, unix.AT_SYMLINK_NOFOLLOW)
}
