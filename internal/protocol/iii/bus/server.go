package bus

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar/internal/protocol/iii/channel"
)

// ServerOptions are the operator's settings. NewServer replaces zero fields with the defaults given
// here.
type ServerOptions struct {
	// Functions are the server's own. Clients cannot register their names.
	Functions []Function
	// WorkerName is the worker under which these functions are listed. Default "iii-sandbox".
	WorkerName string
	// Channels is used by engine::channels::create. Required.
	Channels *channel.Hub
	// Authorize decides which clients may connect, as a worker or for telemetry; a refused client
	// gets the error's text with 401. Nil: all requests may connect.
	Authorize func(*http.Request) error
	// MaxConnections is the most sockets of each kind; further ones are refused with 503. Default
	// 1024.
	MaxConnections int
	// MaxCalls is the most running invocations of one client; further ones are answered with
	// CodeInvocation. Default 1024.
	MaxCalls int
	// MaxFunctions is the most functions that one client can register. Default 1024.
	MaxFunctions int
	// Grace is the time for which the calls of a lost client continue, so that it can reconnect and
	// receive their results. Default 10 s; negative: none.
	Grace time.Duration
	// TelemetryIdle is the time without a complete message after which a telemetry socket is
	// closed. Default 5 min.
	TelemetryIdle time.Duration
	// Logger receives structured logs, never payloads. Default: discards.
	Logger *slog.Logger
}

func (o ServerOptions) withDefaults() ServerOptions {
	setDefault(&o.WorkerName, "iii-sandbox")
	setDefault(&o.MaxConnections, 1024)
	setDefault(&o.MaxCalls, 1024)
	setDefault(&o.MaxFunctions, 1024)
	setDefault(&o.Grace, 10*time.Second)
	setDefault(&o.TelemetryIdle, 5*time.Minute)
	setDefault(&o.Logger, slog.New(slog.DiscardHandler))
	return o
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Server is the engine's side. Its methods may be called concurrently.
type Server struct {
	opt    ServerOptions
	own    map[string]*Function
	engine map[string]builtin

	ctx    context.Context // ends with the last step of Shutdown
	cancel context.CancelFunc
	tasks  sync.WaitGroup // sockets and calls

	mu        sync.Mutex
	closing   bool               // no new calls and connections
	closed    bool               // no new tasks
	idle      chan struct{}      // closed when closing and nothing runs
	underWay  int                // running calls
	workers   map[string]*worker // connected, or lost within their grace period
	functions map[string]*registration
	drains    int // telemetry sockets
}

// NewServer makes a Server.
func NewServer(o ServerOptions) *Server {
	s := &Server{opt: o.withDefaults(), own: map[string]*Function{}, idle: make(chan struct{}),
		workers: map[string]*worker{}, functions: map[string]*registration{}}
	for i := range s.opt.Functions {
		s.own[s.opt.Functions[i].ID] = &s.opt.Functions[i]
	}
	s.engine = s.builtins()
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// worker is one connection of a client. Server.mu guards its fields, except constant ones.
type worker struct {
	id, token string
	sock      *socket

	about     workerInfo
	connected bool
	functions map[string]*registration
	bytes     int                 // of registrations
	calls     map[*call]struct{}  // that it has made
	pending   map[string]*pending // that it executes

	// A client that reconnects is a new worker. moved is closed then, and next is the new worker.
	// given is closed when the client will not come back.
	moved chan struct{}
	next  *worker
	given chan struct{}
	grace *time.Timer
}

// call is one running invocation.
type call struct {
	by     *worker // changes when the client reconnects; guarded by Server.mu
	cancel context.CancelFunc
	ran    chan struct{} // closed when the function has returned
}

// registration is a function of a client.
type registration struct {
	Function
	owner *worker
	bytes int
}

// pending is an invocation that a client executes.
type pending struct{ done chan *message }

// ServeHTTP serves the worker socket.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.authorized(w, r) {
		return
	}
	c := s.admit()
	if c == nil {
		http.Error(w, "the server is shutting down, or has as many connections as it may have", http.StatusServiceUnavailable)
		return
	}
	defer s.tasks.Done()
	ws, err := accept(w, r, c.sock.onPing)
	if err != nil {
		s.leave(c)
		return // Accept has sent a response
	}
	s.opt.Logger.Debug("iii: worker connected", "worker", c.id, "remote", r.RemoteAddr)
	// queued before the client can have sent anything
	c.sock.post(&message{Type: kindWorkerRegistered, WorkerID: c.id, ReattachToken: c.token})
	err = c.sock.run(s.ctx, ws, func(frame []byte) { s.handle(c, frame) })
	s.leave(c)
	s.opt.Logger.Debug("iii: worker disconnected", "worker", c.id, "reason", err)
}

// authorized responds to a request that may not connect.
func (s *Server) authorized(w http.ResponseWriter, r *http.Request) bool {
	if s.opt.Authorize == nil {
		return true
	}
	err := s.opt.Authorize(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
	}
	return err == nil
}

