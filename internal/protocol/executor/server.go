package executor

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// prefix is the path under which the protocol's cloud serves it, and which a
// client may therefore put before every path.
const prefix = "/koyeb-sandbox"

// Options are what an operator can set. New fills zero fields with the
// defaults given here.
type Options struct {
	// Authorize decides about every request but GET /health: nil lets it pass,
	// an error of the code Unauthenticated is 401, any other 500. Static and
	// Pool make one. Without one nobody passes.
	Authorize func(*http.Request) error
	// MaxJSON is in bytes and bounds what of one request's body is held in
	// memory; more is 413. The content of /write_file is not held. Default 16 MiB.
	MaxJSON int64
	// MaxContent is in bytes and bounds the content of one /write_file, decoded; more is 413.
	// Default 16 GiB.
	MaxContent int64
	// MaxOutput is in bytes and bounds the output, of both streams together, that one answer of
	// /run holds. A program that writes more is ended, and the answer has truncated. Default 64 MiB.
	MaxOutput int64
	// KeepLines and KeepBytes bound what is kept of each of a process's two
	// outputs; the bytes are those of the events the lines are kept as, which
	// are about 130 more than a line has. Defaults: 10000, 8 MiB.
	KeepLines int
	KeepBytes int64
	// KeepTotal, in bytes, is the same over all processes: when so much is kept
	// a process keeps no more than fits into its even share of it, so that never
	// more than twice as much is kept. Default 256 MiB.
	KeepTotal int64
	// KeepFinished is how many finished processes are remembered, with their
	// lines. Default 64; negative: none.
	KeepFinished int
	// Heartbeat is the time after which a stream without events sends a
	// comment. Default 10 s.
	Heartbeat time.Duration
	// Stall is how long a client may take no bytes of an answer before it is
	// cut off, and with it a program whose output it was reading. Default 5 min.
	Stall time.Duration
	// BodyTimeout is how long a client may send no bytes of a body that it has
	// begun. Default 60 s.
	BodyTimeout time.Duration
	// MaxProxied is how many connections of the port proxy may be open at once;
	// more are closed at once. Default 1024.
	MaxProxied int
	// Logger takes structured logs, never of commands, environment, output,
	// bodies or secrets. Default: discards.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.MaxJSON = cmp.Or(o.MaxJSON, 16<<20)
	o.MaxContent = cmp.Or(o.MaxContent, 16<<30)
	o.MaxOutput = cmp.Or(o.MaxOutput, 64<<20)
	o.KeepLines = cmp.Or(o.KeepLines, 10_000)
	o.KeepBytes = cmp.Or(o.KeepBytes, 8<<20)
	o.KeepTotal = cmp.Or(o.KeepTotal, 256<<20)
	o.KeepFinished = cmp.Or(o.KeepFinished, 64)
	o.Heartbeat = cmp.Or(o.Heartbeat, 10*time.Second)
	o.Stall = cmp.Or(o.Stall, 5*time.Minute)
	o.BodyTimeout = cmp.Or(o.BodyTimeout, time.Minute)
	o.MaxProxied = cmp.Or(o.MaxProxied, 1024)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Authorize == nil {
		o.Authorize = func(*http.Request) error { return errUnauthorized }
	}
	return o
}

// Server serves the protocol for one sandbox. Its methods may be called
// concurrently.
type Server struct {
	sandbox *engine.Sandbox
	options Options
	routes  map[string]route
	buffers sync.Pool // of *[bufferSize]byte
	kept    *budget

	// ctx ends with Close.
	ctx    context.Context
	cancel context.CancelFunc

	processes table

	mu        sync.Mutex
	closed    bool // guards Add of busy, too
	busy      sync.WaitGroup
	listeners map[net.Listener]struct{}
	proxied   int
	port      int // that connections are passed on to; 0 is none
}

// route is one endpoint.
type route struct {
	method string // the one allowed
	more   string // others allowed, with commas
	open   bool   // needs no authorization
	serve  func(*Server, http.ResponseWriter, *http.Request)
}

// New makes a Server for a sandbox. The sandbox is the caller's: nothing here
// stops it.
func New(s *engine.Sandbox, o Options) *Server {
	x := &Server{sandbox: s, options: o.withDefaults(), listeners: map[net.Listener]struct{}{}}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	x.buffers.New = func() any { return new([bufferSize]byte) }
	x.processes.keep = x.options.KeepFinished
	x.kept = newBudget(x.options)
	x.routes = newRoutes()
	return x
}

