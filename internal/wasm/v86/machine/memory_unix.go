//go:build unix

package machine

import (
	"golang.org/x/sys/unix"
)

// reserve returns n zero bytes, which take memory only when they are written. They are outside of
// the Go heap, so the garbage collector does not scan them.
func reserve(n int64) []byte {
	b, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|mapNoReserve)
	if err != nil {
		return nil
	}
	return b
}

func release(b []byte) { _ = unix.Munmap(b) } // it was mapped
