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
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// Bounds of one request before its handler sets its own.
const (
	headerTimeout = 10 * time.Second // to send the header
	bodyTimeout   = 30 * time.Second // to send a body that no handler reads
	answerTimeout = 30 * time.Second // to receive a response of this package
	idleTimeout   = 2 * time.Minute  // between two requests of a connection
	maxHeader     = 32 << 10         // bytes
)

// Options are the parameters of a Server.
type Options struct {
	// Listen is "HOST:PORT" or "unix:/path".
	Listen string
	// Token is the token that requests must have. It must not be empty.
	Token string
	// TokenChosen says that the operator chose the token. Otherwise the server listens on loopback
	// and UNIX sockets only.
	TokenChosen bool
	// Clients are further valid tokens, by client name. Handlers get the name, and the connection,
	// from engine.Client.
	Clients map[string]string
	// Tokens finds the tokens of tenants. Default: there are none.
	Tokens Tokens
	// Sessions finds the tokens of browsers that have logged in. Default: there are no sessions.
	Sessions Sessions
	// MaxConnections is the most open connections; further ones get 503. Default: no bound.
	MaxConnections int
	// Certificate and Key are PEM files; both empty for plain HTTP.
	Certificate, Key string
	// AllowedHosts and AllowedOrigins are accepted in addition to the server's own.
	AllowedHosts, AllowedOrigins []string
	// MetricsOpen lets GET /metrics answer without the token, on loopback.
	MetricsOpen bool
	// Version is part of the response to GET /health.
	Version string
	// Load is part of the response to GET /health with the token.
	Load func() engine.Stats
	// Metrics are the response to GET /metrics. Default: no such path.
	Metrics *Metrics
	// Routes are handlers by http.ServeMux pattern. Requests reach them only after all checks, and
	// have no deadlines but those of the handler. A handler that is an Admitter can accept other
	// tokens.
	Routes map[string]http.Handler
	// Hosts handle the requests to host names of their own; the first that serves a name handles it.
	// Default: there are none.
	Hosts []HostHandler
	// Overlay handles the requests that it recognizes, instead of Routes. Default: there is none.
	Overlay Overlay
	// Peers returns the handler of a request for what another daemon has; nil: this daemon serves the
	// request. It is called before all checks. Default: there are no other daemons.
	Peers func(*http.Request) http.Handler
	// Logger takes structured logs. Default: discards.
	Logger *slog.Logger
}

// Tokens finds the tokens of tenants. Its methods may be called concurrently.
type Tokens interface {
	// Find returns the bearer of a token and a context that ends when the token becomes invalid.
	// Requests of the bearer are cancelled then. An error says why no token, or not this one, is
	// accepted.
	Find(token string) (c sandbar.Client, valid context.Context, ok bool, err error)
}

// Sessions finds the tokens of browsers that have logged in. Its methods may be called
// concurrently.
type Sessions interface {
	// Open returns the token of a request's session and the session's end.
	Open(*http.Request) (token string, end time.Time, ok bool)
}

// HostHandler handles all requests to some host names. The server checks nothing for them, sets no
// header, and calls no route.
type HostHandler interface {
	// Serves reports whether a host is one of the handler's. host is in lower case, without port.
	Serves(host string) bool
	// ServeHost serves a request to such a host. Its caller, see engine.Client, has RoleNone unless
	// the request has a valid token.
	ServeHost(w http.ResponseWriter, r *http.Request)
}

// Overlay is a protocol that shares paths with Options.Routes and recognizes its requests by their
// headers.
type Overlay interface {
	// ServeHTTP serves a request that Claims has accepted. Host and Origin have been checked, and the
	// key if there is one.
	http.Handler
	// Claims reports whether a request is one of the protocol. If it is keyed, key must be a valid
	// token; otherwise the caller has RoleNone, and ServeHTTP checks the request's credentials
	// itself. Claims must neither answer nor read the body.
	Claims(r *http.Request) (key string, keyed, claimed bool)
	// Refuse answers a request that failed a check, in the form of the protocol.
	Refuse(w http.ResponseWriter, status int, err *sandbar.Error)
}

