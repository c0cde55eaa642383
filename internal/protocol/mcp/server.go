package mcp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// Path is the path of the protocol at the daemon.
const Path = "/mcp"

const (
	// maxBody bounds one message of a client, in bytes.
	maxBody = 16 << 20
	// maxCalls bounds the calls in progress of one session.
	maxCalls = 32
	// maxSnapshots bounds the snapshots of one session.
	maxSnapshots = 8
	// removalTime bounds the removal of one sandbox at the end of a session.
	removalTime = 30 * time.Second

	sessionHeader = "Mcp-Session-Id"
)

// Options are the parameters of a Server. New replaces zero fields with the defaults given here.
type Options struct {
	// Version is the version of this program that clients see. Default "dev".
	Version string
	// MaxSessions bounds the sessions; further ones are Exhausted. Default 256.
	MaxSessions int
	// MaxSandboxes bounds the sandboxes of one session; further ones are Exhausted. Default 8.
	MaxSandboxes int
	// IdleTimeout is the time without a request after which a session over HTTP ends. Default
	// 10 min; negative: never.
	IdleTimeout time.Duration
	// StallTimeout is the time without reading a response after which a client counts as gone.
	// Default 5 min.
	StallTimeout time.Duration
	// Preview gives a port of a sandbox a URL. r is the request that began the session; without
	// HTTP it is nil. Default: the tool expose_port is Unsupported.
	Preview func(r *http.Request, id sandbar.ID, port int, public bool) (url string, err error)
	// Logger receives structured logs. Default: discards.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	setDefault(&o.Version, "dev")
	setDefault(&o.MaxSessions, 256)
	setDefault(&o.MaxSandboxes, 8)
	setDefault(&o.IdleTimeout, 10*time.Minute)
	setDefault(&o.StallTimeout, 5*time.Minute)
	setDefault(&o.Logger, slog.New(slog.DiscardHandler))
	return o
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// instructions are what a client tells its model about the server.
const instructions = `Runs code and shell commands in isolated sandboxes without access to the user's machine. ` +
	`Every tool uses the session's own sandbox unless the argument "sandbox" names another; the first call makes it. ` +
	`Files, and variables of run_code, stay until the session ends. ` +
	`Without another limit a sandbox has no network. Relative paths start at ` + sandbar.DefaultDir + `.`

// Server serves the protocol. Its methods may be called concurrently.
type Server struct {
	engine  *engine.Engine
	options Options
	sdk     *sdk.Server
	http    *sdk.StreamableHTTPHandler

	serving  sync.WaitGroup // HTTP requests
	working  sync.WaitGroup // the HTTP requests that Shutdown lets finish: those with messages
	watching sync.WaitGroup // goroutines of sessions

	mu       sync.Mutex
	closing  bool // also guards Add of the groups
	sessions map[*sdk.ServerSession]*session
}

// New returns a Server of sandboxes of e.
func New(e *engine.Engine, o Options) *Server {
	s := &Server{engine: e, options: o.withDefaults(), sessions: map[*sdk.ServerSession]*session{}}
	s.sdk = sdk.NewServer(&sdk.Implementation{Name: "sandbar", Title: "Sandbar", Version: s.options.Version},
		&sdk.ServerOptions{Instructions: instructions, Capabilities: &sdk.ServerCapabilities{}})
	s.sdk.AddReceivingMiddleware(s.receive)
	s.addTools()
	s.addResources()
	s.http = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.sdk }, &sdk.StreamableHTTPOptions{
		SessionTimeout:             max(s.options.IdleTimeout, 0),
		MaxRequestBodyBytes:        maxBody,
		DisableLocalhostProtection: true, // the listener checks the Host
	})
	return s
}

// receive is the middleware of requests. It begins the session of a connection, and gives errors of
// tools their form.
func (s *Server) receive(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		ss, ok := req.GetSession().(*sdk.ServerSession)
		if !ok {
			return next(ctx, method, req)
		}
		if method == "initialize" {
			if _, err := s.sessionOf(ctx, ss); err != nil {
				return nil, protocolError(err)
			}
		}
		result, err := next(ctx, method, req)
		if r, ok := result.(*sdk.CallToolResult); ok && r != nil && r.GetError() != nil {
			result = toolError(r.GetError())
		}
		return result, err
	}
}

// sessionOf returns the session of a connection, and begins it at the first call. Exhausted: there
// are too many.
func (s *Server) sessionOf(ctx context.Context, ss *sdk.ServerSession) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.sessions[ss]
	switch {
	case x != nil:
		return x, nil
	case s.closing:
		return nil, shuttingDown()
	case len(s.sessions) >= s.options.MaxSessions:
		return nil, &sandbar.Error{Code: sandbar.Exhausted, Message: "all " + count(s.options.MaxSessions, "session") + " are in use", Fix: "end another session, or try again later"}
	}
	x = newSession(s, engine.Client(ctx))
	stop := context.AfterFunc(engine.Validity(ctx), func() {
		x.cancel()
		ss.Close()
	})
	s.sessions[ss] = x
	s.watching.Go(func() {
		ss.Wait()
		stop()
		x.end()
		s.mu.Lock()
		delete(s.sessions, ss)
		s.mu.Unlock()
	})
	return x, nil
}

