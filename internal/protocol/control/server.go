package control

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/protocol/ports"
)

// Executor serves the executor protocol of one sandbox. Paths begin at "/".
type Executor interface {
	http.Handler
	// Bound returns the port to which /r/ leads, if one is bound.
	Bound() (port int, ok bool)
	// Close ends streams and connections, not the sandbox.
	Close()
}

// Options are the parameters of a Server. New replaces zero fields with the defaults given here.
type Options struct {
	// NewExecutor creates the executor of a sandbox on its first use. The Server closes it when the
	// sandbox ends. Default: none; paths of an executor are then Unsupported.
	NewExecutor func(*engine.Sandbox) Executor
	// IdleTimeout is the engine's own: the maximum for clients. Default 10 min; negative: never.
	IdleTimeout time.Duration
	// PreviewDomain is the domain of previews' host names, in lower case. Default "localhost".
	PreviewDomain string
	// MaxConnections is the most commands, tunnels and requests to ports in progress per sandbox;
	// further ones are Exhausted. Default 1024.
	MaxConnections int
	// StallTimeout is the time without reading a command's output after which a client counts as
	// gone. Default 5 min.
	StallTimeout time.Duration
	// MaxEventReaders is the most readers of events at once; further ones are Exhausted. Default 64.
	MaxEventReaders int
	// KeepAlive is the time without an event after which a reader of events gets a comment. Default
	// 15 s.
	KeepAlive time.Duration
	// Others returns the bodies of the answers of other daemons to a list request. Default: there are
	// no other daemons.
	Others func(*http.Request) (headers []http.Header, bodies [][]byte, err error)
	// Daemon describes the daemon, for the paths that are about no sandbox.
	Daemon Daemon
	// Logger receives structured logs. Default: discards.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	setDefault(&o.IdleTimeout, 10*time.Minute)
	setDefault(&o.PreviewDomain, "localhost")
	setDefault(&o.MaxConnections, 1024)
	setDefault(&o.StallTimeout, 5*time.Minute)
	setDefault(&o.MaxEventReaders, 64)
	setDefault(&o.KeepAlive, 15*time.Second)
	setDefault(&o.Logger, slog.New(slog.DiscardHandler))
	return o
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Server serves the API. Its methods may be called concurrently.
type Server struct {
	engine  *engine.Engine
	options Options
	names   ports.Names // of previews

	patient  context.Context // of requests without an end of their own; ends when Shutdown begins
	hurry    context.CancelFunc
	all      context.Context // of all requests; ends when Close is called
	cut      context.CancelFunc
	serving  sync.WaitGroup // requests
	working  sync.WaitGroup // the requests that Shutdown lets finish
	watching sync.WaitGroup // entries

	mu      sync.Mutex
	closing bool // also guards Add of the groups
	entries map[sandbar.ID]*entry
	readers int // of events
	// resuming are the origins of sandboxes whose resumption is in progress: another request can find
	// such a sandbox first.
	resuming map[sandbar.ID]origin
}

// New returns a Server of the sandboxes of e.
func New(e *engine.Engine, o Options) *Server {
	s := &Server{engine: e, options: o.withDefaults(), entries: map[sandbar.ID]*entry{},
		resuming: map[sandbar.ID]origin{}}
	s.names = ports.Names{Domain: s.options.PreviewDomain}
	s.all, s.cut = context.WithCancel(context.Background())
	s.patient, s.hurry = context.WithCancel(s.all)
	return s
}

// ServeHTTP serves one request. The listener has checked Host and Origin, and that the request has
// a valid token or that Admits accepted it; the caller is in its context, see engine.Client.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, ok := route(r)
	if !ok {
		fail(w, pathNotFound(r))
		return
	}
	ctx, end, err := s.begin(r.Context(), t)
	if err != nil {
		fail(w, err)
		return
	}
	defer end()
	r = r.WithContext(ctx)
	switch t.kind {
	case collection:
		s.serveCollection(w, r)
		return
	case document:
		serveDocument(w, r)
		return
	case happenings:
		s.serveEvents(w, r)
		return
	case status, doctorReport, configuration, images, languages, usage:
		s.serveDaemon(w, r, t.kind)
		return
	}
	if t.key == "" {
		fail(w, &sandbar.Error{Code: sandbar.Invalid, Field: routingKey, Message: "the request names no sandbox",
			Fix: "send its id in the header " + routingKey})
		return
	}
	if t.kind == single && r.Method == http.MethodDelete {
		s.remove(w, r, t.key)
		return
	}
	if p, ok := s.paused(r.Context(), t.key); ok && t.kind == single && r.Method == http.MethodGet {
		answer(w, http.StatusOK, s.describePaused(p))
		return
	}
	if t.kind == pause || t.kind == resume || t.kind == fork {
		s.serveState(w, r, t)
		return
	}
	e, err := s.find(r.Context(), t.key)
	if err != nil {
		fail(w, err)
		return
	}
	s.serveEntry(w, r, t, e)
}

