package agent

import (
	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// readCounters reads the files of FSCounters. The runtime has mounted them, and no program can
// mount others there.
func readCounters() (data []byte) {
	var b [wire.MaxCounterBytes]byte
	for _, path := range wire.CounterFiles() {
		n, err := readInto(path, b[:])
		data = wire.AppendFileContent(data, wire.FileContent{Errno: errno(err), Complete: err == nil, Bytes: b[:n]})
	}
	return data
}

// readInto reads a file of a kernel file system, which gives all of it at once.
func readInto(path string, b []byte) (int, error) {
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, b)
	return max(n, 0), err
}
