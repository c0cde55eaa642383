package bus

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// join runs a Client until the test's end.
func (r *rig) join(o ClientOptions) *Client {
	r.t.Helper()
	o.URL = "ws" + strings.TrimPrefix(r.url, "http")
	o.FirstDelay, o.MaxDelay = time.Millisecond, 10*time.Millisecond
	c := NewClient(o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			r.t.Errorf("Run: %v", err)
		}
	})
	return c
}

// registered reports whether the server has a client's function.
func (r *rig) registered(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Server.functions[id] != nil
}

func remote() (functions []Function, slow chan struct{}) {
	slow = make(chan struct{})
	return []Function{
		{ID: "w::echo", Description: "gives back", Request: json.RawMessage(`{"type":"object"}`),
			Handle: func(_ context.Context, c Call) (any, error) { return []any{c.Function, c.Caller, c.Data}, nil }},
		{ID: "w::fail", Handle: func(context.Context, Call) (any, error) { return nil, errors.New("it failed") }},
		{ID: "w::slow", Handle: func(ctx context.Context, c Call) (any, error) {
			slow <- struct{}{}
			<-ctx.Done()
			slow <- struct{}{}
			return "too late", nil
		}},
	}, slow
}

func TestWorkerAnswers(t *testing.T) {
	r := newRig(t, ServerOptions{})
	functions, _ := remote()
	r.join(ClientOptions{Functions: functions, Name: "w", Version: "1.2.3"})
	r.eventually(func() bool { return r.registered("w::slow") })
	p := r.connect()
	p.send(`{"type":"invokefunction","invocation_id":"i1","function_id":"w::echo","data":{"a":1},"traceparent":"tp"}`)
	m := p.receive()
	var got []json.RawMessage
	if err := json.Unmarshal(m.Result, &got); err != nil || string(got[0]) != `"w::echo"` || string(got[1]) != `"`+p.worker+`"` ||
		!strings.Contains(string(got[2]), `"a":1`) || m.Traceparent != "tp" {
		t.Errorf("%v, %+v, %s", err, m, m.Result)
	}
	p.invoke("i2", "w::fail")
	if m := p.receive(); m.Error == nil || m.Error.Code != CodeFailed || m.Error.Message != "handler error: it failed" {
		t.Errorf("%+v", m)
	}
	p.send(`{"type":"invokefunction","invocation_id":"i3","function_id":"engine::workers::info","data":{"name":"w"}}`)
	if m := p.receive(); m.Error != nil || !strings.Contains(string(m.Result), `"version":"1.2.3"`) {
		t.Errorf("%+v, %s", m.Error, m.Result)
	}
}

// A client asks for what it has just registered, without waiting for an answer in between.
func TestBuiltinsRunInOrder(t *testing.T) {
	p := newRig(t, ServerOptions{}).connect()
	for i := range 200 {
		p.send(`{"type":"invokefunction","function_id":"engine::workers::register","data":{"name":"w%d"},
			"action":{"type":"void"}}`, i)
		p.send(`{"type":"invokefunction","invocation_id":"i","function_id":"engine::workers::info","data":{"name":"w%d"}}`, i)
		if m := p.receive(); m.Error != nil {
			t.Fatalf("%+v", m.Error)
		}
	}
}

