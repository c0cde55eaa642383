package client

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
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

// maxChannels bounds the programs and connections of one sandbox with open channels.
const maxChannels = 4096

// channels are the streams of one program or connection over a connection that cannot pass
// descriptors. Each side sends within the credit of the other.
//
// Credit and Close frames for the agent are queued here, and the sandbox's one sender goroutine
// (Sandbox.sendQueued) writes them. So neither the frame reader nor a reader of output blocks on an
// agent that does not read.
type channels struct {
	sandbox *Sandbox
	id      uint32

	mu          sync.Mutex
	change      *sync.Cond
	credit      int    // bytes that may still be sent on channelIn
	closing     bool   // drop input if there is no credit
	inputClosed bool   // input is closed
	agentCredit [3]int // bytes that the agent may still send, per channel
	queue       [3][]byte
	eof         [3]bool
	finish      [3]bool // report EOF once the queue is empty
	discard     [3]bool // no reader: discard incoming bytes
	open        int     // outputs that have not ended

	queued       bool    // in sandbox.toSend
	creditToSend [3]int  // credit to send, in bytes
	closeToSend  [3]bool // a Close is to be sent
	ended        [3]bool // closed by the host: grant no more credit
}

// attachFrames prepares the channels of a program.
func (s *Sandbox) attachFrames(p *process, std driver.Stdio) (fds []int, ready, abort func(), err error) {
	c := newChannels(s, 2)
	p.in = &chanWriter{c}
	for i, w := range []io.Writer{std.Stdout, std.Stderr} {
		if w != nil {
			p.outs = append(p.outs, &chanReader{c: c, ch: channelOut + i})
		} else {
			c.discard[channelOut+i] = true
		}
	}
	p.channels = c
	return nil, func() {}, func() {}, nil
}

// newChannels returns channels with 1 or 2 outputs.
func newChannels(s *Sandbox, outputs int) *channels {
	s.sender.Do(func() { s.background(s.sendQueued) })
	c := &channels{sandbox: s, credit: wire.Window, open: outputs}
	c.change = sync.NewCond(&c.mu)
	c.eof = [3]bool{true, true, true}
	for ch := channelOut; ch < channelOut+outputs; ch++ {
		c.eof[ch], c.agentCredit[ch] = false, wire.Window
	}
	return c
}

// onChannel handles a frame of a channel.
func (s *Sandbox) onChannel(f wire.Frame) error {
	ch, rest, err := wire.DecodeChannel(f.Payload)
	if err != nil || ch > channelErr || len(f.FDs) > 0 {
		return errViolation
	}
	s.mu.Lock()
	c := s.channels[f.ID]
	issued := s.issued(f.ID)
	s.mu.Unlock()
	if c == nil {
		if !issued {
			return errViolation
		}
		return nil // sent before the agent received Close; ids are not reused
	}
	switch f.Type {
	case wire.TypeData:
		return c.accept(int(ch), rest)
	case wire.TypeCredit:
		n, err := wire.DecodeCredit(rest)
		if err != nil || ch != channelIn || n == 0 || n > wire.Window {
			return errViolation
		}
		return c.addCredit(int(n))
	default: // wire.TypeClose
		if len(rest) > 0 {
			return errViolation
		}
		return c.closed(int(ch))
	}
}

// addCredit adds credit for n bytes of input.
func (c *channels) addCredit(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.credit += n; c.credit > wire.Window {
		return errViolation
	}
	c.change.Broadcast()
	return nil
}

// accept queues output, or discards it if there is no reader. More bytes than the agent has credit
// for are a violation.
func (c *channels) accept(ch int, b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(b) == 0 || c.eof[ch] || len(b) > c.agentCredit[ch] {
		return errViolation
	}
	c.agentCredit[ch] -= len(b)
	if c.discard[ch] {
		c.queueCredit(ch, len(b)) // otherwise the program would block for ever
		return nil
	}
	c.queue[ch] = append(c.queue[ch], b...)
	c.change.Broadcast()
	return nil
}

// closed handles the end of an output. After the last one the id is free.
func (c *channels) closed(ch int) error {
	c.mu.Lock()
	if c.eof[ch] {
		c.mu.Unlock()
		return errViolation
	}
	c.eof[ch] = true
	c.open--
	last := c.open == 0
	c.change.Broadcast()
	c.mu.Unlock()
	if last {
		c.sandbox.mu.Lock()
		delete(c.sandbox.channels, c.id)
		c.sandbox.mu.Unlock()
	}
	return nil
}

// lose ends all channels after the connection has ended.
func (c *channels) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inputClosed = true
	c.eof = [3]bool{true, true, true}
	c.change.Broadcast()
}

// queueCredit queues credit for n bytes of an output. The caller holds mu.
func (c *channels) queueCredit(ch, n int) {
	if !c.eof[ch] && !c.ended[ch] {
		c.creditToSend[ch] += n
		c.notify()
	}
}

// queueClose queues the Close of a channel. The caller holds mu.
func (c *channels) queueClose(ch int) {
	c.closeToSend[ch], c.ended[ch] = true, true
	c.notify()
}

// notify wakes the sender. The caller holds mu.
func (c *channels) notify() {
	if !c.queued {
		c.queued = true
		c.sandbox.toSend.add(c)
	}
}