func shuttingDown() error {
	return &sandbar.Error{Code: sandbar.Unavailable, Message: "the server is shutting down", Fix: "connect again and retry"}
}

// begin counts a call of a session until end is called. The returned context ends with the session.
func (s *Server) begin(ctx context.Context, ss *sdk.ServerSession) (x *session, _ context.Context, end func(), err error) {
	if x, err = s.sessionOf(ctx, ss); err != nil {
		return nil, nil, nil, err
	}
	ctx, end, err = x.enter(ctx)
	return x, ctx, end, err
}

// Serve serves one session over a pair of streams, with a message on each line, until in ends and
// the calls in progress have ended, or until ctx ends. It ends the session, but a read of in may
// still be in progress when it returns.
func (s *Server) Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	ss, err := s.sdk.Connect(context.WithoutCancel(ctx), patientTransport{&sdk.IOTransport{Reader: in, Writer: out, MaxLineLength: maxBody}}, nil)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- ss.Wait() }()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
		s.cancel(ss)
		go ss.Close() // waits for the read
	}
	s.mu.Lock()
	x := s.sessions[ss]
	s.mu.Unlock()
	if x != nil {
		x.end()
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

// cancel cancels the calls of a session.
func (s *Server) cancel(ss *sdk.ServerSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.sessions[ss]; x != nil {
		x.cancel()
	}
}

// originKey is the key of the request that began a session in the contexts of its calls.
type originKey struct{}

// ServeHTTP serves a request to Path. The listener has checked the Host, the Origin and the token.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		refuse(w, http.StatusServiceUnavailable, shuttingDown())
		return
	}
	s.serving.Add(1)
	if r.Method == http.MethodPost {
		s.working.Add(1)
		defer s.working.Done() // after the response: the end of a session would drop it
	}
	s.mu.Unlock()
	defer s.serving.Done()
	if id := r.Header.Get(sessionHeader); id != "" {
		x := s.find(id)
		if x == nil || !sameClient(x.client, engine.Client(r.Context())) {
			refuse(w, http.StatusNotFound, &sandbar.Error{Code: sandbar.NotFound, Message: "this session does not exist or has ended", Fix: "initialize a new session"})
			return
		}
		if r.Method == http.MethodDelete {
			x.cancel() // the SDK waits for the calls in progress
		}
	}
	origin := &http.Request{Host: r.Host, TLS: r.TLS, Header: http.Header{"X-Forwarded-Proto": r.Header.Values("X-Forwarded-Proto")}}
	s.http.ServeHTTP(&response{w, http.NewResponseController(w), s.options.StallTimeout}, r.WithContext(context.WithValue(r.Context(), originKey{}, origin)))
}

// sameClient reports whether two requests have the same token.
func sameClient(a, b sandbar.Client) bool {
	return a.Name == b.Name && a.Tenant == b.Tenant && a.Role == b.Role && a.Sandbox == b.Sandbox
}

// find returns the session with an id over HTTP.
func (s *Server) find(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ss, x := range s.sessions {
		if ss.ID() == id {
			return x
		}
	}
	return nil
}

// response bounds the time of each write to a client.
type response struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
}

// Write implements io.Writer.
func (r *response) Write(p []byte) (int, error) {
	r.control.SetWriteDeadline(time.Now().Add(r.stall))
	defer r.control.SetWriteDeadline(time.Time{})
	return r.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (r *response) Flush() {
	r.control.SetWriteDeadline(time.Now().Add(r.stall))
	defer r.control.SetWriteDeadline(time.Time{})
	r.control.Flush()
}

// Shutdown ends the server gracefully. It refuses new requests over HTTP; those in progress
// continue until they end or ctx ends; then it acts as Close. It returns ctx's error if ctx ended
// first. The engine's sandboxes are shut down after this.
func (s *Server) Shutdown(ctx context.Context) error {
	s.refuse()
	done := make(chan struct{})
	go func() { s.working.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
	s.Close()
	return ctx.Err()
}

// Close ends all sessions at once. When it returns, no request is in progress, and nothing of the
// sessions is left.
func (s *Server) Close() error {
	s.refuse()
	s.mu.Lock()
	var all []*sdk.ServerSession
	for ss, x := range s.sessions {
		x.cancel()
		all = append(all, ss)
	}
	s.mu.Unlock()
	for _, ss := range all {
		ss.Close()
	}
	s.watching.Wait()
	s.serving.Wait()
	return nil
}

func (s *Server) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
}
