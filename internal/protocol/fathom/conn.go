package fathom

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// Reasons in close frames.
const (
	reasonShutdown = "the server is shutting down"
	reasonSlow     = "the message did not arrive in time"
	reasonProtocol = "WebSocket protocol violation"
)

// keepBuffer is the size of read buffer that a connection keeps between
// messages; a larger one is given up.
const keepBuffer = 64 << 10

// pongPatience is how long a write may have been under way for a ping still to
// be answered. The library gives a connection up when a pong does not leave
// within 5 s; a client that has paused is owed Options.WriteTimeout.
const pongPatience = 100 * time.Millisecond

// conn is one client. Its goroutines are: the one that reads and serves
// (serve), the one that writes (outbox.run), the one that pings (keepAlive), and
// one for each execution (run.run).
type conn struct {
	server *Server
	client sandbar.Client
	ws     *websocket.Conn
	raw    net.Conn // under ws
	out    *outbox

	mu       sync.Mutex
	runs     map[string]*run
	draining bool          // no more executions
	idle     chan struct{} // closed when draining and runs is empty
}

func newConn(s *Server, client sandbar.Client) *conn {
	return &conn{server: s, client: client, out: newOutbox(), runs: map[string]*run{}, idle: make(chan struct{})}
}

// serve serves the connection until it has ended and its executions, too.
func (c *conn) serve() {
	log := c.server.options.Logger
	log.Debug("fathom: connected", "remote", c.raw.RemoteAddr().String())

	var tasks sync.WaitGroup
	tasks.Go(func() {
		if err := c.out.run(c.write, c.server.options.WriteTimeout, c.abort); err != nil {
			c.abort()
		}
	})
	tasks.Go(c.keepAlive)
	err := c.read()
	c.out.close() // from here on output is discarded
	tasks.Go(func() { c.hangUp(closeStatus(err)) })
	c.orphan()
	tasks.Wait()

	log.Debug("fathom: disconnected", "remote", c.raw.RemoteAddr().String(), "reason", err)
}

// write sends one message. It has no deadline of its own: the outbox aborts.
func (c *conn) write(b []byte) error {
	return c.ws.Write(context.Background(), websocket.MessageText, b)
}

// abort ends the connection without a word; what is blocked on it fails.
func (c *conn) abort() { c.raw.Close() }

// hangUp closes the connection with a status, and gives the peer closeWait to
// take note. After the first time, or after the peer's own close, it only waits.
func (c *conn) hangUp(code websocket.StatusCode, reason string) {
	// The library's handshake can wait for ever for the rest of a message.
	limit := time.AfterFunc(closeWait, c.abort)
	defer limit.Stop()
	c.ws.Close(code, reason)
}

// closeStatus is what a client is told when reading from it failed.
func closeStatus(err error) (websocket.StatusCode, string) {
	if errors.Is(err, websocket.ErrMessageTooBig) {
		return websocket.StatusMessageTooBig, "" // the library has said so already
	}
	return websocket.StatusProtocolError, reasonProtocol
}

// keepAlive pings, and drops a peer that does not answer. While a message is
// stuck the write timeout decides instead.
func (c *conn) keepAlive() {
	tick := time.NewTicker(c.server.options.PingInterval)
	defer tick.Stop()
	for {
		select {
		case <-c.out.gone:
			return
		case <-tick.C:
		}
		if c.out.stalled(pongPatience) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), c.server.options.PingInterval)
		err := c.ws.Ping(ctx)
		cancel()
		if err != nil && !c.out.stalled(pongPatience) {
			c.abort()
			return
		}
	}
}

// onPing reports whether the library shall answer a ping.
func (c *conn) onPing(context.Context, []byte) bool { return !c.out.stalled(pongPatience) }

// errGone ends read when nothing can be answered any more.
var errGone = errors.New("the client does not read")