// takeFrames returns the queued frames, at most two per channel.
func (c *channels) takeFrames() (all []wire.Frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queued = false
	for ch := range c.creditToSend {
		if n := c.creditToSend[ch]; n > 0 && !c.ended[ch] {
			c.agentCredit[ch] += n
			all = append(all, wire.Frame{Type: wire.TypeCredit, ID: c.id, Payload: wire.AppendCredit(nil, uint8(ch), uint32(n))})
		}
		if c.closeToSend[ch] {
			all = append(all, wire.Frame{Type: wire.TypeClose, ID: c.id, Payload: wire.AppendChannel(nil, uint8(ch))})
		}
		c.creditToSend[ch], c.closeToSend[ch] = 0, false
	}
	return all
}

// sendQueue is the sender's queue: channels with frames to send, each at most once.
type sendQueue struct {
	mu   sync.Mutex
	list []*channels
	wake chan struct{} // room for one
}

func (d *sendQueue) add(c *channels) {
	d.mu.Lock()
	d.list = append(d.list, c)
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default: // the sender has not run since the last wake-up
	}
}

func (d *sendQueue) take() []*channels {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.list
	d.list = nil
	return list
}

// sendQueued is the sender goroutine: it writes the queued frames of all channels until the
// connection ends.
func (s *Sandbox) sendQueued() {
	for {
		select {
		case <-s.toSend.wake:
		case <-s.dead:
			return
		}
		for _, c := range s.toSend.take() {
			for _, f := range c.takeFrames() {
				if s.send(context.Background(), f) != nil {
					return
				}
			}
		}
	}
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
	if n > 0 {
		c.queueCredit(r.ch, n)
	}
	c.mu.Unlock()
	if n == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// finish makes the reader return EOF after the bytes in the queue.
func (r *chanReader) finish() {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.c.finish[r.ch], r.c.discard[r.ch] = true, true
	r.c.change.Broadcast()
}

// Close tells the agent that the output has no reader any more.
func (r *chanReader) Close() error {
	c := r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.discard[r.ch] = true
	c.queue[r.ch] = nil
	c.finish[r.ch] = true
	c.change.Broadcast()
	if !c.eof[r.ch] && !c.ended[r.ch] {
		c.queueClose(r.ch)
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
		if err := w.c.sandbox.send(context.Background(), wire.Frame{Type: wire.TypeData, ID: w.c.id, Payload: payload}); err != nil {
			return n, err
		}
		n += k
		b = b[k:]
	}
	return n, nil
}

// takeCredit waits for credit and takes at most 32 KiB. 0 means that nothing more can be sent: the
// input is closed, or there is no credit after chanConn.Close.
func (c *channels) takeCredit(want int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.credit == 0 && !c.inputClosed && !c.closing {
		c.change.Wait()
	}
	if c.inputClosed {
		return 0
	}
	n := min(want, c.credit, 32<<10)
	c.credit -= n
	return n
}

func (w *chanWriter) Close() error {
	c := w.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.inputClosed {
		c.inputClosed = true
		c.queueClose(channelIn)
	}
	c.change.Broadcast()
	return nil
}

// DialPort connects to a TCP port on the sandbox's own loopback.
func (s *Sandbox) DialPort(ctx context.Context, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "port", Message: "a port is a number from 1 to 65535"}
	}
	d := wire.Dial{Port: uint16(port)}
	cl := &call{maxFDs: 1}
	if !canPass(s.conn) {
		c := newChannels(s, 1)
		cl.maxFDs, cl.channels = 0, c
		cl.undo = func(response) { c.closeAll() }
	}
	r, err := s.request(ctx, wire.TypeDial, d.Append(nil), nil, cl)
	if err != nil {
		return nil, err
	}
	if r.Failure != wire.OK {
		return nil, sandbar.Errorf(sandbar.Unavailable, "nothing in the sandbox accepts connections on port %d: %w", port, errnoOf(r.Errno))
	}
	if cl.channels != nil {
		return newChanConn(cl.channels), nil
	}
	if len(r.fds) == 1 {
		if conn, err := asConn(r.fds[0]); err == nil {
			return conn, nil
		}
	}
	return nil, s.violated("connecting to port " + strconv.Itoa(port))
}

// closeAll closes channels without a user.
func (c *channels) closeAll() {
	for ch := channelOut; ch <= channelErr; ch++ {
		(&chanReader{c: c, ch: ch}).Close()
	}
	(&chanWriter{c}).Close()
}

// chanConn is a net.Conn made of two channels. A net.Pipe per direction provides deadlines and
// half-close.
type chanConn struct {
	net.Conn // the receiving direction
	send     net.Conn
	c        *channels
}

// newChanConn copies between channels and a pair of in-memory connections.
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

// CloseWrite half-closes: it sends the bytes written so far, and receiving goes on.
func (cc *chanConn) CloseWrite() error { return cc.send.Close() }

// Close closes both directions. It drops bytes for which the agent has granted no credit.
func (cc *chanConn) Close() error {
	err := errors.Join(cc.send.Close(), cc.Conn.Close())
	cc.c.mu.Lock()
	cc.c.closing = true
	cc.c.change.Broadcast()
	cc.c.mu.Unlock()
	(&chanReader{c: cc.c, ch: channelOut}).Close()
	return err
}

var _ net.Conn = (*chanConn)(nil)
