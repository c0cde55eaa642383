package image

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncTree has everything in a directory on the disk when it returns: one call
// for the whole file system instead of one for each of its thousands of files.
func syncTree(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}
