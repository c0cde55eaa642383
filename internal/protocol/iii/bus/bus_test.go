package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar/internal/protocol/iii/channel"
	"github.com/sandbar-dev/sandbar/internal/protocol/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second

// rig is a server with functions for tests.
type rig struct {
	*Server
	t      testing.TB
	url    string
	client *http.Client
	// slow counts the calls of slow in progress; release ends one.
	slow    atomic.Int64
	release chan struct{}
	stopped atomic.Int64 // number of calls of slow whose context ended
}

func (r *rig) functions() []Function {
	return []Function{
		{ID: "echo", Description: "gives back", Request: json.RawMessage(`{"type":"string"}`), Response: json.RawMessage(`{"type":"string"}`),
			Handle: func(_ context.Context, c Call) (any, error) { return c.Data, nil }},
		{ID: "fail", Handle: func(context.Context, Call) (any, error) { return nil, errors.New("it failed") }},
		{ID: "fail::code", Handle: func(context.Context, Call) (any, error) { return nil, &Error{Code: "OWN", Message: "its own"} }},
		{ID: "panic", Handle: func(context.Context, Call) (any, error) { panic("secret") }},
		{ID: "slow", Handle: func(ctx context.Context, c Call) (any, error) {
			r.slow.Add(1)
			defer r.slow.Add(-1)
			select {
			case <-r.release:
				return "released", nil
			case <-ctx.Done():
				r.stopped.Add(1)
				return nil, ctx.Err()
			}
		}},
	}
}

func newRig(t testing.TB, o ServerOptions) *rig {
	r := &rig{t: t, release: make(chan struct{})}
	hub := channel.NewHub(channel.Options{})
	o.Functions, o.Channels = r.functions(), hub
	r.Server = NewServer(o)
	mux := http.NewServeMux()
	mux.Handle("/{$}", r.Server)
	mux.HandleFunc("/otel", r.ServeTelemetry)
	s := httptest.NewServer(mux)
	r.url = s.URL
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.Shutdown(ctx) // the error is ctx's
		hub.Close()
		s.Close()
		if r.slow.Load() != 0 {
			t.Errorf("%d calls are left", r.slow.Load())
		}
	})
	return r
}

func TestTranscripts(t *testing.T) {
	wiretest.Protocol{Serve: func(t *testing.T, _ string) wiretest.Dial {
		return wiretest.WebSocket(newRig(t, ServerOptions{}).url, nil)
	}}.Run(t, "testdata/*.txtar")
}

// peer is a client without an SDK.
type peer struct {
	t             testing.TB
	ws            *websocket.Conn
	worker, token string
}

func (r *rig) connect() *peer {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, r.url, &websocket.DialOptions{HTTPClient: r.client})
	if err != nil {
		r.t.Fatal(err)
	}
	ws.SetReadLimit(-1)
	p := &peer{t: r.t, ws: ws}
	r.t.Cleanup(func() { ws.CloseNow() })
	m := p.receive()
	p.worker, p.token = m.WorkerID, m.ReattachToken
	return p
}

func (p *peer) send(format string, args ...any) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.ws.Write(ctx, websocket.MessageText, fmt.Appendf(nil, format, args...)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) invoke(id, function string) {
	p.t.Helper()
	p.send(`{"type":"invokefunction","invocation_id":%q,"function_id":%q,"data":{}}`, id, function)
}

func (p *peer) receive() *message {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, b, err := p.ws.Read(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	m, err := decode(b)
	if err != nil {
		p.t.Fatalf("%v: %s", err, b)
	}
	return m
}

func (r *rig) eventually(ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatal("it did not come about")
		}
	}
}

func (r *rig) connected() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, c := range r.workers {
		if c.connected {
			n++
		}
	}
	return n
}

// TestReattach tests that a client that reconnects with its token gets the results of its earlier
// calls, and that a client without the token does not.
func TestReattach(t *testing.T) {
	r := newRig(t, ServerOptions{Grace: time.Hour})
	first := r.connect()
	first.invoke("i1", "slow")
	first.invoke("i2", "slow")
	r.eventually(func() bool { return r.slow.Load() == 2 })
	first.ws.CloseNow()
	r.eventually(func() bool { return r.connected() == 0 })
	r.release <- struct{}{} // its result waits for the client
	thief := r.connect()
	thief.send(`{"type":"reattach","previous_worker_id":%q,"reattach_token":"guess"}`, first.worker)
	thief.send(`{"type":"reattach","previous_worker_id":%q,"reattach_token":%q}`, thief.worker, thief.token)
	thief.invoke("mine", "echo")
	if m := thief.receive(); m.InvocationID != "mine" {
		t.Fatalf("%+v", m)
	}
	second := r.connect()
	second.send(`{"type":"reattach","previous_worker_id":%q,"reattach_token":%q}`, first.worker, first.token)
	one := second.receive()
	r.release <- struct{}{}
	two := second.receive()
	if one.InvocationID == two.InvocationID || string(one.Result) != `"released"` || string(two.Result) != `"released"` {
		t.Errorf("%+v, %+v", one, two)
	}
	// A live connection is replaced as well.
	second.invoke("i3", "slow")
	r.eventually(func() bool { return r.slow.Load() == 1 })
	third := r.connect()
	third.send(`{"type":"reattach","previous_worker_id":%q,"reattach_token":%q}`, second.worker, second.token)
	r.eventually(func() bool { return r.connected() == 2 })
	r.release <- struct{}{}
	if m := third.receive(); m.InvocationID != "i3" {
		t.Errorf("%+v", m)
	}
	r.eventually(func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.workers) == 2 })
}

