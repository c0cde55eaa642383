// Package bulk sends files of sandboxes as responses of HTTP, for any protocol.
package bulk

import (
	"io"
	"net/http"

	"github.com/sandbar-dev/sandbar"
)

const (
	// atOnce is how much of a file is written after one call of before, in bytes.
	atOnce = 4 << 20
	// pieceSize is the size of the pieces of a file that the kernel cannot copy, in bytes.
	pieceSize = 128 << 10
)

// ReadFrom implements io.ReaderFrom of a response. before is called before each write, and sets its
// deadline; its error ends the copy. If r is a part of a file of the host, as http.ServeContent
// reads it, the kernel copies (sendfile(2)).
func ReadFrom(to http.ResponseWriter, r io.Reader, before func() error) (n int64, err error) {
	rest, limited := r.(*io.LimitedReader)
	from, able := to.(io.ReaderFrom)
	if !limited || !able {
		return io.CopyBuffer(writer{to, before}, reader{r}, make([]byte, pieceSize))
	}
	for rest.N > 0 {
		if err := before(); err != nil {
			return n, err
		}
		took, err := from.ReadFrom(&io.LimitedReader{R: Innermost(rest.R), N: min(rest.N, atOnce)})
		n += took
		rest.N -= took
		if err != nil || took == 0 {
			return n, err
		}
	}
	return n, nil
}

// Innermost returns the *os.File in r, if r wraps one, so that the kernel can copy. The caller
// bounds the copy.
func Innermost(r io.Reader) io.Reader {
	for {
		u, ok := r.(interface{ Unwrap() any })
		if !ok {
			return r
		}
		inner, ok := u.Unwrap().(sandbar.File)
		if !ok {
			return r
		}
		r = inner
	}
}

// writer calls before before each write.
type writer struct {
	to     io.Writer
	before func() error
}

func (w writer) Write(p []byte) (int, error) {
	if err := w.before(); err != nil {
		return 0, err
	}
	return w.to.Write(p)
}

// reader hides other methods from io.Copy.
type reader struct{ io.Reader }
