package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar/internal/protocol/iii/channel"
)

// ClientOptions are the parameters of a worker. NewClient replaces zero fields with the defaults
// given here.
type ClientOptions struct {
	// URL is the engine's, such as ws://host:49134. Required.
	URL string
	// Header is sent with the upgrade, for the engine's authorization.
	Header http.Header
	// Name, Version and Description describe the worker. Default for Name: "iii-sandbox".
	Name, Version, Description string
	// Functions are registered on every connection.
	Functions []Function
	// MaxCalls is the most running invocations; further ones are answered with CodeInvocation.
	// Default 1024.
	MaxCalls int
	// FirstDelay is the delay before a reconnect. It doubles with every failure up to MaxDelay,
	// with a jitter of 30 %. Defaults 1 s and 30 s.
	FirstDelay, MaxDelay time.Duration
	// Logger receives structured logs, never payloads. Default: discards.
	Logger *slog.Logger
}

func (o ClientOptions) withDefaults() ClientOptions {
	setDefault(&o.Name, "iii-sandbox")
	setDefault(&o.MaxCalls, 1024)
	setDefault(&o.FirstDelay, time.Second)
	setDefault(&o.MaxDelay, 30*time.Second)
	setDefault(&o.Logger, slog.New(slog.DiscardHandler))
	return o
}

// Client is a worker that joins an engine.
type Client struct {
	opt ClientOptions
	own map[string]*Function

	mu      sync.Mutex
	session *session // nil without a connection
	last    identity
	changed chan struct{} // closed and replaced when session changes
}

// identity is the id that an engine has given to a worker, and the proof of it.
type identity struct{ worker, token string }

// session is one connection to the engine. Client.mu guards its fields, except constant ones.
type session struct {
	sock    *socket
	ctx     context.Context // ends with the connection
	calls   int
	tasks   sync.WaitGroup
	pending map[string]chan *message
}

// NewClient returns a Client. Run connects it.
func NewClient(o ClientOptions) *Client {
	c := &Client{opt: o.withDefaults(), own: map[string]*Function{}, changed: make(chan struct{})}
	for i := range c.opt.Functions {
		c.own[c.opt.Functions[i].ID] = &c.opt.Functions[i]
	}
	return c
}

