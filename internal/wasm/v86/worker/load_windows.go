package worker

import (
	"io"
	"os"
)

// load reads a snapshot's state into memory. discard does nothing.
func load(f *os.File, size int64) (state []byte, discard func(), err error) {
	state = make([]byte, size)
	_, err = io.ReadFull(f, state)
	return state, func() {}, err
}
