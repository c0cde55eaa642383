package fathom

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/fathom/wire"
	"github.com/sandbar-dev/sandbar/engine"
)

// Reasons of close frames.
const (
	reasonShutdown = "the server is shutting down"
	reasonSlow     = "the message did not arrive in time"
	reasonProtocol = "WebSocket protocol violation"
	reasonRevoked  = "the token was revoked or has expired"
)

// keepBuffer is the largest read buffer, in bytes, that a connection keeps between messages.
const keepBuffer = 64 << 10

// maxPongDelay is the age of a write up to which pings are still answered. The library closes the
// connection if a pong cannot be sent within 5 s, but a client that has paused must have
// Options.WriteTimeout.
const maxPongDelay = 100 * time.Millisecond

// conn is one client's connection. Its goroutines are the reader (serve), the writer (outbox.run),
// the pinger (keepAlive), and one per execution (run.run).
type conn struct {
	server *Server
	client sandbar.Client
	// traceparent is that of the request that opened the connection; "" for none.
	traceparent string
	ws          *websocket.Conn
	raw         net.Conn // under ws
	out         *outbox

	mu       sync.Mutex
	runs     map[string]*run
	draining bool          // no new executions
	idle     chan struct{} // closed when draining and runs is empty
}

func newConn(s *Server, client sandbar.Client) *conn {
	return &conn{server: s, client: client, out: newOutbox(), runs: map[string]*run{}, idle: make(chan struct{})}
}

// serve serves the connection until it and all its executions have ended.
func (c *conn) serve() {
	log := c.server.options.Logger
	ctx := engine.WithClient(context.Background(), c.client)
	log.DebugContext(ctx, "fathom: connected", "remote", c.raw.RemoteAddr().String())

	var tasks sync.WaitGroup
	tasks.Go(func() {
		if err := c.out.run(c.write, c.server.options.WriteTimeout, c.abort); err != nil {
			c.abort()
		}
	})
	tasks.Go(c.keepAlive)
	err := c.read()
	if !ordinary(err) {
		log.InfoContext(ctx, "fathom: a connection could not be read", "error", err)
	}
	c.out.close() // from here on output is discarded
	tasks.Go(func() { c.closeWith(closeStatus(err)) })
	c.onDisconnect()
	tasks.Wait()

	log.DebugContext(ctx, "fathom: disconnected", "remote", c.raw.RemoteAddr().String(), "reason", err)
}

// write sends one message. The outbox enforces the deadline, by abort.
func (c *conn) write(b []byte) error {
	return c.ws.Write(context.Background(), websocket.MessageText, b)
}

// abort closes the connection without a close frame, so that blocked calls fail.
func (c *conn) abort() { c.raw.Close() }

// closeWith closes the connection with a status, and waits at most closeWait for the peer's close
// frame. After the first call, or after the peer's own close, it only waits.
func (c *conn) closeWith(code websocket.StatusCode, reason string) {
	// The library's close handshake can wait for ever for the rest of a message.
	limit := time.AfterFunc(closeWait, c.abort)
	defer limit.Stop()
	c.ws.Close(code, reason)
}

// ordinary reports whether a read failed because the client or this server has ended the
// connection.
func ordinary(err error) bool {
	return websocket.CloseStatus(err) != -1 || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) || err == errGone
}

// closeStatus returns the status and reason for a client from which a read failed.
func closeStatus(err error) (websocket.StatusCode, string) {
	if errors.Is(err, websocket.ErrMessageTooBig) {
		return websocket.StatusMessageTooBig, "" // the library has sent this status already
	}
	return websocket.StatusProtocolError, reasonProtocol
}

// keepAlive sends pings and drops a peer that does not answer. While a write is blocked, the write
// timeout applies instead.
func (c *conn) keepAlive() {
	tick := time.NewTicker(c.server.options.PingInterval)
	defer tick.Stop()
	for {
		select {
		case <-c.out.gone:
			return
		case <-tick.C:
		}
		if c.out.stalled(maxPongDelay) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), c.server.options.PingInterval)
		err := c.ws.Ping(ctx)
		cancel()
		if err != nil && !c.out.stalled(maxPongDelay) {
			c.abort()
			return
		}
	}
}

// onPing reports whether the library should answer a ping.
func (c *conn) onPing(context.Context, []byte) bool { return !c.out.stalled(maxPongDelay) }

// errGone ends read when no answer can be sent any more.
var errGone = errors.New("the client does not read")

// read reads and handles messages, one at a time, until the connection ends.
func (c *conn) read() error {
	var buf bytes.Buffer
	timeout := c.server.options.ReadTimeout
	watchdog := time.AfterFunc(timeout, func() { c.closeWith(websocket.StatusPolicyViolation, reasonSlow) })
	defer watchdog.Stop()
	for {
		watchdog.Stop() // no deadline between messages
		kind, r, err := c.ws.Reader(context.Background())
		if err != nil {
			return err
		}
		watchdog.Reset(timeout)
		buf.Reset()
		if _, err := buf.ReadFrom(r); err != nil {
			return err
		}
		if !c.handle(kind, buf.Bytes()) {
			return errGone
		}
		if buf.Cap() > keepBuffer {
			buf = bytes.Buffer{}
		}
	}
}