// newRoutes is every endpoint (docs/protocols.md, Executor: "API
// Endpoints"), and /files, which is ours.
func newRoutes() map[string]route {
	return map[string]route{
		"/health":                 {method: http.MethodGet, more: http.MethodHead, open: true, serve: (*Server).health},
		"/run":                    {method: http.MethodPost, serve: (*Server).run},
		"/run_streaming":          {method: http.MethodPost, serve: (*Server).runStreaming},
		"/write_file":             {method: http.MethodPost, serve: (*Server).writeFile},
		"/read_file":              {method: http.MethodPost, serve: (*Server).readFile},
		"/delete_file":            {method: http.MethodPost, serve: (*Server).deleteFile},
		"/make_dir":               {method: http.MethodPost, serve: (*Server).makeDir},
		"/delete_dir":             {method: http.MethodPost, serve: (*Server).deleteDir},
		"/list_dir":               {method: http.MethodPost, serve: (*Server).listDir},
		"/bind_port":              {method: http.MethodPost, serve: (*Server).bindPort},
		"/unbind_port":            {method: http.MethodPost, serve: (*Server).unbindPort},
		"/start_process":          {method: http.MethodPost, serve: (*Server).startProcess},
		"/list_processes":         {method: http.MethodGet, serve: (*Server).listProcesses},
		"/kill_process":           {method: http.MethodPost, serve: (*Server).killProcess},
		"/process_logs_streaming": {method: http.MethodGet, serve: (*Server).processLogs},
		"/files":                  {method: http.MethodGet, more: "HEAD, PUT", serve: (*Server).files},
	}
}

// ServeHTTP serves one request. Paths are those of the text, below "/" or
// below "/koyeb-sandbox/".
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if rest, ok := strings.CutPrefix(path, prefix); ok && strings.HasPrefix(rest, "/") {
		path = rest
	}
	route, ok := s.routes[path]
	if !ok {
		// Before authorization, so that a request for nothing claims nothing.
		answerText(w, http.StatusNotFound, "Not found")
		return
	}
	if !route.open && !s.authorized(w, r) {
		return
	}
	if !route.allows(r.Method) {
		w.Header().Set("Allow", route.allowed())
		answerText(w, http.StatusMethodNotAllowed, "Method not allowed")
		return
	}
	if !s.begin() {
		answerText(w, http.StatusServiceUnavailable, "the server is shutting down")
		return
	}
	defer s.busy.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ctx, func() {
		cancel()
		newLink(w, s.ctx).cut()
	})()
	route.serve(s, w, r.WithContext(ctx))
}

func (r route) allows(method string) bool {
	for m := range strings.SplitSeq(r.allowed(), ", ") {
		if m == method {
			return true
		}
	}
	return false
}

func (r route) allowed() string {
	if r.more == "" {
		return r.method
	}
	return r.method + ", " + r.more
}

// authorized answers a request that may not pass.
func (s *Server) authorized(w http.ResponseWriter, r *http.Request) bool {
	err := s.options.Authorize(r)
	switch {
	case err == nil:
		return true
	case sandbar.CodeOf(err) == sandbar.Unauthenticated:
		w.Header().Set("WWW-Authenticate", `Bearer realm="sandbox"`)
		answerText(w, http.StatusUnauthorized, "Unauthorized")
	default:
		s.options.Logger.Error("authorization failed", "error", err)
		answerText(w, http.StatusInternalServerError, sandbar.AsError(err).Error())
	}
	return false
}

// begin counts something that Close waits for; false after Close.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.busy.Add(1)
	return true
}

// Close ends the server: requests under way are cancelled, with the programs of
// /run and /run_streaming, streams and proxied connections are cut, and the
// listeners of ServeProxy closed. It waits until all of that is over. The
// sandbox and its background processes are left alone.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.cancel()
	for l := range s.listeners {
		l.Close()
	}
	s.mu.Unlock()
	s.busy.Wait()
}

// health answers GET /health: "ok" as long as the sandbox can run something.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	select {
	case <-s.sandbox.Done():
		answerJSON(w, http.StatusServiceUnavailable, []byte(`{"status":"unavailable"}`))
	default:
		answerJSON(w, http.StatusOK, []byte(`{"status":"ok"}`))
	}
}