// pipes is a listener for a bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error   { close(l.done); return nil }
func (l *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// newBubble is newRig for a testing/synctest bubble, where time advances when all goroutines are
// blocked.
func newBubble(t *testing.T, o ServerOptions) *rig {
	r := &rig{t: t, release: make(chan struct{}), url: "http://pipe.test"}
	hub := channel.NewHub(channel.Options{})
	o.Functions, o.Channels = r.functions(), hub
	r.Server = NewServer(o)
	l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	transport := &http.Transport{DialContext: l.dial}
	r.client = &http.Client{Transport: transport}
	hs := &http.Server{Handler: r.Server}
	go hs.Serve(l)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.Shutdown(ctx)
		hub.Close()
		hs.Close()
		transport.CloseIdleConnections()
	})
	return r
}

// TestGraceEnds tests that the calls of a lost client are cancelled after the grace period.
func TestGraceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, ServerOptions{Grace: 10 * time.Second})
		p := r.connect()
		p.invoke("i1", "slow")
		synctest.Wait()
		p.ws.CloseNow()
		time.Sleep(10*time.Second - 1)
		synctest.Wait()
		if r.slow.Load() != 1 {
			t.Error("the call ended too early")
		}
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		if r.slow.Load() != 0 || r.stopped.Load() != 1 || len(r.workers) != 0 {
			t.Errorf("%d calls, %d workers are left", r.slow.Load(), len(r.workers))
		}
	})
}

// TestKeepAlive tests that an idle client that answers pings is kept, and one that does not is
// dropped.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, ServerOptions{})
		for _, answers := range []bool{true, false} {
			ws, _, err := websocket.Dial(t.Context(), r.url, &websocket.DialOptions{HTTPClient: r.client,
				OnPingReceived: func(context.Context, []byte) bool { return answers }})
			if err != nil {
				t.Fatal(err)
			}
			defer ws.CloseNow()
			go func() {
				for err := error(nil); err == nil; {
					_, _, err = ws.Read(context.Background())
				}
			}()
		}
		time.Sleep(pingEvery + pongWithin - time.Second)
		synctest.Wait()
		if n := r.connected(); n != 2 {
			t.Errorf("%d are connected before the answer is due", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := r.connected(); n != 1 {
			t.Errorf("%d are connected when it is overdue", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := r.connected(); n != 1 {
			t.Errorf("%d are connected after an hour", n)
		}
	})
}

func TestSlowMessageEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, ServerOptions{})
		p := r.connect()
		w, err := p.ws.Writer(t.Context(), websocket.MessageText)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, 5000)); err != nil { // a first fragment only
			t.Fatal(err)
		}
		go p.ws.Read(context.Background()) // answers pings
		time.Sleep(readWithin + time.Second)
		synctest.Wait()
		if n := r.connected(); n != 0 {
			t.Errorf("%d are connected", n)
		}
		p.ws.CloseNow()
	})
}

func TestLimits(t *testing.T) {
	r := newRig(t, ServerOptions{MaxCalls: 2, MaxFunctions: 1, MaxConnections: 2})
	p := r.connect()
	p.invoke("i1", "slow")
	p.invoke("i2", "slow")
	p.invoke("i3", "slow")
	if m := p.receive(); m.InvocationID != "i3" || m.Error == nil || m.Error.Code != CodeInvocation {
		t.Errorf("%+v", m)
	}
	r.release <- struct{}{}
	r.release <- struct{}{}
	p.receive()
	p.receive()
	p.send(`{"type":"registerfunction","id":"a"}`)
	p.send(`{"type":"registerfunction","id":"a"}`)
	p.send(`{"type":"registerfunction","id":"b"}`)
	if m := p.receive(); m.Type != kindRegistrationRejected || m.FunctionID != "b" {
		t.Errorf("%+v", m)
	}
	p.send(`{"type":"registerfunction","id":%q}`, strings.Repeat("x", maxName+1))
	if m := p.receive(); m.Type != kindRegistrationRejected {
		t.Errorf("%+v", m)
	}
	r.connect()
	if _, resp, err := websocket.Dial(context.Background(), r.url, nil); err == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a third connection: %v", err)
	}
}

func TestMessageTooLargeEndsTheConnection(t *testing.T) {
	r := newRig(t, ServerOptions{})
	p := r.connect()
	go func() { _ = p.ws.Write(context.Background(), websocket.MessageText, make([]byte, maxMessage+1)) }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, _, err := p.ws.Read(ctx); websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
		t.Errorf("%v", err)
	}
	other := r.connect()
	big := strings.Repeat("x", 20<<20)
	other.send(`{"type":"invokefunction","invocation_id":"i","function_id":"echo","data":%q}`, big)
	if m := other.receive(); len(m.Result) != len(big)+2 {
		t.Errorf("%d bytes were returned", len(m.Result))
	}
}

