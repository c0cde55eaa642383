package fathom

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar/client/fathom/wire"
)

const (
	dialTime  = 10 * time.Second
	writeTime = 30 * time.Second // of one message
	// shortLife is the life of a connection that counts as lost at once.
	shortLife = time.Second
	// maxQueued bounds the messages of one execution that wait for their receiver, beside the bytes of
	// their output.
	maxQueued = 1 << 20
)

// connected returns the connection. It waits for one, at most Options.GiveUp. A refusal for good,
// such as that of a token, is returned at once; a later call tries again.
func (c *Client) connected(ctx context.Context) (*conn, error) {
	late := time.NewTimer(c.options.GiveUp)
	defer late.Stop()
	for first := true; ; first = false {
		c.mu.Lock()
		conn, refusal, changed := c.conn, c.refusal, c.changed
		if conn == nil && (first || refusal == nil) {
			c.connect()
		}
		c.mu.Unlock()
		switch {
		case c.ctx.Err() != nil:
			return nil, lost("the client is closed")
		case conn != nil:
			return conn, nil
		case refusal != nil && !first:
			return nil, refusal
		}
		select {
		case <-changed:
		case <-late.C:
			return nil, lost("there was no connection to the server for " + c.options.GiveUp.String())
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.ctx.Done():
		}
	}
}

// connect starts to connect, unless that is in progress. c.mu is held.
func (c *Client) connect() {
	if c.connecting || c.ctx.Err() != nil {
		return
	}
	c.connecting, c.refusal = true, nil
	pause := time.Duration(0) // the first attempt is immediate, unless connections are lost at once
	for range c.short - 1 {
		pause = min(max(2*pause, c.options.Backoff), c.options.MaxBackoff)
	}
	c.work.Go(func() {
		for c.ctx.Err() == nil {
			if pause > 0 {
				select {
				case <-time.After(pause):
				case <-c.ctx.Done():
					return
				}
			}
			ws, err := c.dial()
			switch e, refused := errors.AsType[*Error](err); {
			case err == nil:
				c.use(ws)
				return
			case refused && !e.Retryable:
				c.change(nil, e)
				return
			}
			pause = min(max(2*pause, c.options.Backoff), c.options.MaxBackoff)
		}
	})
}

// change sets the connection, or the reason why there is none, and wakes those that wait.
func (c *Client) change(conn *conn, refusal error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.refusal, c.connecting = conn, refusal, false
	close(c.changed)
	c.changed = make(chan struct{})
}

// dial opens a WebSocket. An *Error that is not Retryable is a refusal for good.
func (c *Client) dial() (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(c.ctx, dialTime)
	defer cancel()
	header := http.Header{wire.VersionHeader: {strconv.Itoa(wire.Version)}}
	if c.options.Token != "" {
		header.Set("Authorization", "Bearer "+c.options.Token)
	}
	ws, resp, err := websocket.Dial(ctx, c.url, &websocket.DialOptions{HTTPClient: c.options.HTTP, HTTPHeader: header, CompressionMode: websocket.CompressionDisabled})
	if err == nil {
		if version := resp.Header.Get(wire.VersionHeader); version != "" && version != strconv.Itoa(wire.Version) {
			ws.Close(websocket.StatusPolicyViolation, "the version is not supported")
			return nil, wrong("the server speaks version " + strconv.Quote(version) + " of the protocol, and this client version " + strconv.Itoa(wire.Version))
		}
		ws.SetReadLimit(c.options.MaxMessage)
		return ws, nil
	}
	if resp == nil || resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, lost(err.Error())
	}
	var text bytes.Buffer
	if resp.Body != nil {
		text.ReadFrom(resp.Body) // at most 1 KiB: the library has read it
	}
	return nil, wrong(fmt.Sprintf("the server refused the connection with %s: %s", resp.Status, strings.TrimSpace(text.String())))
}

// use serves a connection until it is lost, and then connects again.
func (c *Client) use(ws *websocket.Conn) {
	conn := &conn{ws: ws, gone: make(chan struct{}), pending: map[string]*execution{}}
	c.change(conn, nil)
	began := time.Now()
	var tasks sync.WaitGroup
	tasks.Go(func() { conn.keepAlive(c.options.PingInterval) })
	stop := context.AfterFunc(c.ctx, conn.close)
	why := conn.read()
	c.mu.Lock()
	c.conn = nil // before executions fail: one that is retried waits for the next connection
	if c.short++; time.Since(began) > shortLife {
		c.short = 0
	}
	c.connect()
	c.mu.Unlock()
	conn.end(why)
	stop()
	ws.CloseNow()
	tasks.Wait()
}

// conn is a connection.
type conn struct {
	ws   *websocket.Conn
	gone chan struct{} // closed when no message arrives any more

	mu      sync.Mutex
	err     error // why the connection is gone
	pending map[string]*execution
	pongs   []chan Message // of pings without an answer, in their order
	begun   uint64         // number of executions so far
	sending sync.Mutex     // held while an execution is registered and sent; before mu
}

