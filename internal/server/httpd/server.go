package httpd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// What one request may take before its handler decides for itself.
const (
	headerTimeout = 10 * time.Second // to send its header
	bodyTimeout   = 30 * time.Second // to send a body that nobody asked for
	answerTimeout = 30 * time.Second // to take an answer of this package
	idleTimeout   = 2 * time.Minute  // between two requests of a connection
	maxHeader     = 32 << 10         // bytes
)

// Options are what a Server is made from.
type Options struct {
	// Listen is "HOST:PORT" or "unix:/path".
	Listen string
	// Token is what a request must bear. It may not be empty.
	Token string
	// TokenChosen: the operator chose the token. Without it the server listens
	// on loopback and unix sockets only.
	TokenChosen bool
	// Clients are further tokens that open the same, by the names of those who
	// bear them. Handlers learn the name, and the connection, by engine.Client.
	Clients map[string]string
	// MaxConnections is how many there may be at once; more are told to come again
	// and closed. Default: no bound.
	MaxConnections int
	// Certificate and Key are PEM files; both empty for plain HTTP.
	Certificate, Key string
	// AllowedHosts and AllowedOrigins are accepted beyond the server's own.
	AllowedHosts, AllowedOrigins []string
	// MetricsOpen lets GET /metrics answer without the token, on loopback.
	MetricsOpen bool
	// Version is what GET /health tells.
	Version string
	// Load is what GET /health tells to those who bear the token.
	Load func() engine.Stats
	// Metrics are what GET /metrics tells. Default: it is not there.
	Metrics *Metrics
	// Routes are handlers by their http.ServeMux pattern. They are reached only
	// through all checks, and have no deadlines but their own. A handler that
	// is an Admitter can let requests pass that bear another token.
	Routes map[string]http.Handler
	// Logger takes structured logs. Default: discards.
	Logger *slog.Logger
}

// Admitter is an ability of a handler in Options.Routes: it knows tokens besides
// the daemon's, each good for a part of what the handler serves.
type Admitter interface {
	http.Handler
	// Admits reports whether a request that does not bear the daemon's token
	// bears one that is good for exactly what it asks. Host and Origin have been
	// checked. It is called before anything is known of the client: it must
	// compare in constant time, tell nothing apart by its duration, and neither
	// answer nor read the body.
	Admits(r *http.Request) bool
}

// Server is a listener and what it serves.
type Server struct {
	options   Options
	guard     atomic.Pointer[guard] // Replace changes it
	mux       *http.ServeMux
	admitters map[string]Admitter // by pattern
	listener  net.Listener
	http      *http.Server
}

// Listen makes a Server and binds its address; connections wait until Serve.
// Errors: Invalid for options that cannot be right, Denied for listening
// beyond loopback without a chosen token, Unavailable when the address cannot
// be had.
func Listen(o Options) (*Server, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := checkToken(o); err != nil {
		return nil, err
	}
	ln, err := Bind(o.Listen)
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, listener: ln, mux: http.NewServeMux(), admitters: map[string]Admitter{}}
	if err = s.wrap(); err == nil {
		err = mayListen(ln.Addr(), o)
	}
	if err != nil {
		ln.Close()
		return nil, err
	}
	s.guard.Store(newGuard(o, ln.Addr()))
	s.routes()
	s.http = newHTTP(http.HandlerFunc(s.serveHTTP), o.Logger)
	return s, nil
}

func checkToken(o Options) error {
	if o.Token == "" {
		return &sandbar.Error{Code: sandbar.Invalid, Field: "token", Message: "there is no token", Fix: "set token, token_file or SANDBAR_TOKEN"}
	}
	return nil
}

// wrap gives the listener its bound and its certificate.
func (s *Server) wrap() error {
	o := s.options
	var config *tls.Config
	if o.Certificate != "" || o.Key != "" {
		pair, err := newKeyPair(o.Certificate, o.Key, o.Logger)
		if err != nil {
			return err
		}
		config = pair.config()
	}
	if o.MaxConnections > 0 {
		s.listener = bound(s.listener, o.MaxConnections, config != nil)
	}
	if config != nil {
		s.listener = tls.NewListener(s.listener, config)
	}
	return nil
}

// newHTTP is an http.Server with the bounds that every listener has.
func newHTTP(h http.Handler, logger *slog.Logger) *http.Server {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          log.New(logWriter{logger}, "", 0),
		// HTTP/2 would bring nothing to WebSockets and a large parser before
		// the token check.
		Protocols: new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	var connections atomic.Uint64
	server.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, flowKey{}, strconv.FormatUint(connections.Add(1), 10))
	}
	return server
}

// flowKey is where a request's context has the number of its connection.
type flowKey struct{}

