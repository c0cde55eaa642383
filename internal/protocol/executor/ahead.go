package executor

import "io"

// aheadSize is the size of the pieces of copyAhead, in bytes: it reads one while it writes another.
const aheadSize = 128 << 10

// maxDrain is how much of a body is still read, in bytes, after its file has failed. Many clients
// read no response before they have sent the whole body, and would only see a broken connection.
const maxDrain = 1 << 30

// copyAhead copies src, of size bytes or -1 if unknown, to dst. It reads the next piece while it
// writes the last, since writing to a file in memory takes as long as reading from a connection. It
// returns dst's error, otherwise src's.
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
