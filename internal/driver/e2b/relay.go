package e2b

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// maxQueue is how much waits to be sent, in bytes, before Write blocks.
	maxQueue = 1 << 20
	// maxInput is the most input of one request, in bytes.
	maxInput = 512 << 10
	// maxSilence is the time without an event after which the connection counts as broken.
	maxSilence = 4 * keepalive * time.Second
)

// relay is the standard input and output of a process as a connection. Writes are collected while a
// request is in progress, and sent with the next one, so that a request per write does not add up.
//
// The end of the stream, and any failed request, end the connection: nobody can tell then what has
// arrived.
//
// Only one goroutine may read.
type relay struct {
	stream *stream
	cancel context.CancelFunc
	ctx    context.Context
	timer  *time.Timer // ends a silent connection
	left   []byte      // output that is not read yet
	sender sync.WaitGroup

	mu       sync.Mutex
	queue    []byte
	changed  chan struct{} // closed at each change of queue, deadline and err
	deadline time.Time     // of writes
	err      error         // why the connection has ended
	said     []byte        // the first bytes of standard error
}

// open starts a process whose standard input and output are a connection. ctx bounds the start
// only.
func (b *box) open(ctx context.Context, what, user string, c processConfig) (*relay, error) {
	r := &relay{changed: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, r.cancel)
	var err error
	r.stream, err = b.start(r.ctx, what, user, startMessage{Process: c, Stdin: true})
	if err != nil {
		stop()
		r.cancel()
		return nil, err
	}
	stop() // a context that ends at this moment has ended the connection, which the caller finds
	r.timer = time.AfterFunc(b.silence, func() { r.fail(errors.New("the service is silent")) })
	r.sender.Go(r.send)
	return r, nil
}

// change wakes all that wait. r.mu is held.
func (r *relay) change() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// fail ends the connection.
func (r *relay) fail(err error) {
	r.mu.Lock()
	if r.err == nil {
		r.err = err
		r.change()
	}
	r.mu.Unlock()
	r.cancel()
}

// Read implements net.Conn.
func (r *relay) Read(p []byte) (int, error) {
	for len(r.left) == 0 {
		e, err := r.stream.next()
		if err == nil && e.End != nil {
			err = io.EOF
		}
		if err != nil {
			r.fail(err)
			r.mu.Lock()
			defer r.mu.Unlock()
			return 0, r.err
		}
		r.timer.Reset(r.stream.box.silence)
		if e.Data != nil {
			r.left = e.Data.Stdout
			r.mu.Lock()
			r.said = append(r.said, e.Data.Stderr[:min(len(e.Data.Stderr), maxText-len(r.said))]...)
			r.mu.Unlock()
		}
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// Write implements net.Conn. It returns when there is room to keep what was written.
func (r *relay) Write(p []byte) (int, error) {
	for {
		r.mu.Lock()
		err, room, changed, deadline := r.err, len(r.queue) < maxQueue, r.changed, r.deadline
		if err == nil && room {
			r.queue = append(r.queue, p...)
			r.change()
		}
		r.mu.Unlock()
		switch {
		case err != nil:
			return 0, err
		case room:
			return len(p), nil
		}
		if err := await(changed, deadline); err != nil {
			return 0, err
		}
	}
}

// await waits for a change, at most until deadline.
func await(changed <-chan struct{}, deadline time.Time) error {
	var late <-chan time.Time
	if !deadline.IsZero() {
		t := time.NewTimer(time.Until(deadline))
		defer t.Stop()
		late = t.C
	}
	select {
	case <-changed:
		return nil
	case <-late:
		return os.ErrDeadlineExceeded
	}
}

// send sends what was written, until the connection ends.
func (r *relay) send() {
	for {
		r.mu.Lock()
		data := r.queue[:min(len(r.queue), maxInput)]
		changed, err := r.changed, r.err
		r.mu.Unlock()
		switch {
		case err != nil:
			return
		case len(data) == 0:
			<-changed
			continue
		}
		if err := r.stream.box.input(r.ctx, r.stream.pid, data); err != nil {
			r.fail(err)
			return
		}
		r.mu.Lock()
		r.queue = append(r.queue[:0:0], r.queue[len(data):]...)
		r.change()
		r.mu.Unlock()
	}
}

// Stderr returns the first bytes of the standard error output.
func (r *relay) Stderr() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.said)
}

// ended returns why the connection has ended, nil if it has not.
func (r *relay) ended() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Close implements net.Conn. The process may live longer.
func (r *relay) Close() error {
	r.fail(net.ErrClosed)
	r.timer.Stop()
	r.sender.Wait()
	return r.stream.body.Close()
}

// SetDeadline implements net.Conn.
func (r *relay) SetDeadline(t time.Time) error {
	return errors.Join(r.SetReadDeadline(t), r.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn. A deadline that has passed ends the connection; others have
// no effect, because the connection has a bound of its own for silence.
func (r *relay) SetReadDeadline(t time.Time) error {
	if !t.IsZero() && !time.Now().Before(t) {
		r.fail(os.ErrDeadlineExceeded)
	}
	return nil
}

// SetWriteDeadline implements net.Conn.
func (r *relay) SetWriteDeadline(t time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deadline = t
	r.change()
	return nil
}

// LocalAddr implements net.Conn.
func (r *relay) LocalAddr() net.Addr { return address{} }

// RemoteAddr implements net.Conn.
func (r *relay) RemoteAddr() net.Addr { return address{} }

// address is the address of both ends.
type address struct{}

// Network implements net.Addr.
func (address) Network() string { return "e2b" }

// String implements net.Addr.
func (address) String() string { return "e2b" }
