package fathom

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar/client/fathom/wire"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/backend"
)

// backends creates the real drivers.
var backends backend.Pool

func TestMain(m *testing.M) { os.Exit(backends.Main(m)) }

// patience bounds failing tests. No test depends on a duration.
const patience = 30 * time.Second

// rig is a server over an engine and a driver, with a client's address.
type rig struct {
	t      testing.TB
	driver *faulty.Driver // nil over another driver
	engine *engine.Engine
	server *Server
	url    string
	client *http.Client // nil: the default
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
}

// newRig starts a server over the faulty driver.
func newRig(t testing.TB, c engine.Config, o Options, prepare ...func(*faulty.Driver)) *rig {
	t.Helper()
	d := faulty.New()
	for _, f := range prepare {
		f(d)
	}
	r := newRigOver(t, d, c, o)
	r.driver = d
	return r
}

// newRigOver starts a server over a driver. At the end of the test it closes the server and checks
// for leaks.
func newRigOver(t testing.TB, d driver.Driver, c engine.Config, o Options) *rig {
	t.Helper()
	r := &rig{t: t}
	c.Driver = d
	var err error
	if r.engine, err = engine.New(c); err != nil {
		t.Fatal(err)
	}
	r.server = New(r.engine, o)
	listener := httptest.NewServer(r.server)
	r.url = listener.URL
	r.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", listener.Listener.Addr().String())
	}
	t.Cleanup(func() {
		r.close()
		listener.Close()
	})
	return r
}

func (r *rig) close() {
	r.server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.engine.Shutdown(ctx); err != nil {
		r.t.Errorf("the engine's shutdown: %v", err)
	}
	if r.driver == nil {
		return
	}
	if err := r.driver.Leaks(); err != nil {
		r.t.Error(err)
	}
}

// newBubble is newRig for a testing/synctest bubble: connections are unbuffered pipes, and time
// advances when all goroutines are blocked.
func newBubble(t *testing.T, c engine.Config, o Options) *rig {
	t.Helper()
	r := &rig{t: t, driver: faulty.New(), url: "http://pipe.test"}
	c.Driver = r.driver
	var err error
	if r.engine, err = engine.New(c); err != nil {
		t.Fatal(err)
	}
	r.server = New(r.engine, o)
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	transport := &http.Transport{DialContext: l.dial}
	r.client = &http.Client{Transport: transport}
	hs := &http.Server{Handler: r.server}
	go hs.Serve(l)
	t.Cleanup(func() {
		r.close()
		hs.Close()
		transport.CloseIdleConnections()
	})
	r.dial = l.dial
	return r
}

// pipeListener is a net.Listener whose connections are pipes.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	close(l.done)
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// client is a test's connection.
type client struct {
	t  testing.TB
	ws *websocket.Conn
}

func (r *rig) connect() *client {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, r.url, &websocket.DialOptions{HTTPClient: r.client})
	if err != nil {
		r.t.Fatal(err)
	}
	ws.SetReadLimit(-1)
	r.t.Cleanup(func() { ws.CloseNow() })
	return &client{r.t, ws}
}

// raw makes a WebSocket connection by hand, for frames that no library would send, and returns the
// server's response to the upgrade.
func (r *rig) raw(headers ...string) (net.Conn, *bufio.Reader, *http.Response) {
	r.t.Helper()
	conn, err := r.dial(r.t.Context(), "", "")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	head := "GET /ws HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
	for _, h := range headers {
		head += h + "\r\n"
	}
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write([]byte(head + "\r\n")); err != nil {
		r.t.Fatal(err)
	}
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	conn.SetDeadline(time.Time{})
	return conn, br, resp
}

// send sends a message unchanged.
func (c *client) send(msg string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.ws.Write(ctx, websocket.MessageText, []byte(msg)); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// execute sends an execute message with a script of the faulty driver.
func (c *client) execute(id, script string, limits ...string) {
	c.t.Helper()
	lim := `"timeout_ms":30000,"memory_mb":256`
	if len(limits) > 0 {
		lim = strings.Join(limits, ",")
	}
	code, _ := json.Marshal(script)
	name, _ := json.Marshal(id)
	c.send(`{"v":1,"type":"execute","id":` + string(name) + `,"language":"shell","code":` + string(code) + `,"limits":{` + lim + `}}`)
}

func (c *client) cancel(id string) {
	c.t.Helper()
	c.send(`{"v":1,"type":"cancel","id":"` + id + `"}`)
}

func (c *client) ping() {
	c.t.Helper()
	c.send(`{"v":1,"type":"ping"}`)
}

// message is any message of the server.
type message struct {
	V         int
	Type, ID  string
	TS        time.Time
	Status    Status
	Data      string
	ExitCode  *int `json:"exit_code"`
	Duration  *int `json:"duration_ms"`
	Code      Code
	Message   string
	Retryable *bool
}

// receive returns the next message, which must be well-formed.
func (c *client) receive() message {
	c.t.Helper()
	m, err := c.tryReceive()
	if err != nil {
		c.t.Fatalf("receive: %v", err)
	}
	return m
}

func (c *client) tryReceive() (message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	kind, b, err := c.ws.Read(ctx)
	if err != nil {
		return message{}, err
	}
	var m message
	if err := json.Unmarshal(b, &m); err != nil || kind != websocket.MessageText || m.V != 1 {
		c.t.Errorf("received a malformed frame (%v): %q", err, b)
	}
	return m, nil
}

// expect compares the next messages, in the form of brief.
func (c *client) expect(want ...string) {
	c.t.Helper()
	for i, w := range want {
		if got := c.receive().brief(); got != w {
			c.t.Fatalf("message %d is %q, want %q", i, got, w)
		}
	}
}

// brief formats a message: "e1 status running", "e1 stdout text", "e1 result 0", "e1 error
// OUTPUT_LIMIT", "e1 ack", " pong".
func (m message) brief() string {
	s := m.ID + " " + m.Type
	switch m.Type {
	case wire.StatusType:
		s += " " + string(m.Status)
	case wire.Stdout, wire.Stderr:
		s += " " + m.Data
	case wire.ResultType:
		b, _ := json.Marshal(m.ExitCode)
		s += " " + string(b)
	case wire.ErrorType:
		s += " " + string(m.Code)
	}
	return s
}

// until reads messages up to the one whose brief form is want.
func (c *client) until(want string) {
	c.t.Helper()
	for {
		if got := c.receive().brief(); got == want {
			return
		}
	}
}

// closed reads messages until the connection's end and returns its status, -1 without a close
// frame.
func (c *client) closed() websocket.StatusCode {
	for {
		if _, err := c.tryReceive(); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

// await waits for a state that no message reports.
func (r *rig) await(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%s: not within %v", what, patience)
		}
	}
}
