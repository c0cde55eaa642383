package executor

import "bytes"

// lines splits the bytes of one output into lines, without their line feed and the carriage returns
// before it. A line longer than most is split into pieces between characters; all but the last are
// partial. Bytes after the last line feed are a line.
//
// The zero lines with most set is the start of a stream. It holds at most most bytes, and none
// while complete lines arrive.
type lines struct {
	most int // bytes per piece; at least 4
	// held is the start of an incomplete line. It is never empty if a piece of the line has been
	// passed on.
	held []byte
}

// keepHeld is the largest buffer of an incomplete line that is kept for the next one, in bytes.
const keepHeld = 64 << 10

// add takes the next bytes and calls emit for each line or piece. The text is valid until emit
// returns. An error of emit is returned at once.
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

// hold adds to the incomplete line and emits its full pieces.
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

// piece emits the held bytes, except for an incomplete character at their end.
func (l *lines) piece(emit func([]byte, bool) error) error {
	n := whole(l.held)
	if err := emit(l.held[:n], true); err != nil {
		return err
	}
	l.held = l.held[:copy(l.held, l.held[n:])]
	return nil
}

// end emits the last piece of a line, usually its only one.
func (l *lines) end(line []byte, emit func([]byte, bool) error) error {
	err := emit(bytes.TrimRight(line, "\r"), false)
	l.held = l.held[:0]
	if cap(l.held) > keepHeld {
		l.held = nil
	}
	return err
}

// finish emits a last line without a line feed.
func (l *lines) finish(emit func([]byte, bool) error) error {
	if len(l.held) == 0 {
		return nil
	}
	return l.end(l.held, emit)
}