// Run stays connected until ctx ends, and returns its error. It retries failed connections; only an
// invalid URL is returned at once.
func (c *Client) Run(ctx context.Context) error {
	if !strings.HasPrefix(c.opt.URL, "ws://") && !strings.HasPrefix(c.opt.URL, "wss://") {
		return fmt.Errorf("the engine's address %q must begin with ws:// or wss://", c.opt.URL)
	}
	delay := c.opt.FirstDelay
	for {
		connected, err := c.once(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if connected {
			delay = c.opt.FirstDelay
		}
		wait := time.Duration(float64(delay) * (0.7 + 0.6*rand.Float64()))
		c.opt.Logger.Warn("iii: not connected to the engine; trying again", "in", wait.Round(time.Millisecond), "reason", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		delay = min(2*delay, c.opt.MaxDelay)
	}
}

// once makes one connection and serves it until its end.
func (c *Client) once(ctx context.Context) (connected bool, err error) {
	sock := newSocket()
	dialCtx, stop := context.WithTimeout(ctx, 10*time.Second)
	ws, _, err := websocket.Dial(dialCtx, c.opt.URL, &websocket.DialOptions{HTTPHeader: c.opt.Header,
		CompressionMode: websocket.CompressionDisabled, OnPingReceived: sock.onPing})
	stop()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &session{sock: sock, ctx: ctx, pending: map[string]chan *message{}}
	c.opt.Logger.Info("iii: connected to the engine")
	last := c.before() // read before the engine's greeting can arrive
	s.tasks.Go(func() { c.greet(s, last) })
	err = sock.run(ctx, ws, func(frame []byte) { c.handle(s, frame) })
	cancel()
	c.lose(s)
	s.tasks.Wait()
	return true, err
}

// before returns the worker's identity on its last connection.
func (c *Client) before() identity {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// greet sends the worker's messages in the order that all engine versions accept: its previous
// identity, its description, its functions.
func (c *Client) greet(s *session, last identity) {
	if last.token != "" {
		s.sock.post(&message{Type: kindReattach, PreviousWorkerID: last.worker, ReattachToken: last.token})
	}
	data, _ := json.Marshal(map[string]any{"runtime": "go", "version": c.opt.Version, "name": c.opt.Name,
		"description": c.opt.Description, "os": runtime.GOOS + " (" + runtime.GOARCH + ")", "pid": os.Getpid()})
	s.sock.post(&message{Type: kindInvokeFunction, FunctionID: "engine::workers::register",
		Action: &action{Type: "void"}, Data: data})
	for i := range c.opt.Functions {
		f := &c.opt.Functions[i]
		s.sock.post(&message{Type: kindRegisterFunction, ID: f.ID, Description: f.Description,
			RequestFormat: f.Request, ResponseFormat: f.Response, Metadata: f.Metadata})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.ctx.Err() == nil {
		c.use(s)
	}
}

// use makes s the session for Invoke. The caller holds mu.
func (c *Client) use(s *session) {
	c.session = s
	close(c.changed)
	c.changed = make(chan struct{})
}

// lose ends a session and fails all calls that wait for the engine.
func (c *Client) lose(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == s {
		c.use(nil)
	}
	for id, done := range s.pending {
		delete(s.pending, id)
		done <- nil
	}
}

func (c *Client) handle(s *session, frame []byte) {
	m, err := decode(frame)
	if err != nil {
		return
	}
	switch m.Type {
	case kindWorkerRegistered:
		c.mu.Lock()
		c.last = identity{m.WorkerID, m.ReattachToken}
		c.mu.Unlock()
	case kindInvokeFunction:
		c.begin(s, m)
	case kindInvocationResult:
		c.mu.Lock()
		if done := s.pending[m.InvocationID]; done != nil {
			delete(s.pending, m.InvocationID)
			done <- m
		}
		c.mu.Unlock()
	case kindRegistrationRejected:
		c.opt.Logger.Error("iii: the engine has refused a function; another worker has it",
			"function", show(m.FunctionID), "code", show(m.Code))
	case kindPing:
		s.sock.post(&message{Type: kindPong})
	}
}

// begin runs an invocation. The answer goes to the invocation's own connection, or nowhere: if that
// is lost, the engine has already answered the caller.
func (c *Client) begin(s *session, m *message) {
	if m.Data == nil {
		m.Data = json.RawMessage("null")
	}
	reply := func(raw json.RawMessage, failed *Error) {
		if m.InvocationID != "" {
			s.sock.post(resultOf(m, raw, failed))
		}
	}
	if !c.enter(s) {
		reply(nil, &Error{Code: CodeInvocation, Message: "this worker has as many invocations under way as it may have"})
		return
	}
	s.tasks.Go(func() {
		defer c.leave(s)
		reply(c.run(s, m))
	})
}

func (c *Client) enter(s *session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.calls >= c.opt.MaxCalls {
		return false
	}
	s.calls++
	return true
}

func (c *Client) leave(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.calls--
}

func (c *Client) run(s *session, m *message) (json.RawMessage, *Error) {
	f := c.own[m.FunctionID]
	if f == nil {
		return nil, functionNotFound(m.FunctionID)
	}
	var caller struct {
		ID string `json:"_caller_worker_id"`
	}
	_ = json.Unmarshal(m.Data, &caller) // absent if data is not an object
	return answer(guarded(s.ctx, f.Handle, Call{Function: m.FunctionID, Data: m.Data, Caller: caller.ID, Traceparent: m.Traceparent}))
}

// ErrDisconnected is Invoke's error if the connection broke before the answer.
var ErrDisconnected = errors.New("the connection to the engine broke")

// Invoke calls a function through the engine and waits for its result, as JSON. It waits for a
// connection first. An error of the engine or the function is an *Error.
func (c *Client) Invoke(ctx context.Context, function string, data any) (json.RawMessage, error) {
	raw, err := encode(data)
	if err != nil {
		return nil, err
	}
	s, err := c.await(ctx)
	if err != nil {
		return nil, err
	}
	id, done := channel.NewUUID(), make(chan *message, 1)
	c.mu.Lock()
	s.pending[id] = done
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(s.pending, id)
	}()
	if !s.sock.post(&message{Type: kindInvokeFunction, InvocationID: id, FunctionID: function, Data: raw}) {
		return nil, ErrDisconnected
	}
	select {
	case m := <-done:
		switch {
		case m == nil:
			return nil, ErrDisconnected
		case m.Error != nil:
			return nil, m.Error
		}
		return m.Result, nil
	case <-s.sock.gone:
		return nil, ErrDisconnected
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// await waits for a session and returns it.
func (c *Client) await(ctx context.Context) (*session, error) {
	for {
		c.mu.Lock()
		s, changed := c.session, c.changed
		c.mu.Unlock()
		if s != nil {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
