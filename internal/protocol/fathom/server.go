package fathom

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// versionHeader carries the protocol version at the upgrade, in both
// directions (docs/protocols.md, Fathom: "Version Negotiation").
const versionHeader = "X-Protocol-Version"

// closeWait is how long a connection that is being closed may take over it:
// to send what is left, and to let the peer see why.
const closeWait = 2 * time.Second

// Options are what an operator can set. New fills zero fields with the
// defaults given here.
type Options struct {
	// MaxCode, MaxEnv and MaxStdin are in bytes of UTF-8, after decoding; MaxEnv
	// is for names and values together. Defaults: 1 MiB, 64 KiB, 1 MiB. Larger
	// is INVALID_REQUEST. They should not exceed the engine's own.
	MaxCode, MaxEnv, MaxStdin int64
	// MaxExecutions is how many executions of one connection may be under way
	// at once, queued ones included; more is SANDBOX_OVERLOADED. Default 256.
	MaxExecutions int
	// DisconnectGrace is how long executions of a connection that is gone run
	// on before they are cancelled. Default 5 s; negative: none.
	DisconnectGrace time.Duration
	// WriteTimeout is how long one message may take to leave. A client that
	// reads nothing for so long loses its connection. Default 30 s.
	WriteTimeout time.Duration
	// ReadTimeout is how long one message may take to arrive, from its first
	// frame to its last. Default 60 s.
	ReadTimeout time.Duration
	// PingInterval is the time between WebSocket pings; a peer that has not
	// answered one when the next is due is dropped. Default 30 s.
	PingInterval time.Duration
	// Record keeps executions where the engine has something that keeps them.
	// By default none is kept (docs/protocols.md, Fathom: "Sensitive Data").
	Record bool
	// Network lets programs reach out, by the operator's rules; see sandbar.NetworkOutbound. By
	// default they have no network ("Execution Isolation": unless explicitly enabled).
	Network bool
	// Logger takes structured logs: of connections, never of code, environment
	// or output. Default: discards.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	setDefault(&o.MaxCode, mebibyte)
	setDefault(&o.MaxEnv, 64<<10)
	setDefault(&o.MaxStdin, mebibyte)
	setDefault(&o.MaxExecutions, 256)
	setDefault(&o.DisconnectGrace, 5*time.Second)
	setDefault(&o.WriteTimeout, 30*time.Second)
	setDefault(&o.ReadTimeout, 60*time.Second)
	setDefault(&o.PingInterval, 30*time.Second)
	setDefault(&o.Logger, slog.New(slog.DiscardHandler))
	return o
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Server serves the protocol over WebSocket connections. Its methods may be
// called concurrently.
type Server struct {
	engine  *engine.Engine
	options Options
	ranges  *ranges

	serving sync.WaitGroup // connections

	mu      sync.Mutex
	closing bool // guards Add of serving, too
	conns   map[*conn]struct{}
}

// New makes a Server whose executions run on e.
func New(e *engine.Engine, o Options) *Server {
	o = o.withDefaults()
	def, low, high := e.Limits()
	s := &Server{
		engine:  e,
		options: o,
		ranges:  newRanges(def, low, high, e.Languages(), o),
		conns:   map[*conn]struct{}{},
	}
	s.ranges.available = e.Available
	return s
}

// ServeHTTP upgrades the request to a WebSocket connection and serves it until
// its end; executions that outlive the connection are part of it. Who may
// connect has been decided before: the listener checks token, Host and Origin.
//
// A request for another version of the protocol is answered with 400 and the
// version that is served, in the body and in X-Protocol-Version; one that
// comes during a shutdown, with 503.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(versionHeader, strconv.Itoa(Version))
	if asked, ok := acceptsVersion(r.Header); !ok {
		http.Error(w, "protocol version "+quote(asked)+" is not served; this server speaks version "+strconv.Itoa(Version)+
			" (send "+versionHeader+": "+strconv.Itoa(Version)+", or leave the header out)", http.StatusBadRequest)
		return
	}
	if !s.begin() {
		http.Error(w, "the server is shutting down", http.StatusServiceUnavailable)
		return
	}
	defer s.serving.Done()

	c := newConn(s, engine.Client(r.Context()))
	hj := &hijacker{ResponseWriter: w}
	ws, err := websocket.Accept(hj, r, &websocket.AcceptOptions{
		// The listener has compared Origin with what the operator allows. A
		// second opinion here could only refuse what was allowed there.
		InsecureSkipVerify: true,
		// A compressed message could be a thousand times its size.
		CompressionMode: websocket.CompressionDisabled,
		OnPingReceived:  c.onPing,
	})
	if err != nil {
		return // Accept has answered
	}
	ws.SetReadLimit(s.ranges.maxFrame())
	c.ws, c.raw = ws, hj.conn
	if !s.add(c) {
		c.hangUp(websocket.StatusGoingAway, reasonShutdown)
		return
	}
	defer s.remove(c)
	c.serve()
}

// acceptsVersion reports whether the headers ask for the version served, or
// for none in particular. If not it returns what they ask for.
func acceptsVersion(h http.Header) (asked string, ok bool) {
	for _, v := range h.Values(versionHeader) {
		if v != strconv.Itoa(Version) {
			return v, false
		}
	}
	return "", true
}

// hijacker is a ResponseWriter that remembers the connection under the
// WebSocket: closing that is the one thing that always ends a blocked write.
type hijacker struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	h.conn = conn
	return conn, rw, err
}

// begin counts a connection that is being made; false during a shutdown.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.serving.Add(1)
	return true
}

func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// Shutdown ends the server in order. New connections and new executions are
// refused; executions under way go on until they end or ctx does, and are then
// cancelled; their final messages are sent; connections are closed with status
// 1001. A client that does not read its final messages is cut off closeWait
// after the end of ctx. When Shutdown returns no execution of this server is
// left. It returns ctx's error if ctx ended first.
//
// The engine's own Shutdown comes after.
func (s *Server) Shutdown(ctx context.Context) error {
	var drains sync.WaitGroup
	for _, c := range s.close() {
		drains.Go(func() { c.drain(ctx) })
	}
	drains.Wait()
	s.serving.Wait()
	return ctx.Err()
}

// Close ends the server at once: executions are killed, connections cut. When
// it returns nothing of this server is left.
func (s *Server) Close() error {
	for _, c := range s.close() {
		c.refuseMore()
		c.abort()
		c.each((*engine.Execution).Kill)
	}
	s.serving.Wait()
	return nil
}

func (s *Server) close() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}

var errShutdown = &sandbar.Error{Code: sandbar.Unavailable, Message: "the server is shutting down",
	Fix: "connect again and retry"}