// handle executes or refuses one message. It first waits for a free answer frame, so it reads no
// further messages from a client that does not read. It reports whether the connection still
// exists.
func (c *conn) handle(kind websocket.MessageType, msg []byte) bool {
	f := c.out.take(c.out.replies)
	if f == nil {
		return false
	}
	var bad *refusal
	if kind != websocket.MessageText {
		bad = invalid("binary messages are not part of the protocol; a message is a JSON object in a text frame")
	} else {
		var req request
		if req, bad = decode(msg, c.server.ranges); bad == nil {
			bad = c.executeRequest(req, f)
		}
	}
	if bad != nil {
		f.b = appendError(f.b[:0], newExecID(bad.id), time.Now(), bad.code, bad.message)
		c.out.send(f)
	}
	return true
}

// executeRequest executes a valid request. It uses the frame unless it returns a refusal.
func (c *conn) executeRequest(req request, f *frame) *refusal {
	switch req.kind {
	case wire.Execute:
		return c.execute(req.id, &req.run, f)
	case wire.Cancel:
		return c.cancel(req.id, f)
	default: // wire.Ping
		load := c.server.engine.StatsOf(engine.WithClient(context.Background(), c.client))
		f.b = appendPong(f.b[:0], time.Now(), load.Active, load.Queued)
		c.out.send(f)
		return nil
	}
}

// execute starts an execution and acknowledges it.
func (c *conn) execute(id string, e *execute, f *frame) *refusal {
	if bad := c.checkAdmission(id); bad != nil {
		return bad
	}
	// Without mu, because Admit may look for the interpreter. Only this goroutine adds executions,
	// so the result of admits stays valid unless a drain begins.
	client, traced := c.begin(e)
	exec, err := c.server.engine.Admit(e.job(client, &c.server.options))
	if err != nil {
		traced()
		return refuse(id, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		exec.Cancel()
		traced()
		return refuse(id, errShutdown)
	}
	r := &run{conn: c, id: newExecID(id), exec: exec, traced: traced}
	c.runs[id] = r
	// Queued before any message of the execution.
	f.b = appendAck(f.b[:0], r.id, time.Now())
	c.out.send(f)
	go r.run()
	return nil
}

// begin returns the client of an execution, with a request id of its own, and begins its trace. A
// message without a traceparent has that of the connection.
func (c *conn) begin(e *execute) (_ sandbar.Client, traced func()) {
	client := c.client
	client.Request = engine.NewRequest()
	return c.server.engine.BeginRequest(client, "fathom execute", cmp.Or(e.traceparent, c.traceparent))
}

// checkAdmission checks whether the connection may start another execution.
func (c *conn) checkAdmission(id string) *refusal {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch _, running := c.runs[id]; {
	case running:
		return &refusal{id: id, code: wire.CodeInvalidRequest,
			message: "an execution with this id is under way on this connection; use a fresh id for each"}
	case c.draining:
		return refuse(id, errShutdown)
	case len(c.runs) >= c.server.options.MaxExecutions:
		return &refusal{id: id, code: wire.CodeSandboxOverloaded,
			message: "this connection has as many executions under way as it may have; wait for one to end"}
	}
	return nil
}

// cancel cancels an execution, which then reports its own end.
func (c *conn) cancel(id string, f *frame) *refusal {
	c.mu.Lock()
	r, ok := c.runs[id]
	c.mu.Unlock()
	if !ok {
		return &refusal{id: id, code: wire.CodeUnknownExecution,
			message: "no execution with this id is under way on this connection; it may have ended already"}
	}
	c.out.release(f)
	r.cancelled.Store(true)
	r.exec.Cancel()
	return nil
}

// finish removes an execution and sends its last message, under one lock. So the id is free when
// the client sees the message, and an execution that reuses the id sends nothing before it.
func (c *conn) finish(r *run, last func(b []byte) []byte) {
	f := c.out.take(c.out.runs)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runs, r.id.name)
	if f != nil {
		f.b = last(f.b[:0])
		c.out.send(f)
	}
	if c.draining && len(c.runs) == 0 {
		close(c.idle)
	}
}

// stopAdmission refuses further executions. It closes idle after the running ones have ended.
func (c *conn) stopAdmission() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return
	}
	c.draining = true
	if len(c.runs) == 0 {
		close(c.idle)
	}
}

// each calls end for every running execution.
func (c *conn) each(end func(*engine.Execution)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.runs {
		end(r.exec)
	}
}

// onDisconnect gives the executions of a lost connection their grace period, cancels them and waits
// for their end (docs/protocols.md, Fathom: "Pending Executions on Disconnect").
func (c *conn) onDisconnect() {
	c.stopAdmission()
	grace := time.NewTimer(c.server.options.DisconnectGrace)
	defer grace.Stop()
	select {
	case <-c.idle:
	case <-grace.C:
		c.each((*engine.Execution).Cancel)
		<-c.idle
	}
}

// drain ends the connection gracefully, see Server.Shutdown.
func (c *conn) drain(ctx context.Context) {
	c.stopAdmission()
	done := make(chan struct{})
	defer close(done)
	stop := context.AfterFunc(ctx, func() { c.forceClose(done) })
	defer stop()
	<-c.idle
	c.out.flush()
	c.closeWith(websocket.StatusGoingAway, reasonShutdown)
}

// forceClose cancels running executions, and after closeWait closes the connection by force: a
// program may ignore TERM, a client may not read.
func (c *conn) forceClose(done <-chan struct{}) {
	c.each((*engine.Execution).Cancel)
	wait := time.NewTimer(closeWait)
	defer wait.Stop()
	select {
	case <-done:
	case <-wait.C:
		c.each((*engine.Execution).Kill)
		c.abort()
	}
}
