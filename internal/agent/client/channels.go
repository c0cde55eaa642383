package client

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// The channels of a process and of a dialled connection, as in package agent.
const (
	channelIn  = 0
	channelOut = 1
	channelErr = 2
)

// channels are the streams of one program or connection over a connection that
// cannot pass descriptors. Each side sends within the other's credit.
type channels struct {
	box *Sandbox
	id  uint32

	mu     sync.Mutex
	change *sync.Cond
	credit int  // what may still be sent on channelIn
	inEnd  bool // nothing more will be sent
	queue  [3][]byte
	eof    [3]bool
	finish [3]bool // end when the queue is empty
	unread [3]bool // nobody wants it: drop what comes
	open   int     // outputs whose end has not come
}

// attachFrames prepares the channels of a program.
func (s *Sandbox) attachFrames(p *process, std driver.Stdio) (fds []int, ready, abort func(), err error) {
	c := newChannels(s, 2)
	p.in = &chanWriter{c}
	for i, w := range []io.Writer{std.Stdout, std.Stderr} {
		if w != nil {
			p.outs = append(p.outs, &chanReader{c: c, ch: channelOut + i})
		} else {
			c.unread[channelOut+i] = true
		}
	}
	p.channels = c
	return nil, func() {}, func() {}, nil
}

func newChannels(s *Sandbox, outputs int) *channels {
	c := &channels{box: s, credit: wire.Window, open: outputs}
	c.change = sync.NewCond(&c.mu)
	return c
}

// onChannel handles a frame of a channel.
func (s *Sandbox) onChannel(f wire.Frame) error {
	ch, rest, err := wire.DecodeChannel(f.Payload)
	if err != nil || ch > channelErr {
		return errViolation
	}
	s.mu.Lock()
	c := s.channels[f.ID]
	s.mu.Unlock()
	if c == nil {
		return nil // sent before the agent knew that it was over; ids are not used again
	}
	switch f.Type {
	case wire.TypeData:
		return c.accept(int(ch), rest)
	case wire.TypeCredit:
		n, err := wire.DecodeCredit(rest)
		if err != nil || ch != channelIn || n > wire.Window {
			return errViolation
		}
		c.mu.Lock()
		c.credit += int(n)
		over := c.credit > wire.Window
		c.change.Broadcast()
		c.mu.Unlock()
		if over {
			return errViolation
		}
	case wire.TypeClose:
		return c.closed(int(ch))
	}
	return nil
}

// accept queues output, which may not exceed the window.
func (c *channels) accept(ch int, b []byte) error {
	if ch == channelIn {
		return errViolation
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.eof[ch] || len(c.queue[ch])+len(b) > wire.Window {
		return errViolation
	}
	if c.unread[ch] {
		// The credit goes back at once, or the program would be held for ever.
		go c.giveBack(ch, len(b))
		return nil
	}
	c.queue[ch] = append(c.queue[ch], b...)
	c.change.Broadcast()
	return nil
}

// closed handles the end of an output; after the last the id is free.
func (c *channels) closed(ch int) error {
	c.mu.Lock()
	if ch == channelIn || c.eof[ch] {
		c.mu.Unlock()
		return errViolation
	}
	c.eof[ch] = true
	c.open--
	last := c.open == 0
	c.change.Broadcast()
	c.mu.Unlock()
	if last {
		c.box.mu.Lock()
		delete(c.box.channels, c.id)
		c.box.mu.Unlock()
	}
	return nil
}

// lose ends everything: the connection has ended.
func (c *channels) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inEnd = true
	c.eof = [3]bool{true, true, true}
	c.change.Broadcast()
}

func (c *channels) giveBack(ch, n int) {
	c.box.send(wire.Frame{Type: wire.TypeCredit, ID: c.id, Payload: wire.AppendCredit(nil, uint8(ch), uint32(n))})
}

func (c *channels) sendClose(ch int) {
	c.box.send(wire.Frame{Type: wire.TypeClose, ID: c.id, Payload: wire.AppendChannel(nil, uint8(ch))})
}

// chanReader reads one output.
type chanReader struct {
	c  *channels
	ch int
}

func (r *chanReader) Read(b []byte) (int, error) {
	c := r.c
	c.mu.Lock()
	for len(c.queue[r.ch]) == 0 && !c.eof[r.ch] && !c.finish[r.ch] {
		c.change.Wait()
	}
	n := copy(b, c.queue[r.ch])
	c.queue[r.ch] = c.queue[r.ch][n:]
	if len(c.queue[r.ch]) == 0 {
		c.queue[r.ch] = nil
	}
	ended := c.eof[r.ch]
	c.mu.Unlock()
	if n == 0 {
		return 0, io.EOF
	}
	if !ended {
		c.giveBack(r.ch, n)
	}
	return n, nil
}