// execution is a pending execution.
type execution struct {
	id     string
	number uint64 // in the order of the executions of a connection
	conn   *conn
	more   chan struct{} // receives after a change of what follows

	// guarded by conn.mu
	known bool // the server has answered its message
	queue []Message
	size  int64 // bytes of output so far
	most  int64 // of size
	err   error // no further message arrives
}

var errTooMuch = errors.New("there is more output than was asked for")

// take returns the messages that have arrived. With an error no further ones arrive; errTooMuch:
// further output is dropped.
func (x *execution) take() ([]Message, error) {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	all := x.queue
	x.queue = nil
	if x.err == nil && (x.size > x.most || len(all) >= maxQueued) {
		return all, errTooMuch
	}
	return all, x.err
}

// put adds a message. x.conn.mu is held.
func (x *execution) put(m Message) {
	x.known = true
	if m.Type == wire.Stdout || m.Type == wire.Stderr {
		x.size += int64(len(m.Data))
		if x.size > x.most || len(x.queue) >= maxQueued {
			m.Data = ""
		}
	}
	if len(x.queue) < maxQueued || m.Type == wire.ResultType || m.Type == wire.ErrorType {
		x.queue = append(x.queue, m)
	}
	x.wake()
}

func (x *execution) wake() {
	select {
	case x.more <- struct{}{}:
	default:
	}
}

// begin registers an execution and sends its message. The server answers messages in their order.
func (c *conn) begin(id string, most int64, text []byte) (*execution, error) {
	c.sending.Lock()
	defer c.sending.Unlock()
	x, err := c.register(id, most)
	if err == nil {
		c.send(text) // if it fails, the end of the connection is reported to x
	}
	return x, err
}

func (c *conn) register(id string, most int64) (*execution, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	if c.pending[id] != nil {
		return nil, wrong("an execution with the id " + strconv.Quote(id) + " is pending")
	}
	c.begun++
	x := &execution{id: id, number: c.begun, conn: c, more: make(chan struct{}, 1), most: most}
	c.pending[id] = x
	return x, nil
}

func (c *conn) forget(x *execution) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[x.id] == x {
		delete(c.pending, x.id)
	}
}

// send writes a message. A write that fails ends the connection. The end of a caller's context
// does not cut a write: the connection is that of other executions too.
func (c *conn) send(text []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	if err := c.ws.Write(ctx, websocket.MessageText, text); err != nil {
		c.close()
		return lost("the connection was lost: " + err.Error())
	}
	return nil
}

// expectPong returns a channel for the answer to a ping, which must be sent next.
func (c *conn) expectPong() <-chan Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	pong := make(chan Message, 1)
	c.pongs = append(c.pongs, pong)
	return pong
}

// read dispatches messages until the connection ends, and returns why.
func (c *conn) read() error {
	for {
		kind, text, err := c.ws.Read(context.Background())
		if err != nil {
			return err
		}
		var m Message
		switch err := json.Unmarshal(text, &m); {
		case kind != websocket.MessageText || err != nil:
			c.ws.Close(websocket.StatusProtocolError, "a message is a JSON object in a text frame")
			return errors.New("the server sent a message that is not JSON")
		case m.V != wire.Version:
			c.ws.Close(websocket.StatusProtocolError, "the version is not supported")
			return fmt.Errorf("the server sent a message of version %d", m.V)
		}
		c.dispatch(m)
	}
}

// unanswered returns the oldest execution without an answer, nil for none: an error without an id
// is the answer to it. c.mu is held.
func (c *conn) unanswered() (oldest *execution) {
	for _, x := range c.pending {
		if !x.known && (oldest == nil || x.number < oldest.number) {
			oldest = x
		}
	}
	return oldest
}

func (c *conn) dispatch(m Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Type == wire.Pong {
		if len(c.pongs) > 0 {
			c.pongs[0] <- m
			c.pongs = c.pongs[1:]
		}
		return
	}
	x := c.pending[m.ID]
	if m.ID == "" && m.Type == wire.ErrorType {
		if x = c.unanswered(); x != nil {
			m.ID = x.id
		}
	}
	if x == nil || m.Type == wire.ErrorType && m.Code == wire.CodeUnknownExecution {
		return // a cancel has crossed the end, or nobody waits any more
	}
	x.put(m)
}

// end fails the pending executions ("Pending Executions on Disconnect").
func (c *conn) end(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = lost("the connection was lost, and whether the program ran is not known: " + why.Error())
	large := websocket.CloseStatus(why) == websocket.StatusMessageTooBig
	for _, x := range c.pending {
		if x.err = c.err; large && !x.known {
			x.err = wrong("the server reads no message as large as this one, or as another one that was sent with it: " + why.Error())
		}
		x.wake()
	}
	close(c.gone)
}

func (c *conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// close ends the connection at once.
func (c *conn) close() { c.ws.CloseNow() }

// keepAlive pings until the connection is gone, and closes one that does not answer.
func (c *conn) keepAlive(interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-c.gone:
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), interval)
		err := c.ws.Ping(ctx)
		cancel()
		if err != nil {
			c.close()
			return
		}
	}
}