func TestWorkerInvokes(t *testing.T) {
	r := newRig(t, ServerOptions{})
	c := r.join(ClientOptions{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	raw, err := c.Invoke(ctx, "echo", map[string]string{"a": "<b>"})
	if err != nil || string(raw) != `{"a":"<b>"}` {
		t.Errorf("%s, %v", raw, err)
	}
	var e *Error
	if _, err := c.Invoke(ctx, "nope", nil); !errors.As(err, &e) || e.Code != CodeNotFound {
		t.Errorf("%v", err)
	}
	if _, err := c.Invoke(ctx, "echo", make(chan int)); err == nil {
		t.Error("a channel was sent")
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := c.Invoke(short, "slow", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	alone := NewClient(ClientOptions{URL: "ws://127.0.0.1:1"})
	if _, err := alone.Invoke(short, "echo", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if err := NewClient(ClientOptions{URL: "http://x"}).Run(ctx); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// engineStub is an engine that records what a worker sends.
type engineStub struct {
	*httptest.Server
	mu    sync.Mutex
	conns []*stubConn
	auth  []string
}

type stubConn struct {
	ws     *websocket.Conn
	frames chan *message
}

func newStub(t *testing.T) *engineStub {
	s := &engineStub{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		c := &stubConn{ws, make(chan *message, 100)}
		s.mu.Lock()
		s.conns = append(s.conns, c)
		s.auth = append(s.auth, r.Header.Get("Authorization"))
		s.mu.Unlock()
		_ = ws.Write(r.Context(), websocket.MessageText, []byte(`{"type":"workerregistered","worker_id":"me","reattach_token":"tok"}`))
		for {
			_, b, err := ws.Read(context.Background())
			if err != nil {
				close(c.frames)
				return
			}
			if m, err := decode(b); err == nil {
				c.frames <- m
			}
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *engineStub) conn(t *testing.T, n int) *stubConn {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		if len(s.conns) > n {
			c := s.conns[n]
			s.mu.Unlock()
			return c
		}
		s.mu.Unlock()
		if time.Now().After(end) {
			t.Fatalf("connection %d was not made", n)
		}
	}
}

func (c *stubConn) next(t *testing.T) *message {
	t.Helper()
	select {
	case m := <-c.frames:
		return m
	case <-time.After(patience):
		t.Fatal("received no frame")
		return nil
	}
}

// TestWorkerComesBack tests the messages with which a worker begins a connection, and their order,
// also after a reconnect: the token of its former connection, its description, its functions. A
// result for a call of the old connection is not sent over the new one.
func TestWorkerComesBack(t *testing.T) {
	s := newStub(t)
	functions, slow := remote()
	c := NewClient(ClientOptions{URL: "ws" + strings.TrimPrefix(s.URL, "http"), Header: http.Header{"Authorization": {"Bearer x"}},
		Name: "w", Functions: functions, FirstDelay: time.Millisecond, MaxDelay: time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.Run(ctx) }()
	defer func() { cancel(); <-ended }()

	kinds := func(c *stubConn, n int) (all []string) {
		for range n {
			m := c.next(t)
			all = append(all, string(m.Type)+" "+m.ID+m.FunctionID+m.PreviousWorkerID+" "+m.ReattachToken)
		}
		return all
	}
	greeting := []string{"invokefunction engine::workers::register ", "registerfunction w::echo ", "registerfunction w::fail ", "registerfunction w::slow "}
	first := s.conn(t, 0)
	if got := kinds(first, 4); !slices.Equal(got, greeting) {
		t.Errorf("%q", got)
	}
	_ = first.ws.Write(ctx, websocket.MessageText, []byte(`{"type":"invokefunction","invocation_id":"old","function_id":"w::slow","data":{}}`))
	<-slow
	// The worker's own invocation fails when the connection breaks.
	invoked := make(chan error, 1)
	go func() { _, err := c.Invoke(ctx, "something", nil); invoked <- err }()
	if m := first.next(t); m.FunctionID != "something" || m.InvocationID == "" {
		t.Errorf("%+v", m)
	}
	first.ws.CloseNow()
	<-slow
	if err := <-invoked; !errors.Is(err, ErrDisconnected) {
		t.Errorf("%v", err)
	}
	second := s.conn(t, 1)
	if got := kinds(second, 5); !slices.Equal(got, append([]string{"reattach me tok"}, greeting...)) {
		t.Errorf("%q", got)
	}
	_ = second.ws.Write(ctx, websocket.MessageText, []byte(`{"type":"ping"}`))
	_ = second.ws.Write(ctx, websocket.MessageText, []byte(`{"type":"registrationrejected","function_id":"w::echo","code":"x"}`))
	_ = second.ws.Write(ctx, websocket.MessageText, []byte(`{"type":"invokefunction","function_id":"w::echo","data":{}}`))
	_ = second.ws.Write(ctx, websocket.MessageText, []byte(`{"type":"invokefunction","invocation_id":"new","function_id":"gone","data":{}}`))
	if m := second.next(t); m.Type != kindPong {
		t.Errorf("%+v", m)
	}
	if m := second.next(t); m.InvocationID != "new" || m.Error == nil || m.Error.Code != CodeNotFound {
		t.Errorf("%+v", m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.auth[0] != "Bearer x" || s.auth[1] != "Bearer x" {
		t.Errorf("%q", s.auth)
	}
}
