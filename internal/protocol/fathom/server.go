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
	"github.com/sandbar-dev/sandbar/client/fathom/wire"
	"github.com/sandbar-dev/sandbar/engine"
)

// closeWait bounds the closing of a connection: sending the rest and waiting for the peer's close
// frame.
const closeWait = 2 * time.Second

// Options are the operator's settings. New replaces zero fields with the defaults given here.
type Options struct {
	// MaxCode, MaxEnv and MaxStdin are in bytes of UTF-8, after decoding; MaxEnv
	// is for names and values together. Defaults: 1 MiB, 64 KiB, 1 MiB. Larger
	// is INVALID_REQUEST. They should not exceed the engine's own.
	MaxCode, MaxEnv, MaxStdin int64
	// MaxExecutions is the most running executions of one connection, queued ones included; further
	// ones are SANDBOX_OVERLOADED. Default 256.
	MaxExecutions int
	// DisconnectGrace is the time after which executions of a lost connection are cancelled.
	// Default 5 s; negative: at once.
	DisconnectGrace time.Duration
	// WriteTimeout bounds the write of one message. A client that does not read for that long loses
	// its connection. Default 30 s.
	WriteTimeout time.Duration
	// ReadTimeout bounds the time from a message's first frame to its last. Default 60 s.
	ReadTimeout time.Duration
	// PingInterval is the interval of WebSocket pings. A peer that has not answered one when the
	// next is due is dropped. Default 30 s.
	PingInterval time.Duration
	// Record stores executions, if the engine has a store. By default none is stored
	// (docs/protocols.md, Fathom: "Sensitive Data").
	Record bool
	// Network gives programs network access by the operator's rules; see sandbar.NetworkOutbound.
	// By default they have none ("Execution Isolation": unless explicitly enabled).
	Network bool
	// Logger logs connections, never code, environment or output. Default: discards.
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

// Server serves the protocol over WebSocket connections. Its methods may be called concurrently.
type Server struct {
	engine  *engine.Engine
	options Options
	ranges  *ranges

	serving sync.WaitGroup // connections

	mu      sync.Mutex
	closing bool // also guards Add of serving
	conns   map[*conn]struct{}
}

// New returns a Server whose executions run on e.
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

// ServeHTTP upgrades the request to a WebSocket connection and serves it until it and its
// executions have ended. The listener has checked token, Host and Origin before.
//
// A request for another protocol version gets 400 and the served version, in the body and in
// X-Protocol-Version. A request during a shutdown gets 503.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(wire.VersionHeader, strconv.Itoa(Version))
	if asked, ok := acceptsVersion(r.Header); !ok {
		http.Error(w, "protocol version "+quote(asked)+" is not served; this server speaks version "+strconv.Itoa(Version)+
			" (send "+wire.VersionHeader+": "+strconv.Itoa(Version)+", or leave the header out)", http.StatusBadRequest)
		return
	}
	if !s.begin() {
		http.Error(w, "the server is shutting down", http.StatusServiceUnavailable)
		return
	}
	defer s.serving.Done()

	c := newConn(s, engine.Client(r.Context()))
	c.client.Trace, c.traceparent = "", r.Header.Get("Traceparent")
	hj := &hijacker{ResponseWriter: w}
	ws, err := websocket.Accept(hj, r, &websocket.AcceptOptions{
		// The listener has checked Origin against the operator's settings. A second check could
		// only refuse what was allowed there.
		InsecureSkipVerify: true,
		// A compressed message could expand a thousandfold.
		CompressionMode: websocket.CompressionDisabled,
		OnPingReceived:  c.onPing,
	})
	if err != nil {
		return // Accept has sent a response
	}
	ws.SetReadLimit(s.ranges.maxFrame())
	c.ws, c.raw = ws, hj.conn
	if !s.add(c) {
		c.closeWith(websocket.StatusGoingAway, reasonShutdown)
		return
	}
	defer s.remove(c)
	// The request's context ends early only if the token becomes invalid.
	defer context.AfterFunc(r.Context(), func() {
		c.stopAdmission()
		c.closeWith(websocket.StatusPolicyViolation, reasonRevoked)
	})()
	c.serve()
}

// acceptsVersion reports whether the headers request the served version, or none. If not, it
// returns the requested one.
func acceptsVersion(h http.Header) (asked string, ok bool) {
	for _, v := range h.Values(wire.VersionHeader) {
		if v != strconv.Itoa(Version) {
			return v, false
		}
	}
	return "", true
}

// hijacker is a ResponseWriter that records the connection under the WebSocket: closing it is the
// only way to end a blocked write in all cases.
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

// begin counts a new connection. It returns false during a shutdown.
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

// Shutdown ends the server gracefully. It refuses new connections and executions. Running
// executions continue until they end or ctx ends, and are then cancelled. Their final messages are
// sent, and connections are closed with status 1001. A client that does not read them is cut off
// closeWait after the end of ctx. When Shutdown returns, no execution of this server is left. It
// returns ctx's error if ctx ended first.
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

// Close ends the server at once: it kills executions and cuts connections. When it returns, nothing
// of this server is left.
func (s *Server) Close() error {
	for _, c := range s.close() {
		c.stopAdmission()
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