// Admitter is an optional interface of a handler in Options.Routes, which knows tokens besides the
// daemon's, each valid for a part of its paths.
type Admitter interface {
	http.Handler
	// Admits reports whether a request without a valid token has another one that is valid for
	// exactly this request, and the caller that it proves. Host and Origin have been checked. The
	// client is not authenticated yet, so Admits must compare in constant time, must take the same
	// time in all cases, and must neither answer nor read the body.
	Admits(r *http.Request) (sandbar.Client, bool)
}

// Reader is an optional interface of a handler in Options.Routes and of Options.Overlay. Callers
// with sandbar.RoleReadOnly reach a handler only with GET and HEAD, and without a protocol upgrade,
// or if its Reads says that the request changes nothing. So what a handler adds is refused to them.
type Reader interface {
	// Reads reports whether a request reads only. It must neither answer nor read the body.
	Reads(r *http.Request) bool
}

// Server is a listener with its routes.
type Server struct {
	options   Options
	guard     atomic.Pointer[guard] // replaced by Replace
	mux       *http.ServeMux
	admitters map[string]Admitter // by pattern
	readers   map[string]any      // the handlers of Options.Routes by pattern, for mayReach
	listener  net.Listener
	http      *http.Server
}

// Listen creates a Server and binds its address; connections wait until Serve. Invalid: an option
// is wrong. Denied: the address is reachable from other machines and the operator chose no token.
// Unavailable: the address cannot be bound.
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
	s := &Server{options: o, listener: ln, mux: http.NewServeMux(), admitters: map[string]Admitter{}, readers: map[string]any{}}
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

// wrap adds the connection bound and TLS to the listener.
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

// newHTTP returns an http.Server with the bounds of every listener.
func newHTTP(h http.Handler, logger *slog.Logger) *http.Server {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          log.New(logWriter{logger}, "", 0),
		// HTTP/2 has no advantage for WebSockets, and is a large parser before the token check.
		Protocols: new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	var connections atomic.Uint64
	server.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, flowKey{}, strconv.FormatUint(connections.Add(1), 10))
	}
	return server
}

// flowKey is the context key of the connection's number.
type flowKey struct{}

// mayListen refuses an address that other machines can reach with a token that nobody chose, and
// warns if a token is sent unencrypted.
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
		o.Logger.Warn("listening beyond loopback without TLS: the token and all programs are sent unencrypted", "next", "set tls.cert and tls.key, or put a TLS proxy in front")
	}
	return nil
}

// Replace prepares new values of Token, TokenChosen, Clients, AllowedHosts, AllowedOrigins and
// MetricsOpen. apply activates them for all later requests; requests and connections in progress
// continue. It ignores the other fields of o. Errors are those of Listen; the old values then stay
// active.
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

// Identify returns the bearer of a token. Unauthenticated: nobody has it. Unavailable: the tokens
// of tenants cannot be read.
func (s *Server) Identify(token string) (sandbar.Client, error) {
	who, err := s.guard.Load().identify(token)
	return who.client, err
}

// URL returns the server's URL, such as "http://127.0.0.1:8080" or "unix:/run/sandbar.sock", with
// the actual port.
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

// StopAccepting closes the listener. Open connections continue.
func (s *Server) StopAccepting() error {
	err := s.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Shutdown stops accepting, waits for running requests until ctx ends, and then cuts them off.
// Hijacked connections (WebSockets) are left to their routes.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(err, s.http.Close())
	}
	return nil
}

// routes fills the mux. ServeMux panics at conflicting patterns, which are a programming error.
func (s *Server) routes() {
	s.mux.HandleFunc("GET /health", s.health)
	if s.options.Metrics != nil {
		s.mux.Handle("GET /metrics", s.ownMetrics(s.options.Metrics.handler()))
	}
	for pattern, h := range s.options.Routes {
		s.mux.Handle(pattern, withoutDeadlines(h))
		s.readers[pattern] = h
		if a, ok := h.(Admitter); ok {
			s.admitters[pattern] = a
		}
	}
}

