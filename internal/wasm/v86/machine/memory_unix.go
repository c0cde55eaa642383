//go:build unix

package machine

import (
	"golang.org/x/sys/unix"
)

// reserve returns n bytes of zeros, which take memory only when they are used.
// They are none of the Go heap, which the collector would have to look after.
func reserve(n int64) []byte {
	b, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|mapNoReserve)
	if err != nil {
		return nil
	}
	return b
}

func release(b []byte) { _ = unix.Munmap(b) } // it was mapped
