package call

import (
	"encoding/binary"
	"io"
)

// header is the length of a frame's header: payload length and kind.
const header = 5

// Conn sends and receives frames. It reuses its buffers, so that system calls allocate nothing. One
// goroutine may send while another receives.
type Conn struct {
	r    io.Reader
	w    io.Writer
	head [header]byte
	in   []byte
	out  []byte
}

// NewConn returns a connection over two streams.
func NewConn(r io.Reader, w io.Writer) *Conn { return &Conn{r: r, w: w} }

// keep is the largest buffer that is kept for the next frame, in bytes.
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

// message is a message that can be sent.
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

// Expect returns an error if a frame does not have the expected kind.
func Expect(got, want Kind) error {
	if got != want {
		return errKind
	}
	return nil
}
