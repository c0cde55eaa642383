package docker

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
)

// stream is a container's attach stream as a connection to its agent: writes go to the agent's
// standard input, reads come from its standard output. The engine sends output in pieces, each with
// a header of 8 bytes: the stream, three zeros, and the length as a big-endian number. The first
// bytes of standard error are kept for error messages.
//
// Only one goroutine may read.
type stream struct {
	net.Conn
	r    *bufio.Reader
	left uint32 // unread bytes of the current piece

	mu   sync.Mutex
	said []byte // standard error output of the agent or its runtime
}

const (
	streamOut = 1
	streamErr = 2
	// maxStderr is how much of the standard error output is kept, in bytes.
	maxStderr = 500
)

func newStream(conn net.Conn, r *bufio.Reader) *stream { return &stream{Conn: conn, r: r} }

var errStream = errors.New("the engine broke the protocol of its streams")

// Read implements net.Conn.
func (s *stream) Read(b []byte) (int, error) {
	for s.left == 0 {
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	if uint32(len(b)) > s.left {
		b = b[:s.left]
	}
	n, err := s.r.Read(b)
	s.left -= uint32(n)
	return n, err
}

// next reads the header of the next piece.
func (s *stream) next() error {
	var head [8]byte
	// Peek first, so that a deadline within the header does not lose a part of it.
	h, err := s.r.Peek(len(head))
	if err != nil {
		if len(h) > 0 && errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	copy(head[:], h)
	if _, err := s.r.Discard(len(head)); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(head[4:])
	switch {
	case head[1]|head[2]|head[3] != 0:
		return errStream
	case head[0] == streamOut:
		s.left = length
		return nil
	case head[0] == streamErr:
		return s.keep(length)
	}
	return errStream
}

// keep reads a piece of standard error output.
func (s *stream) keep(length uint32) error {
	s.mu.Lock()
	room := min(int64(length), int64(maxStderr-len(s.said)))
	s.mu.Unlock()
	b := make([]byte, room)
	if _, err := io.ReadFull(s.r, b); err != nil {
		return err
	}
	s.mu.Lock()
	s.said = append(s.said, b...)
	s.mu.Unlock()
	_, err := io.CopyN(io.Discard, s.r, int64(length)-room)
	return err
}

// Stderr returns the first bytes of the standard error output.
func (s *stream) Stderr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.said)
}
