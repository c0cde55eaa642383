package memfs

import (
	"crypto/rand"
	"io"
	"syscall"
)

// Device is a kind of character device.
type Device string

// The devices.
const (
	Null   Device = "null"   // reads return EOF, writes are discarded
	Zero   Device = "zero"   // reads return zeros, writes are discarded
	Full   Device = "full"   // reads return zeros, writes fail with ENOSPC
	Random Device = "random" // reads return random bytes, writes are discarded
)

// read fills p from a device.
func (d Device) read(p []byte) (int, error) {
	switch d {
	case Null:
		return 0, io.EOF
	case Zero, Full:
		clear(p)
		return len(p), nil
	case Random:
		return rand.Read(p)
	}
	return 0, syscall.ENXIO
}

// write writes p to a device.
func (d Device) write(p []byte) (int, error) {
	switch d {
	case Null, Zero, Random:
		return len(p), nil
	case Full:
		return 0, syscall.ENOSPC
	}
	return 0, syscall.ENXIO
}
