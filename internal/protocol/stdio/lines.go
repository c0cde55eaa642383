package stdio

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// lineReader reads lines of at most max bytes.
type lineReader struct {
	r   *bufio.Reader
	max int
}

// newBufio returns the read buffer for lines.
func newBufio(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, 64<<10) }

// errLong reports a line beyond the bound. It has been read to its end.
var errLong = errors.New("the line is too long")

// next returns the next line without its line end and without surrounding space. The last line need
// not have a line end. io.EOF: there is none.
func (l *lineReader) next() ([]byte, error) {
	var line []byte
	long := false
	for {
		piece, err := l.r.ReadSlice('\n')
		if room := l.max - len(line); len(piece) > room+2 {
			long, line = true, nil
		}
		if !long {
			line = append(line, piece...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == io.EOF && len(line) == 0 && !long:
			return nil, io.EOF
		case err != nil && err != io.EOF:
			return nil, err
		}
		line = bytes.TrimSpace(line)
		if long || len(line) > l.max {
			return nil, errLong
		}
		return line, nil
	}
}
