package call

import (
	"encoding/binary"
	"io"
)

// header is what stands before a payload: its length and its kind.
const header = 5

// Conn sends and receives frames. Its buffers are used again and again, so
// that a system call takes no memory. One goroutine may send and another
// receive.
type Conn struct {
	r    io.Reader
	w    io.Writer
	head [header]byte
	in   []byte
	out  []byte
}

// NewConn returns a connection over two streams.
func NewConn(r io.Reader, w io.Writer) *Conn { return &Conn{r: r, w: w} }

// keep is how large a buffer may be that is kept for the next frame.
const keep = MaxData + 4096

// Receive reads one frame. The payload is valid until the next Receive.
func (c *Conn) Receive() (Kind, []byte, error) {
	if _, err := io.ReadFull(c.r, c.head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(c.head[:])
	if n > MaxFrame {
		return 0, nil, errLong
	}
	if cap(c.in) > keep || cap(c.in) < int(n) {
		c.in = make([]byte, max(int(n), 4096))
	}
	payload := c.in[:n]
	if _, err := io.ReadFull(c.r, payload); err != nil {
		return 0, nil, err
	}
	return Kind(c.head[4]), payload, nil
}

// message is anything that can be sent.
type message interface{ Append([]byte) []byte }

// Send writes one frame.
func (c *Conn) Send(k Kind, m message) error {
	if cap(c.out) > keep {
		c.out = nil
	}
	c.out = m.Append(append(c.out[:0], 0, 0, 0, 0, byte(k)))
	n := len(c.out) - header
	if n > MaxFrame {
		return errLong
	}
	binary.LittleEndian.PutUint32(c.out, uint32(n))
	_, err := c.w.Write(c.out)
	return err
}

// Expect returns an error unless a frame is of the kind that it must be.
func Expect(got, want Kind) error {
	if got != want {
		return errKind
	}
	return nil
}