// ownMetrics refuses the daemon's metrics, which are those of all tenants, to tokens of tenants
// other than the default one. Without a token the guard has decided.
func (s *Server) ownMetrics(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := engine.Client(r.Context()); c.Tenant != "" && s.guard.Load().needsToken(r) {
			s.refuse(w, r, &refusal{status: http.StatusForbidden, reason: reasonRole, err: &sandbar.Error{Code: sandbar.Denied,
				Message: "the daemon's metrics are those of all tenants", Fix: "use a token of the default tenant; GET /v1/sandboxes/{id}/metrics has those of a sandbox"}})
			return
		}
		h.ServeHTTP(w, r)
	})
}

// admits asks the route of a request, if it is an Admitter.
func (s *Server) admits(r *http.Request) (sandbar.Client, bool) {
	_, pattern := s.mux.Handler(r)
	a, ok := s.admitters[pattern]
	if !ok {
		return nobody.client, false
	}
	return a.Admits(r)
}

// mayReach returns nil unless the role of a caller keeps a request from its handler.
func mayReach(c sandbar.Client, r *http.Request, h any) *refusal {
	switch {
	case c.Writes(), c.Role == sandbar.RoleNone: // of these the handler sees the identity
		return nil
	case c.Role == sandbar.RoleReadOnly:
		reads := (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Upgrade") == ""
		if x, ok := h.(Reader); ok {
			reads = x.Reads(r)
		}
		if reads {
			return nil
		}
	}
	return &refusal{status: http.StatusForbidden, reason: reasonRole, err: &sandbar.Error{Code: sandbar.Denied,
		Message: "the token " + sandbar.Quote(c.Name, 80) + " may list and read only", Fix: "use a token with the role user or admin"}}
}

// withoutDeadlines removes this package's body and response deadlines for a route.
func withoutDeadlines(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		control.SetReadDeadline(time.Time{})
		control.SetWriteDeadline(time.Time{})
		h.ServeHTTP(w, r)
	})
}

// serveHTTP handles every request.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.recoverPanic(w, r)
	control := http.NewResponseController(w)
	control.SetWriteDeadline(time.Now().Add(answerTimeout))
	if r.ContentLength != 0 {
		control.SetReadDeadline(time.Now().Add(bodyTimeout))
	}
	if s.servePeers(w, r) || s.serveHost(w, r) {
		return
	}
	setSecurityHeaders(w.Header())
	if s.serveOverlay(w, r) {
		return
	}
	who, refusal := s.guard.Load().check(r, s.admits)
	if refusal != nil {
		s.refuse(w, r, refusal)
		return
	}
	r, done := who.withRequest(w, r)
	defer done()
	handler, pattern := s.mux.Handler(r)
	if pattern == "" {
		s.refuse(w, r, noRoute(handler, r))
		return
	}
	if refusal := mayReach(who.client, r, s.readers[pattern]); refusal != nil {
		s.refuse(w, r, refusal)
		return
	}
	// not the handler itself: the mux also sets the path values
	s.mux.ServeHTTP(w, r)
}

// revokedWrite bounds a write in progress of a request whose token was revoked.
const revokedWrite = time.Second

// ErrRevoked is the cause of a request's context that has ended because its token was revoked or
// has expired, or because the browser's session has ended.
var ErrRevoked = &sandbar.Error{Code: sandbar.Unauthenticated, Message: "the token was revoked or has expired", Fix: "use another token"}

