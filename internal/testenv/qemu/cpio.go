package qemu

import (
	"fmt"
	"io"
)

// archive writes the "newc" form of cpio, which is what the kernel unpacks as
// its initial file system (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	w     io.Writer
	inode int
	err   error
}

// The types of entries, as in stat(2).
const (
	modeDir  = 0o040000
	modeFile = 0o100000
)

// dir adds a directory, given without a leading slash.
func (a *archive) dir(name string) { a.entry(name, modeDir|0o755, nil) }

// file adds an executable file.
func (a *archive) file(name string, data []byte) { a.entry(name, modeFile|0o755, data) }

// close writes the end mark and returns the first error.
func (a *archive) close() error {
	a.entry("TRAILER!!!", 0, nil)
	return a.err
}

func (a *archive) entry(name string, mode int, data []byte) {
	a.inode++
	// magic, then eight digits each: inode, mode, uid, gid, links, time, size,
	// device, device of a device file, length of the name with its NUL, checksum.
	header := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		a.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.padded([]byte(header + name + "\x00"))
	a.padded(data)
}

// padded writes b and as many NULs as bring it to a multiple of four.
func (a *archive) padded(b []byte) {
	for _, part := range [][]byte{b, make([]byte, (4-len(b)%4)%4)} {
		if a.err == nil {
			_, a.err = a.w.Write(part)
		}
	}
}
