package image

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncTree flushes a directory tree to disk with one syncfs(2), instead of one fsync(2) for each of
// thousands of files.
func syncTree(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}