func (r *chanReader) finish() {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.c.finish[r.ch] = true
	r.c.change.Broadcast()
}

// Close tells the agent that nobody reads this output any more.
func (r *chanReader) Close() error {
	c := r.c
	c.mu.Lock()
	tell := !c.unread[r.ch] && !c.eof[r.ch]
	c.unread[r.ch] = true
	c.queue[r.ch] = nil
	c.finish[r.ch] = true
	c.change.Broadcast()
	c.mu.Unlock()
	if tell {
		c.sendClose(r.ch)
	}
	return nil
}

// chanWriter writes the input.
type chanWriter struct{ c *channels }

func (w *chanWriter) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		k := w.c.takeCredit(len(b))
		if k == 0 {
			return n, io.ErrClosedPipe
		}
		payload := append(wire.AppendChannel(make([]byte, 0, k+1), channelIn), b[:k]...)
		if err := w.c.box.send(wire.Frame{Type: wire.TypeData, ID: w.c.id, Payload: payload}); err != nil {
			return n, err
		}
		n += k
		b = b[k:]
	}
	return n, nil
}

// takeCredit waits until something may be sent; 0 means never.
func (c *channels) takeCredit(want int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.credit == 0 && !c.inEnd {
		c.change.Wait()
	}
	if c.inEnd {
		return 0
	}
	n := min(want, c.credit, 32<<10)
	c.credit -= n
	return n
}

func (w *chanWriter) Close() error {
	c := w.c
	c.mu.Lock()
	tell := !c.inEnd
	c.inEnd = true
	c.change.Broadcast()
	c.mu.Unlock()
	if tell {
		c.sendClose(channelIn)
	}
	return nil
}

// DialPort connects to a TCP port on the sandbox's own loopback.
func (s *Sandbox) DialPort(ctx context.Context, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "port", Message: "a port is a number from 1 to 65535"}
	}
	d := wire.Dial{Port: uint16(port)}
	cl := &call{undo: func(r response) {}}
	var c *channels
	if !canPass(s.conn) {
		c = newChannels(s, 1)
		cl.channels = c
		cl.undo = func(response) { (&chanReader{c: c, ch: channelOut}).Close() }
	}
	r, err := s.request(ctx, wire.TypeDial, d.Append(nil), nil, cl)
	if err != nil {
		return nil, err
	}
	if r.Failure != wire.OK {
		return nil, sandbar.Errorf(sandbar.Unavailable, "nothing in the sandbox accepts connections on port %d: %w", port, errnoOf(r.Errno))
	}
	if c != nil {
		return newChanConn(c), nil
	}
	if len(r.fds) != 1 {
		closeFDs(r.fds)
		return nil, sandbar.Errorf(sandbar.Internal, "connecting to port %d: %w", port, errViolation)
	}
	conn, err := asConn(r.fds[0])
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "connecting to port %d: %w", port, err)
	}
	return conn, nil
}

// chanConn is a connection made of two channels. Deadlines are those of
// net.Pipe, of which it has one for each direction, so that one can be closed.
type chanConn struct {
	net.Conn // what is received
	send     net.Conn
	c        *channels
}

// newChanConn bridges channels to an in-memory connection with deadlines.
func newChanConn(c *channels) net.Conn {
	received, in := net.Pipe()
	send, out := net.Pipe()
	go func() { // from the sandbox
		r := &chanReader{c: c, ch: channelOut}
		io.Copy(in, r)
		r.Close()
		in.Close()
	}()
	go func() { // to the sandbox
		w := &chanWriter{c}
		io.Copy(w, out)
		w.Close()
		out.Close()
	}()
	return &chanConn{Conn: received, send: send, c: c}
}

func (cc *chanConn) Write(b []byte) (int, error) { return cc.send.Write(b) }

func (cc *chanConn) SetDeadline(t time.Time) error {
	return errors.Join(cc.Conn.SetDeadline(t), cc.send.SetWriteDeadline(t))
}

func (cc *chanConn) SetWriteDeadline(t time.Time) error { return cc.send.SetWriteDeadline(t) }

// CloseWrite ends what is sent, after all of it, and keeps receiving.
func (cc *chanConn) CloseWrite() error { return cc.send.Close() }

// Close ends both directions.
func (cc *chanConn) Close() error {
	(&chanReader{c: cc.c, ch: channelOut}).Close()
	return errors.Join(cc.send.Close(), cc.Conn.Close())
}

var _ net.Conn = (*chanConn)(nil)
