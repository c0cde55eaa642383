package executor

import "io"

// aheadSize is how much of a body is read while as much is being written.
const aheadSize = 128 << 10

// copyAhead copies src to dst. It reads the next piece while it writes the
// last, since a file in memory takes as long to fill as a connection to empty.
// The error is dst's, or else src's.
func copyAhead(dst io.Writer, src *body) error {
	full, empty := make(chan []byte), make(chan []byte, 2)
	empty <- make([]byte, aheadSize)
	empty <- make([]byte, aheadSize)
	go func() {
		defer close(full)
		for b := range empty {
			n, err := io.ReadFull(src, b)
			if n > 0 {
				full <- b[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	var err error
	for b := range full {
		if err == nil {
			_, err = dst.Write(b)
		}
		if err != nil {
			src.stop() // and what has been read is thrown away
		}
		empty <- b[:cap(b)]
	}
	return or(err, src.err)
}
