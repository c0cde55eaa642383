//go:build unix

package worker

import (
	"os"

	"golang.org/x/sys/unix"
)

// load maps a snapshot's state, privately and writable, though it is never written. discard drops
// its pages from this process; the file still has them.
func load(f *os.File, size int64) (state []byte, discard func(), err error) {
	state, err = unix.Mmap(int(f.Fd()), headerSize, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, &os.PathError{Op: "map", Path: f.Name(), Err: err}
	}
	return state, func() { _ = unix.Madvise(state, unix.MADV_DONTNEED) }, nil
}