// accept upgrades a request.
func accept(w http.ResponseWriter, r *http.Request, onPing func(context.Context, []byte) bool) (*websocket.Conn, error) {
	return websocket.Accept(w, r, &websocket.AcceptOptions{
		// Authorize, and the listener's checks of Host and Origin, have decided already.
		InsecureSkipVerify: true,
		// A compressed message could expand a thousandfold.
		CompressionMode: websocket.CompressionDisabled,
		OnPingReceived:  onPing,
	})
}

// ServeTelemetry reads and discards what SDKs send to /otel. Clients that cannot connect to it log
// errors for ever.
func (s *Server) ServeTelemetry(w http.ResponseWriter, r *http.Request) {
	if !s.authorized(w, r) {
		return
	}
	if !s.admitDrain() {
		http.Error(w, "the server is shutting down, or has as many connections as it may have", http.StatusServiceUnavailable)
		return
	}
	defer s.tasks.Done()
	defer s.leaveDrain()
	ws, err := accept(w, r, nil)
	if err != nil {
		return
	}
	defer ws.CloseNow()
	ws.SetReadLimit(maxTelemetry)
	for s.drain(ws) == nil {
	}
}

// drain reads and discards one message.
func (s *Server) drain(ws *websocket.Conn) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.opt.TelemetryIdle)
	defer cancel()
	_, msg, err := ws.Reader(ctx)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, bufio.NewReaderSize(msg, 4096))
	return err
}

func (s *Server) admitDrain() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.drains >= s.opt.MaxConnections {
		return false
	}
	s.drains++
	s.tasks.Add(1)
	return true
}

func (s *Server) leaveDrain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drains--
}

// admit returns a worker for a new connection, nil if the bound is reached.
func (s *Server) admit() *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || len(s.workers) >= s.opt.MaxConnections {
		return nil
	}
	c := &worker{id: channel.NewUUID(), token: rand.Text(), sock: newSocket(), connected: true,
		functions: map[string]*registration{}, calls: map[*call]struct{}{}, pending: map[string]*pending{},
		moved: make(chan struct{}), given: make(chan struct{})}
	s.workers[c.id] = c
	s.tasks.Add(1)
	return c
}

// leave handles the end of a connection: the client's functions are removed at once, its calls are
// cancelled after the grace period.
func (s *Server) leave(c *worker) {
	c.sock.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	c.connected = false
	for id, r := range c.functions {
		if s.functions[id] == r {
			delete(s.functions, id)
		}
	}
	c.functions = map[string]*registration{}
	for id, p := range c.pending {
		delete(c.pending, id)
		p.done <- nil
	}
	if len(c.calls) == 0 || s.closing || s.opt.Grace < 0 || c.next != nil {
		s.forget(c)
		return
	}
	c.grace = time.AfterFunc(s.opt.Grace, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forget(c)
	})
}

// forget cancels what is left of a worker that will not reconnect. The caller holds mu. It may be
// called more than once.
func (s *Server) forget(c *worker) {
	if c.grace != nil {
		c.grace.Stop()
	}
	if s.workers[c.id] != c {
		return
	}
	delete(s.workers, c.id)
	if c.next != nil {
		return // its calls belong to its successor
	}
	close(c.given)
	for x := range c.calls {
		x.cancel()
	}
}

// reattach makes c the successor of the same client's earlier worker.
func (s *Server) reattach(c *worker, m *message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.workers[m.PreviousWorkerID]
	if old == nil || old == c || old.next != nil ||
		subtle.ConstantTimeCompare([]byte(old.token), []byte(m.ReattachToken)) != 1 {
		return
	}
	old.next = c
	for x := range old.calls {
		x.by = c
		c.calls[x] = struct{}{}
	}
	old.calls = map[*call]struct{}{}
	close(old.moved)
	old.sock.end()
	if !old.connected {
		s.forget(old)
	}
	if old.connected {
		s.tasks.Go(old.sock.cut)
	}
}

// Shutdown ends the server gracefully: it refuses new connections and calls, lets running calls
// continue until they end or ctx ends, cancels the rest, and closes the connections with status
// 1001. When it returns, nothing of the server is left. It returns ctx's error if ctx ended first.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.closing {
		s.closing = true
		s.settle()
	}
	for _, c := range s.workers {
		if !c.connected { // it cannot reconnect any more
			s.forget(c)
		}
	}
	s.mu.Unlock()
	select {
	case <-s.idle:
	case <-ctx.Done():
	}
	var closing sync.WaitGroup
	s.mu.Lock()
	s.closed = true
	for _, c := range s.workers {
		for x := range c.calls {
			x.cancel()
		}
		if ws := c.sock.ws.Load(); c.connected && ws != nil {
			closing.Go(func() { flush(c.sock); ws.Close(websocket.StatusGoingAway, "the server is shutting down") })
		}
	}
	s.mu.Unlock()
	closing.Wait()
	s.cancel()
	s.tasks.Wait()
	return ctx.Err()
}

// flush waits briefly for queued frames to be sent.
func flush(s *socket) {
	for end := time.Now().Add(2 * time.Second); s.unsent.Load() > 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		select {
		case <-s.gone:
			return
		default:
		}
	}
}

// settle closes idle if nothing runs during a shutdown. The caller holds mu.
func (s *Server) settle() {
	if s.closing && s.underWay == 0 {
		select {
		case <-s.idle:
		default:
			close(s.idle)
		}
	}
}