func (s *Server) serveEntry(w http.ResponseWriter, r *http.Request, t target, e *entry) {
	if t.kind == previews {
		e.servePreviews(w, r, t.rest)
		return
	}
	allow := http.MethodGet
	switch t.kind {
	case single:
		allow = "DELETE, GET"
	case renew:
		allow = http.MethodPost
	}
	if t.kind != executor && t.kind != web && t.kind != contexts && !strings.Contains(allow, r.Method) {
		notAllowed(w, r, allow)
		return
	}
	switch t.kind { // looking at a sandbox does not count as use
	case single:
		answer(w, http.StatusOK, e.describe())
		return
	case metrics:
		e.serveMetrics(w, r)
		return
	}
	leave, err := e.enter()
	if err != nil {
		fail(w, err)
		return
	}
	defer leave()
	switch t.kind {
	case directory:
		e.serveDir(w, r)
	case watch:
		e.serveWatch(w, r)
	case renew:
		e.serveRenew(w, r)
	case contexts:
		e.serveContexts(w, r, t.rest)
	case command:
		e.serveExec(w, r)
	case port:
		e.serveTunnel(w, r, t.rest)
	case executor:
		e.serveExecutor(w, r, t)
	case web:
		e.serveWeb(w, r, t)
	}
}

// begin counts a request and returns its context, which ends with the request's own and with the
// server.
func (s *Server) begin(parent context.Context, t target) (ctx context.Context, end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, nil, &sandbar.Error{Code: sandbar.Unavailable, Message: "the daemon is shutting down", Fix: "connect again and retry"}
	}
	s.serving.Add(1)
	until := s.all
	if endless(t) {
		until = s.patient
	} else {
		s.working.Add(1)
	}
	ctx, cancel := context.WithCancel(parent)
	stop := context.AfterFunc(until, cancel)
	return ctx, func() {
		stop()
		cancel()
		if !endless(t) {
			s.working.Done()
		}
		s.serving.Done()
	}, nil
}

// endless reports whether a request has no end of its own, so that Shutdown need not wait for it: a
// connection to a port, a watch of files, a reader of events, a preview, and following a process's
// log, which lasts as long as the sandbox.
func endless(t target) bool {
	return t.kind == happenings || t.kind == port || t.kind == watch || t.kind == preview || t.kind == web || t.kind == executor && strings.HasSuffix(t.rest, "_logs_streaming")
}

// Shutdown ends the server gracefully. It refuses new requests; commands and transfers in progress
// continue until they end or ctx ends; then it acts as Close. It returns ctx's error if ctx ended
// first. The engine's sandboxes are shut down after this.
func (s *Server) Shutdown(ctx context.Context) error {
	s.refuse()
	s.hurry()
	done := make(chan struct{})
	go func() { s.working.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
	s.Close()
	return ctx.Err()
}

// Close ends the server at once: it cancels commands and cuts connections. When it returns, no
// request is in progress.
func (s *Server) Close() error {
	s.refuse()
	s.cut()
	s.watching.Wait() // entries have closed their resources
	s.serving.Wait()
	return nil
}

func (s *Server) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
}