// withRequest adds the caller to a request's context, which ends with the caller's credentials,
// until done is called.
func (who identity) withRequest(w http.ResponseWriter, r *http.Request) (_ *http.Request, done func()) {
	c := who.client
	c.Flow, _ = r.Context().Value(flowKey{}).(string)
	c.Address = r.RemoteAddr
	ctx := engine.WithClient(r.Context(), c)
	if who.valid == nil && who.until.IsZero() {
		return r.WithContext(ctx), func() {}
	}
	ends := context.Background()
	if who.valid != nil {
		ends = who.valid
		ctx = engine.WithValidity(ctx, ends)
	}
	release := func() {}
	if !who.until.IsZero() { // what the session began goes on after it
		ends, release = context.WithDeadline(ends, who.until)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(ends, func() {
		cancel(ErrRevoked)
		if r.Header.Get("Upgrade") == "" { // otherwise the handler ends the connection
			control := http.NewResponseController(w)
			control.SetReadDeadline(time.Now())
			control.SetWriteDeadline(time.Now().Add(revokedWrite))
		}
	})
	return r.WithContext(ctx), func() {
		stop()
		release()
		cancel(nil)
	}
}

// servePeers serves a request for what another daemon has, and reports whether it is one.
func (s *Server) servePeers(w http.ResponseWriter, r *http.Request) bool {
	if s.options.Peers == nil {
		return false
	}
	h := s.options.Peers(r)
	if h == nil {
		return false
	}
	withoutDeadlines(h).ServeHTTP(w, r)
	return true
}

// serveHost serves a request to a host of Options.Hosts, and reports whether it is one.
func (s *Server) serveHost(w http.ResponseWriter, r *http.Request) bool {
	host, ok := hostName(r.Host)
	if !ok {
		return false
	}
	i := slices.IndexFunc(s.options.Hosts, func(h HostHandler) bool { return h.Serves(host) })
	if i < 0 {
		return false
	}
	who, err := s.guard.Load().bearer(r)
	if err != nil {
		who = nobody
	}
	r, done := who.withRequest(w, r)
	defer done()
	withoutDeadlines(http.HandlerFunc(s.options.Hosts[i].ServeHost)).ServeHTTP(w, r)
	return true
}

// serveOverlay serves a request of Options.Overlay, and reports whether it is one.
func (s *Server) serveOverlay(w http.ResponseWriter, r *http.Request) bool {
	o := s.options.Overlay
	if o == nil {
		return false
	}
	key, keyed, claimed := o.Claims(r)
	if !claimed {
		return false
	}
	g := s.guard.Load()
	who, err := g.identify(key)
	why := g.checkPlace(r)
	switch {
	case why != nil:
	case !keyed:
		who = nobody
	case sandbar.CodeOf(err) == sandbar.Unavailable:
		why = refuseToken(err)
	case err != nil:
		why = refuseToken(&sandbar.Error{Code: sandbar.Unauthenticated, Message: "the API key is missing or wrong", Fix: "send the daemon's token"})
	default:
		why = mayReach(who.client, r, o)
	}
	if why != nil {
		s.count(r, why)
		w.Header().Set("Connection", "close") // the rest of this connection is not read
		o.Refuse(w, why.status, why.err)
		return true
	}
	r, done := who.withRequest(w, r)
	defer done()
	withoutDeadlines(o).ServeHTTP(w, r)
	return true
}

// recoverPanic answers for a handler that panicked, if no response has begun.
func (s *Server) recoverPanic(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	s.options.Logger.Error("a request handler panicked", "path", clip(r.URL.Path), "panic", clip(fmt.Sprint(v)), "stack", string(debug.Stack()))
	WriteError(w, http.StatusInternalServerError, &sandbar.Error{Code: sandbar.Internal, Message: "the request failed because of a fault in Sandbar",
		Fix: "the daemon's log has more; try again, and report it"})
}

// setSecurityHeaders sets headers that keep browsers from interpreting a response.
func setSecurityHeaders(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
}

// clip shortens client-chosen text for logs; the log's handler escapes it.
func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

// logWriter forwards messages of net/http, such as failed handshakes.
type logWriter struct{ logger *slog.Logger }

// Write logs one line.
func (w logWriter) Write(p []byte) (int, error) {
	w.logger.Debug("http", "message", clip(strings.TrimSpace(string(p))))
	return len(p), nil
}
