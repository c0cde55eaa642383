//go:build unix

package guest

import (
	"io/fs"
	"syscall"
)

// openNonblock makes open(2) of a FIFO return at once.
const openNonblock = syscall.O_NONBLOCK

// inode returns the number of a file.
func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