func TestAuthorize(t *testing.T) {
	r := newRig(t, ServerOptions{Authorize: func(req *http.Request) error {
		if req.Header.Get("Authorization") != "Bearer right" {
			return errors.New("the token is missing or wrong")
		}
		return nil
	}})
	for header, status := range map[string]int{"": 401, "Bearer wrong": 401, "Bearer right": 101} {
		for _, path := range []string{"", "/otel"} {
			ws, resp, err := websocket.Dial(context.Background(), r.url+path, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {header}}})
			if resp == nil || resp.StatusCode != status {
				t.Errorf("%q at %q: %v, %v", header, path, resp, err)
			}
			if err == nil {
				ws.CloseNow()
			}
		}
	}
}

// TestTelemetry tests that telemetry of any amount is discarded, and that a socket with an
// incomplete or too large message is closed.
func TestTelemetry(t *testing.T) {
	dial := func(r *rig) *websocket.Conn {
		ws, _, err := websocket.Dial(context.Background(), r.url+"/otel", nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ws.CloseNow() })
		return ws
	}
	r := newRig(t, ServerOptions{})
	ws := dial(r)
	for range 100 {
		if err := ws.Write(context.Background(), websocket.MessageBinary, make([]byte, 100<<10)); err != nil {
			t.Fatal(err)
		}
	}
	if err := ws.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	large := dial(r)
	go func() { _ = large.Write(context.Background(), websocket.MessageBinary, make([]byte, maxTelemetry+1)) }()
	if _, _, err := large.Read(context.Background()); websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
		t.Errorf("a message that is too large: %v", err)
	}
	r = newRig(t, ServerOptions{TelemetryIdle: time.Millisecond, MaxConnections: 2})
	silent, begun := dial(r), dial(r)
	if w, err := begun.Writer(context.Background(), websocket.MessageBinary); err == nil {
		_, _ = w.Write([]byte("the beginning of a message")) // it may be closed already
	}
	for _, ws := range []*websocket.Conn{silent, begun} {
		if _, _, err := ws.Read(context.Background()); err == nil {
			t.Error("a socket that says nothing has an answer")
		}
	}
	r.eventually(func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.drains == 0 })
}

func TestShutdownLetsCallsEnd(t *testing.T) {
	r := newRig(t, ServerOptions{})
	p := r.connect()
	p.invoke("i1", "slow")
	r.eventually(func() bool { return r.slow.Load() == 1 })
	ended := make(chan error, 1)
	go func() { ended <- r.Shutdown(context.Background()) }()
	r.eventually(func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.closing })
	p.invoke("i2", "echo")
	if m := p.receive(); m.InvocationID != "i2" || m.Error == nil || m.Error.Code != CodeStopped {
		t.Errorf("%+v", m)
	}
	r.release <- struct{}{}
	if m := p.receive(); m.InvocationID != "i1" || string(m.Result) != `"released"` {
		t.Errorf("%+v", m)
	}
	if _, _, err := p.ws.Read(context.Background()); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("%v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, resp, err := websocket.Dial(context.Background(), r.url, nil); err == nil || resp.StatusCode != 503 {
		t.Errorf("%v", err)
	}
}

func TestShutdownCancels(t *testing.T) {
	r := newRig(t, ServerOptions{})
	p := r.connect()
	p.invoke("i1", "slow")
	r.eventually(func() bool { return r.slow.Load() == 1 })
	p.ws.CloseRead(context.Background())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Shutdown(ctx); !errors.Is(err, context.Canceled) || r.stopped.Load() != 1 {
		t.Errorf("%v, %d", err, r.stopped.Load())
	}
}

// TestDeafClientDisturbsNobody tests that a client that does not read delays no other.
func TestDeafClientDisturbsNobody(t *testing.T) {
	r := newRig(t, ServerOptions{MaxCalls: 50})
	deaf := r.connect()
	data := strings.Repeat("x", 1<<20)
	for i := range 50 {
		deaf.send(`{"type":"invokefunction","invocation_id":"d%d","function_id":"echo","data":%q}`, i, data)
	}
	deaf.send(`{"type":"registerfunction","id":"deaf::fn"}`)
	other := r.connect()
	for i := range 100 {
		other.invoke(fmt.Sprint(i), "echo")
		if m := other.receive(); m.InvocationID != fmt.Sprint(i) {
			t.Fatalf("%+v", m)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"type":"invokefunction","invocation_id":"i","function_id":"f","data":{},"action":{"type":"void"},"error":{"code":"a","message":"b","stacktrace":null}}`))
	f.Add([]byte(`{"type":"invocationresult","invocation_id":"i","error":"text"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil {
			return
		}
		again, err := encode(m)
		if err != nil {
			t.Fatalf("%q cannot be written: %v", b, err)
		}
		if _, err := decode(again); err != nil {
			t.Fatalf("%q became %q, which cannot be read", b, again)
		}
		withCaller(m.Data, "id")
	})
}