// mayListen refuses to be reachable from elsewhere with a token that nobody
// chose, and warns where a token travels in the clear.
func mayListen(addr net.Addr, o Options) error {
	if isLoopback(addr) {
		return nil
	}
	if !o.TokenChosen {
		return &sandbar.Error{Code: sandbar.Denied, Field: "listen",
			Message: "listening on " + sandbar.Quote(o.Listen, 100) + " can be reached from other machines, and no token was set for it",
			Fix:     "set SANDBAR_TOKEN or token_file, or listen on 127.0.0.1"}
	}
	if o.Certificate == "" {
		o.Logger.Warn("listening beyond loopback without TLS: the token and all programs travel in the clear", "next", "set tls.cert and tls.key, or put a TLS proxy in front")
	}
	return nil
}

// Replace prepares new values of Token, TokenChosen, Clients, AllowedHosts,
// AllowedOrigins and MetricsOpen, which apply puts in force for every later
// request. Requests and connections that have been let in go on. All other fields
// of o are ignored. Errors: those of Listen; the old values stay in force.
func (s *Server) Replace(o Options) (apply func(), err error) {
	next := s.options
	next.Token, next.TokenChosen, next.Clients = o.Token, o.TokenChosen, o.Clients
	next.AllowedHosts, next.AllowedOrigins, next.MetricsOpen = o.AllowedHosts, o.AllowedOrigins, o.MetricsOpen
	if err := checkToken(next); err != nil {
		return nil, err
	}
	if err := mayListen(s.listener.Addr(), next); err != nil {
		return nil, err
	}
	g := newGuard(next, s.listener.Addr())
	return func() { s.guard.Store(g) }, nil
}

// URL is where the server is reached, such as "http://127.0.0.1:8080" or
// "unix:/run/sandbar.sock", with the port that was really taken.
func (s *Server) URL() string {
	addr := s.listener.Addr()
	if addr.Network() == "unix" {
		return "unix:" + addr.String()
	}
	scheme := "http"
	if s.options.Certificate != "" {
		scheme = "https"
	}
	return scheme + "://" + addr.String()
}

// Serve serves until Shutdown and then returns nil.
func (s *Server) Serve() error {
	err := s.http.Serve(s.listener)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving %s: %w", s.URL(), err)
}

// StopAccepting closes the listener. Connections go on.
func (s *Server) StopAccepting() error {
	err := s.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Shutdown stops accepting, waits for requests to be answered until ctx ends,
// and then cuts them off. Connections that a route has taken over (WebSockets)
// are the route's to end.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(err, s.http.Close())
	}
	return nil
}

// routes fills the mux. Patterns that contradict each other are a fault of the
// program, and ServeMux panics at start.
func (s *Server) routes() {
	s.mux.HandleFunc("GET /health", s.health)
	if s.options.Metrics != nil {
		s.mux.Handle("GET /metrics", s.options.Metrics.handler())
	}
	for pattern, h := range s.options.Routes {
		s.mux.Handle(pattern, unhurried(h))
		if a, ok := h.(Admitter); ok {
			s.admitters[pattern] = a
		}
	}
}

// admits asks the route that a request would reach.
func (s *Server) admits(r *http.Request) bool {
	_, pattern := s.mux.Handler(r)
	a, ok := s.admitters[pattern]
	return ok && a.Admits(r)
}

// unhurried lifts the deadlines for bodies and answers of this package off a
// route.
func unhurried(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		control.SetReadDeadline(time.Time{})
		control.SetWriteDeadline(time.Time{})
		h.ServeHTTP(w, r)
	})
}

// serveHTTP is every request's way.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.rescue(w, r)
	control := http.NewResponseController(w)
	control.SetWriteDeadline(time.Now().Add(answerTimeout))
	if r.ContentLength != 0 {
		control.SetReadDeadline(time.Now().Add(bodyTimeout))
	}
	secure(w.Header())
	client, refusal := s.guard.Load().check(r, s.admits)
	if refusal != nil {
		s.refuse(w, r, refusal)
		return
	}
	flow, _ := r.Context().Value(flowKey{}).(string)
	r = r.WithContext(engine.WithClient(r.Context(), sandbar.Client{Name: client, Flow: flow}))
	handler, pattern := s.mux.Handler(r)
	if pattern == "" {
		s.refuse(w, r, noRoute(handler, r))
		return
	}
	// Not the handler itself: the mux also sets what the pattern matched.
	s.mux.ServeHTTP(w, r)
}

// rescue answers for a handler that panicked, where it can still be answered.
func (s *Server) rescue(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	s.options.Logger.Error("a request handler panicked", "path", clip(r.URL.Path), "panic", clip(fmt.Sprint(v)), "stack", string(debug.Stack()))
	writeError(w, http.StatusInternalServerError, &sandbar.Error{Code: sandbar.Internal, Message: "the request failed because of a fault in Sandbar",
		Fix: "the daemon's log has more; try again, and report it"})
}

// secure sets what keeps a browser from making anything of an answer.
func secure(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
}

// clip keeps what a client chose short in logs; the log's handler escapes it.
func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

// logWriter passes on what net/http has to say, such as failed handshakes.
type logWriter struct{ logger *slog.Logger }

// Write logs one line.
func (w logWriter) Write(p []byte) (int, error) {
	w.logger.Debug("http", "message", clip(strings.TrimSpace(string(p))))
	return len(p), nil
}
