package control

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
)

// requestTimeout bounds the wait for the first frame of a command.
const requestTimeout = 30 * time.Second

// serveExec runs one command over an upgraded connection or a WebSocket.
func (e *entry) serveExec(w http.ResponseWriter, r *http.Request) {
	if !wants(r, wire.UpgradeExec) && !wants(r, "websocket") {
		refuseUpgrade(w, wire.UpgradeExec)
		return
	}
	release, err := e.reserveConn()
	if err != nil {
		fail(w, err)
		return
	}
	defer release()
	conn, err := openFrames(w, r)
	if err != nil {
		return
	}
	defer conn.Close()
	c := newCall(r.Context(), conn, e.server.options.StallTimeout)
	defer c.cancel()
	// The end of the server must not wait for a client that does not read.
	defer context.AfterFunc(r.Context(), func() { conn.SetDeadline(time.Now().Add(linger)) })()
	c.serve(e)
}

// call is one command.
type call struct {
	ctx    context.Context // ends when the client leaves or cancels
	cancel context.CancelFunc
	conn   frames
	stdin  *window
	sizes  chan sandbar.TerminalSize // room for one
	stall  time.Duration

	mu sync.Mutex // guards writing
}

func newCall(ctx context.Context, conn frames, stall time.Duration) *call {
	c := &call{conn: conn, stall: stall, sizes: make(chan sandbar.TerminalSize, 1)}
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.stdin = newWindow(c.credit)
	return c
}

// serve reads the request, runs the command and reports its end.
func (c *call) serve(e *entry) {
	c.conn.SetReadDeadline(time.Now().Add(requestTimeout))
	x, err := c.request()
	if err != nil {
		c.last(wire.Failed, wire.ErrorOf(err))
		return
	}
	c.conn.SetReadDeadline(time.Time{})
	var reading sync.WaitGroup
	reading.Go(c.read)
	var stdin io.Reader
	if x.Stdin {
		stdin = c.stdin
	}
	result, err := c.run(e, x, stdin)
	c.stdin.close()
	if err != nil {
		c.last(wire.Failed, wire.ErrorOf(err))
	} else {
		c.last(wire.Ended, wire.ResultOf(result))
	}
	reading.Wait()
}

// run runs the command. One with a terminal is a process of the sandbox, because an interactive
// program has no default limits.
func (c *call) run(e *entry, x wire.Exec, stdin io.Reader) (sandbar.Result, error) {
	cmd := sandbar.Cmd{Args: x.Args, Env: x.Env, Dir: x.Dir}
	limits := sandbar.Limits{Timeout: x.Timeout.Duration(), Output: int64(x.Output)}
	if x.Terminal == nil {
		return e.sandbox.Exec(c.ctx, cmd, stdin, limits, c)
	}
	cmd.Terminal = &sandbar.Terminal{Size: sandbar.TerminalSize(*x.Terminal), Sizes: c.sizes}
	p, err := e.sandbox.StartSink(c.ctx, cmd, stdin, limits, c)
	if err != nil {
		return sandbar.Result{}, err
	}
	defer context.AfterFunc(c.ctx, p.Cancel)()
	return p.Wait(context.Background())
}

// resize passes on the latest size of the terminal.
func (c *call) resize(data []byte) error {
	size, err := wire.SizeOf(data)
	if err == nil {
		err = sandbar.TerminalSize(size).Check()
	}
	if err != nil {
		return err
	}
	select {
	case <-c.sizes: // an older one that nothing has received
	default:
	}
	c.sizes <- sandbar.TerminalSize(size) // has room: only this goroutine sends
	return nil
}

func (c *call) request() (wire.Exec, error) {
	k, data, err := c.conn.next()
	switch {
	case err != nil:
		return wire.Exec{}, sandbar.Errorf(sandbar.Invalid, "the request did not arrive: %w", err)
	case k != wire.Request:
		return wire.Exec{}, sandbar.Errorf(sandbar.Invalid, "the first frame is of kind %q; it must be a request", byte(k))
	}
	return decodeExec(data)
}

// read handles the client's frames until it closes the connection. A malformed frame cancels the
// command.
func (c *call) read() {
	defer c.cancel()
	for {
		k, data, err := c.conn.next()
		switch {
		case err != nil:
			return
		case k == wire.Cancel:
			c.cancel()
		case k == wire.Stdin && len(data) == 0:
			c.stdin.finish()
		case k == wire.Stdin:
			if err := c.stdin.add(data); err != nil {
				return
			}
		case k == wire.Resize:
			if err := c.resize(data); err != nil {
				return
			}
		default:
			return
		}
	}
}

// Started implements engine.Sink.
func (c *call) Started() { c.write(wire.Started, nil) }

// Output implements engine.Sink. An error means that the client is gone or does not read, and
// cancels the command.
func (c *call) Output(chunk sandbar.Chunk) error {
	k := wire.Stdout
	if chunk.Stream == sandbar.Stderr {
		k = wire.Stderr
	}
	for data := chunk.Data; len(data) > 0; {
		n := min(len(data), wire.MaxFrame)
		if err := c.write(k, data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func (c *call) credit(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn.SetWriteDeadline(time.Now().Add(c.stall))
	c.conn.write(wire.Credit, binary.BigEndian.AppendUint32(nil, uint32(n))) // the reader detects a broken connection
}

func (c *call) write(k wire.Kind, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() == nil { // otherwise a deadline is set already
		c.conn.SetWriteDeadline(time.Now().Add(c.stall))
	}
	return c.conn.write(k, data)
}

// last reports the command's end and gives the client time to read it: closing a connection on
// which the client still sends would reset it and discard the report.
func (c *call) last(k wire.Kind, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		c.conn.Close() // a bug: these types can be encoded
		return
	}
	deadline := time.Now().Add(linger)
	c.conn.SetWriteDeadline(deadline)
	c.mu.Lock()
	err = c.conn.write(k, data)
	c.mu.Unlock()
	if err != nil || c.conn.finish() != nil {
		c.conn.Close()
	}
	c.conn.SetReadDeadline(deadline)
}

// window buffers standard input on its way from the client to the program: at most wire.Window
// bytes, the client's credit.
type window struct {
	credit func(n int)

	mu    sync.Mutex
	ready sync.Cond
	buf   []byte
	owed  int  // read by the program but not credited yet
	done  bool // the input has ended
	shut  bool // further input is discarded
}

func newWindow(credit func(int)) *window {
	w := &window{credit: credit}
	w.ready.L = &w.mu
	return w
}

var errCredit = errors.New("the client sent more input than it had credit for")

// add buffers input of the client. It never blocks, so that a Cancel behind the input is seen.
func (w *window) add(p []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.shut:
		return nil
	case w.done || len(w.buf)+w.owed+len(p) > wire.Window:
		return errCredit
	}
	w.buf = append(w.buf, p...)
	w.ready.Broadcast()
	return nil
}

// finish marks the end of the input.
func (w *window) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
	w.ready.Broadcast()
}

// close discards the input of a program that has ended.
func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done, w.shut, w.buf = true, true, nil
	w.ready.Broadcast()
}

// Read implements io.Reader for the program.
func (w *window) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	w.mu.Lock()
	for len(w.buf) == 0 && !w.done {
		w.ready.Wait()
	}
	n := copy(p, w.buf)
	w.buf = w.buf[:copy(w.buf, w.buf[n:])]
	w.owed += n
	due := 0
	if !w.done && (len(w.buf) == 0 || w.owed >= wire.Window/4) {
		due, w.owed = w.owed, 0
	}
	w.mu.Unlock()
	if due > 0 {
		w.credit(due)
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}
