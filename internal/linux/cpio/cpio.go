// Package cpio writes cpio archives in the "newc" format, which the Linux kernel unpacks as its
// initial file system (Documentation/driver-api/early-userspace/buffer-format.rst).
package cpio

import (
	"fmt"
	"io"
)

// Writer writes an archive. Close returns the first error of any method.
type Writer struct {
	w     io.Writer
	inode int
	err   error
}

// NewWriter begins an archive.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// The types of entries, as in stat(2).
const (
	modeDir    = 0o040000
	modeFile   = 0o100000
	modeDevice = 0o020000
)

// Dir adds a directory with mode 0755. The name has no leading slash. Its parents must have been
// added before.
func (a *Writer) Dir(name string) { a.entry(name, modeDir|0o755, 0, 0, nil) }

// File adds a regular file with mode 0755.
func (a *Writer) File(name string, data []byte) { a.entry(name, modeFile|0o755, 0, 0, data) }

// Device adds a character device with mode 0600.
func (a *Writer) Device(name string, major, minor int) {
	a.entry(name, modeDevice|0o600, major, minor, nil)
}

// Close writes the trailer and returns the first error.
func (a *Writer) Close() error {
	a.entry("TRAILER!!!", 0, 0, 0, nil)
	return a.err
}

func (a *Writer) entry(name string, mode, major, minor int, data []byte) {
	a.inode++
	// The magic number, then eight hexadecimal digits each: inode, mode, uid, gid, number of links,
	// modification time, size, major and minor number of the file system, major and minor number of
	// a device, length of the name with its NUL, checksum.
	header := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		a.inode, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name)+1, 0)
	a.padded([]byte(header + name + "\x00"))
	a.padded(data)
}

// padded writes b, padded with NULs to a multiple of four bytes.
func (a *Writer) padded(b []byte) {
	for _, part := range [][]byte{b, make([]byte, (4-len(b)%4)%4)} {
		if a.err == nil {
			_, a.err = a.w.Write(part)
		}
	}
}
