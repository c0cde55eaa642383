package local

import "golang.org/x/sys/unix"

// openSubdir opens a directory that is not a link. A mount shows by its device.
func openSubdir(dir int, name string) (int, error) {
	return unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// chmodNoFollow sets the mode of a file, of the link itself if it is one.
func chmodNoFollow(dir int, name string, mode uint32) error {
	return unix.Fchmodat(dir, name, mode, unix.AT_SYMLINK_NOFOLLOW)
}
