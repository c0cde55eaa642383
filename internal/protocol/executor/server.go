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

// prefix is the path prefix of the protocol's cloud service, which clients may put before every
// path.
const prefix = "/koyeb-sandbox"

// Options are the operator's settings. New replaces zero fields with the defaults given here.
type Options struct {
	// Authorize decides on every request except GET /health: nil allows it, an error of code
	// Unauthenticated is 401, any other 500. Static and Pool return such functions. Without one,
	// every request is refused.
	Authorize func(*http.Request) error
	// MaxJSON bounds the part of a request's body that is held in memory, in bytes; more is 413.
	// The content of /write_file does not count. Default 16 MiB.
	MaxJSON int64
	// MaxContent bounds the decoded content of one /write_file, in bytes; more is 413. Default 16
	// GiB.
	MaxContent int64
	// MaxOutput bounds the output of both streams in one response of /run, in bytes. A program that
	// writes more is killed, and the response has truncated. Default 64 MiB.
	MaxOutput int64
	// KeepLines and KeepBytes bound the stored lines of each of a process's two outputs; the bytes
	// are those of the encoded events, about 130 more per line. Defaults: 10000, 8 MiB.
	KeepLines int
	KeepBytes int64
	// KeepTotal bounds the stored lines of all processes, in bytes. Beyond it each process is
	// limited to its even share, so that at most twice as much is stored. Default 256 MiB.
	KeepTotal int64
	// KeepFinished is the number of finished processes that are remembered with their lines.
	// Default 64; negative: none.
	KeepFinished int
	// Heartbeat is the time after which a stream without events sends a comment. Default 10 s.
	Heartbeat time.Duration
	// Stall is the time without reading a response after which a client is cut off, together with a
	// program whose output it reads. Default 5 min.
	Stall time.Duration
	// BodyTimeout is the time without sending after which a started body is refused. Default 60 s.
	BodyTimeout time.Duration
	// MaxProxied is the most open connections of the port proxy; further ones are closed at once.
	// Default 1024.
	MaxProxied int
	// Logger receives structured logs, never commands, environment, output, bodies or secrets.
	// Default: discards.
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

// Server serves the protocol for one sandbox. Its methods may be called concurrently.
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
	closed    bool // also guards Add of busy
	busy      sync.WaitGroup
	listeners map[net.Listener]struct{}
	proxied   int
	port      int // the target of forwarded connections; 0 is none
}

// route is an endpoint.
type route struct {
	method string // the main method
	more   string // other allowed methods, with commas
	open   bool   // needs no authorization
	serve  func(*Server, http.ResponseWriter, *http.Request)
}

// New returns a Server for a sandbox. The caller keeps the sandbox; the Server does not stop it.
func New(s *engine.Sandbox, o Options) *Server {
	x := &Server{sandbox: s, options: o.withDefaults(), listeners: map[net.Listener]struct{}{}}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	x.buffers.New = func() any { return new([bufferSize]byte) }
	x.processes.keep = x.options.KeepFinished
	x.kept = newBudget(x.options)
	x.routes = newRoutes()
	return x
}

// newRoutes returns all endpoints (docs/protocols.md, Executor: "API Endpoints"), and the extension
// /files.
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

// lastAnswer bounds the sending of an answer after Close.
const lastAnswer = 10 * time.Second

// ServeHTTP serves one request. Paths are those of the protocol, below "/" or below
// "/koyeb-sandbox/".
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if rest, ok := strings.CutPrefix(path, prefix); ok && strings.HasPrefix(rest, "/") {
		path = rest
	}
	route, ok := s.routes[path]
	if !ok {
		// Before authorization, so that a request for an unknown path cannot claim the sandbox.
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
	l, cut := newLink(w, s.ctx), make(chan struct{})
	stop := context.AfterFunc(s.ctx, func() {
		defer close(cut)
		cancel()
		l.cut()
	})
	x := &response{ResponseWriter: w}
	route.serve(s, x, r.WithContext(ctx))
	if !stop() {
		<-cut
		if !x.streams { // it is whole, and says why the request ended
			_ = l.control.SetWriteDeadline(time.Now().Add(lastAnswer))
		}
	}
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

// authorized responds to a request that is not authorized.
func (s *Server) authorized(w http.ResponseWriter, r *http.Request) bool {
	err := s.options.Authorize(r)
	switch {
	case err == nil:
		return true
	case sandbar.CodeOf(err) == sandbar.Unauthenticated:
		w.Header().Set("WWW-Authenticate", `Bearer realm="sandbox"`)
		answerText(w, http.StatusUnauthorized, "Unauthorized")
	default:
		s.options.Logger.ErrorContext(r.Context(), "authorization failed", "sandbox", s.sandbox.ID(), "error", err)
		answerText(w, http.StatusInternalServerError, sandbar.AsError(err).Error())
	}
	return false
}

// begin counts an activity for which Close waits. It returns false after Close.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.busy.Add(1)
	return true
}

// Close ends the server: it cancels requests in progress with the programs of /run and
// /run_streaming, cuts streams and forwarded connections, closes the listeners of ServeProxy, and
// waits for all of them. It leaves the sandbox and its background processes running.
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

// health responds to GET /health: "ok" as long as the sandbox can run programs.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	select {
	case <-s.sandbox.Done():
		answerJSON(w, http.StatusServiceUnavailable, []byte(`{"status":"unavailable"}`))
	default:
		answerJSON(w, http.StatusOK, []byte(`{"status":"ok"}`))
	}
}