// read takes messages one at a time until the connection's end.
func (c *conn) read() error {
	var buf bytes.Buffer
	timeout := c.server.options.ReadTimeout
	watchdog := time.AfterFunc(timeout, func() { c.hangUp(websocket.StatusPolicyViolation, reasonSlow) })
	defer watchdog.Stop()
	for {
		watchdog.Stop() // between messages a client may take its time
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

// handle obeys or refuses one message. It waits for room for an answer first,
// so a client that sends and does not read is not read from either. It reports
// whether the connection is still there.
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
			bad = c.obey(req, f)
		}
	}
	if bad != nil {
		f.b = appendError(f.b[:0], newExecID(bad.id), time.Now(), bad.code, bad.message)
		c.out.send(f)
	}
	return true
}

// obey does what a valid request asks for. It uses the frame unless it returns
// a refusal.
func (c *conn) obey(req request, f *frame) *refusal {
	switch req.kind {
	case typeExecute:
		return c.execute(req.id, &req.run, f)
	case typeCancel:
		return c.cancel(req.id, f)
	default: // typePing
		load := c.server.engine.Stats()
		f.b = appendPong(f.b[:0], time.Now(), load.Active, load.Queued)
		c.out.send(f)
		return nil
	}
}

// execute starts an execution and acknowledges it.
func (c *conn) execute(id string, e *execute, f *frame) *refusal {
	if bad := c.admits(id); bad != nil {
		return bad
	}
	// Without mu: Admit may have to look whether there is such an interpreter. Only this goroutine
	// adds executions, so that what admits has found holds, but for a drain that begins.
	exec, err := c.server.engine.Admit(e.job(c.client, &c.server.options))
	if err != nil {
		return refuse(id, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		exec.Cancel()
		return refuse(id, errShutdown)
	}
	r := &run{conn: c, id: newExecID(id), exec: exec}
	c.runs[id] = r
	// Queued before the execution can queue anything.
	f.b = appendAck(f.b[:0], r.id, time.Now())
	c.out.send(f)
	go r.run()
	return nil
}

// admits refuses an execution that the connection cannot have, whatever it is.
func (c *conn) admits(id string) *refusal {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch _, running := c.runs[id]; {
	case running:
		return &refusal{id: id, code: CodeInvalidRequest,
			message: "an execution with this id is under way on this connection; use a fresh id for each"}
	case c.draining:
		return refuse(id, errShutdown)
	case len(c.runs) >= c.server.options.MaxExecutions:
		return &refusal{id: id, code: CodeSandboxOverloaded,
			message: "this connection has as many executions under way as it may have; wait for one to end"}
	}
	return nil
}

// cancel ends an execution; the execution itself tells the client.
func (c *conn) cancel(id string, f *frame) *refusal {
	c.mu.Lock()
	r, ok := c.runs[id]
	c.mu.Unlock()
	if !ok {
		return &refusal{id: id, code: CodeUnknownExecution,
			message: "no execution with this id is under way on this connection; it may have ended already"}
	}
	c.out.giveBack(f)
	r.cancelled.Store(true)
	r.exec.Cancel()
	return nil
}

// finish removes an execution and sends its last message. Both happen at once:
// when the client sees the message the id is free again, and an execution that
// takes the id over says nothing before it.
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

// refuseMore lets no more executions begin. idle is closed once those under
// way have ended.
func (c *conn) refuseMore() {
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

// each calls end for every execution under way.
func (c *conn) each(end func(*engine.Execution)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.runs {
		end(r.exec)
	}
}

// orphan gives executions whose client is gone their grace, cancels them and
// waits for their end (docs/protocols.md, Fathom: "Pending Executions on
// Disconnect").
func (c *conn) orphan() {
	c.refuseMore()
	grace := time.NewTimer(c.server.options.DisconnectGrace)
	defer grace.Stop()
	select {
	case <-c.idle:
	case <-grace.C:
		c.each((*engine.Execution).Cancel)
		<-c.idle
	}
}

// drain ends the connection in order, see Server.Shutdown.
func (c *conn) drain(ctx context.Context) {
	c.refuseMore()
	done := make(chan struct{})
	defer close(done)
	stop := context.AfterFunc(ctx, func() { c.cutShort(done) })
	defer stop()
	<-c.idle
	c.out.flush()
	c.hangUp(websocket.StatusGoingAway, reasonShutdown)
}

// cutShort cancels what is under way, and ends by force what has not ended
// closeWait later: a program that ignores TERM, a client that does not read.
func (c *conn) cutShort(done <-chan struct{}) {
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
