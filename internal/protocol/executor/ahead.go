package executor

import "io"

// aheadSize is how much of a body is read while as much is being written.
const aheadSize = 128 << 10

// maxDrain is how much of a body is still read, in bytes, when the file it was
// for has failed. Many clients do not look for an answer before they have sent
// all, and would only find the connection broken.
const maxDrain = 1 << 30

// copyAhead copies src, of so many bytes or -1 for not known, to dst. It reads
// the next piece while it writes the last, since a file in memory takes as long
// to fill as a connection to empty. The error is dst's, or else src's.
func copyAhead(dst io.Writer, src *body, size int64) error {
	if 0 <= size && size <= aheadSize {
		_, err := io.Copy(dst, src)
		return err
	}
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
	for drained := 0; ; {
		b, ok := <-full
		if !ok {
			return or(err, src.err)
		}
		if err == nil {
			_, err = dst.Write(b)
		} else if drained += len(b); drained > maxDrain {
			src.stop()
		}
		empty <- b[:cap(b)]
	}
}