// find returns the live sandbox with an id or a name that the caller in ctx sees. It also registers
// one that another protocol has created.
func (s *Server) find(ctx context.Context, key string) (*entry, error) {
	id, err := sandbar.ReadID(key)
	if err != nil {
		if id, err = s.named(ctx, key); err != nil {
			return nil, err
		}
	}
	sandbox, err := s.engine.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.adopt(sandbox, origin{})
}

// named returns the id of the only sandbox with a name, live or paused, of the caller's tenant. The
// operator uses the sandboxes of other tenants by their ids.
func (s *Server) named(ctx context.Context, name string) (sandbar.ID, error) {
	var found []sandbar.ID
	tenant := engine.Client(ctx).Tenant
	for _, i := range s.engine.List(ctx) {
		if i.Spec.Name == name && name != "" && i.Spec.Client.Tenant == tenant {
			found = append(found, i.ID)
		}
	}
	for _, p := range s.engine.Paused(ctx) {
		if p.Spec.Name == name && name != "" && p.Spec.Client.Tenant == tenant {
			found = append(found, p.ID)
		}
	}
	switch len(found) {
	case 0:
		return "", &sandbar.Error{Code: sandbar.NotFound, Field: "id", Message: "there is no sandbox " + sandbar.Quote(name, 40)}
	case 1:
		return found[0], nil
	}
	return "", &sandbar.Error{Code: sandbar.Conflict, Field: "id", Message: "more than one sandbox is called " + sandbar.Quote(name, 40), Fix: "use an id"}
}

// SandboxOf returns the id or name of the sandbox that a request is for, "" for none, and whether
// this daemon has it. The request has not been checked.
func (s *Server) SandboxOf(r *http.Request) (key string, here bool) {
	if id, _, ok := s.names.Parse(ports.NameOf(r.Host)); ok {
		key = string(id)
	} else if t, ok := route(r); ok {
		key = t.key
	}
	if key == "" {
		return "", false
	}
	id, err := sandbar.ReadID(key)
	if err != nil {
		_, err = s.named(context.Background(), key)
		return key, sandbar.CodeOf(err) != sandbar.NotFound
	}
	_, here = s.engine.Owner(id)
	return string(id), here
}

// Guarded reports whether a sandbox was created here with a secret of its own.
func (s *Server) Guarded(id sandbar.ID) bool {
	_, ok := s.secretOf(id)
	return ok
}

// secretOf returns the hash of a sandbox's own secret, and whether it has one.
func (s *Server) secretOf(id sandbar.ID) (hash [sha256.Size]byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[id]; e != nil && e.guarded {
		return e.secret, true
	}
	return hash, false
}

// known returns the entry of a sandbox, or nil.
func (s *Server) known(id sandbar.ID) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries[id]
}

// adopt returns the entry of a sandbox, after creating it if there is none.
func (s *Server) adopt(sandbox *engine.Sandbox, o origin) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[sandbox.ID()]; e != nil && e.sandbox == sandbox {
		return e, nil // else it is that of the sandbox before it was paused
	}
	if s.closing {
		return nil, sandbar.Errorf(sandbar.Unavailable, "the daemon is shutting down")
	}
	if resumed, ok := s.resuming[sandbox.ID()]; ok {
		o = resumed
	}
	if o != (origin{}) {
		sandbox.SetNote(noteOf(o))
	}
	e := newEntry(s, sandbox, o)
	s.entries[sandbox.ID()] = e
	s.watching.Go(e.watch)
	return e, nil
}

func (s *Server) forget(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := e.sandbox.ID(); s.entries[id] == e {
		delete(s.entries, id)
	}
}
