package executor

import "bytes"

// lines cuts the bytes of one output into lines. A line is given without its
// line feed and without the carriage returns before it. One that is longer than
// most comes in pieces, cut between characters; all but the last are partial.
// What follows the last line feed is a line if there is anything.
//
// The zero lines with most set is the start of a stream. It holds at most most
// bytes, and nothing while whole lines arrive.
type lines struct {
	most int // bytes in one piece; at least 4
	// held is the beginning of a line whose end has not come. It is never empty
	// when a piece of the line has been given.
	held []byte
}

// keepHeld is how large a buffer for the beginning of a line is kept for the
// next line.
const keepHeld = 64 << 10

// add takes the next bytes and calls emit for each line or piece. The text is
// valid until emit returns. An error of emit is returned at once.
func (l *lines) add(p []byte, emit func(line []byte, partial bool) error) error {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			return l.hold(p, emit)
		}
		line := p[:i]
		p = p[i+1:]
		if len(l.held) > 0 || len(line) > l.most {
			if err := l.hold(line, emit); err != nil {
				return err
			}
			line = l.held
		}
		if err := l.end(line, emit); err != nil {
			return err
		}
	}
	return nil
}

// hold adds to the line that is not whole yet and gives the pieces of it that
// are full.
func (l *lines) hold(p []byte, emit func([]byte, bool) error) error {
	for len(p) > 0 {
		if len(l.held) == l.most {
			if err := l.piece(emit); err != nil {
				return err
			}
		}
		n := min(len(p), l.most-len(l.held))
		l.held = append(l.held, p[:n]...)
		p = p[n:]
	}
	return nil
}

// piece gives what is held, but for the beginning of a character at its end.
func (l *lines) piece(emit func([]byte, bool) error) error {
	n := whole(l.held)
	if err := emit(l.held[:n], true); err != nil {
		return err
	}
	l.held = l.held[:copy(l.held, l.held[n:])]
	return nil
}

// end gives the last piece of a line, mostly its only one.
func (l *lines) end(line []byte, emit func([]byte, bool) error) error {
	err := emit(bytes.TrimRight(line, "\r"), false)
	l.held = l.held[:0]
	if cap(l.held) > keepHeld {
		l.held = nil
	}
	return err
}

// finish gives the last line if it has no line feed.
func (l *lines) finish(emit func([]byte, bool) error) error {
	if len(l.held) == 0 {
		return nil
	}
	return l.end(l.held, emit)
}
