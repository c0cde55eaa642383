package e2b

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/protocol/ports"
)

// mark distinguishes the protocol's sandbox ids and host names from others of the same domain.
const mark = "i"

// Options are the parameters of a Server. New replaces zero fields with the defaults given here.
type Options struct {
	// Domain is the domain of the host names of ports, in lower case. Default "localhost".
	Domain string
	// MaxTimeout bounds the time until a sandbox's end that a client may ask for. Default 24 h;
	// negative: no bound.
	MaxTimeout time.Duration
	// MaxFile bounds the content of one uploaded file, in bytes. Default 16 GiB.
	MaxFile int64
	// Dir is a directory for uploads, which only this server uses; New empties it. Default: none, and
	// templates have no files of their clients.
	Dir string
	// MaxConnections is the most requests into one sandbox in progress; further ones are Exhausted.
	// Default 1024.
	MaxConnections int
	// StallTimeout is the time without reading a response after which a client counts as gone.
	// Default 5 min.
	StallTimeout time.Duration
	// Others returns the answers of other daemons to a list request. Default: there are no other
	// daemons.
	Others func(*http.Request) (headers []http.Header, bodies [][]byte, err error)
	// Logger receives structured logs. Default: discards.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	setDefault(&o.Domain, "localhost")
	setDefault(&o.MaxTimeout, 24*time.Hour)
	setDefault(&o.MaxFile, 16<<30)
	setDefault(&o.MaxConnections, 1024)
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

// Server serves the protocol. Its methods may be called concurrently.
type Server struct {
	engine  *engine.Engine
	options Options
	names   ports.Names

	patient  context.Context // of requests without an end of their own; ends when Shutdown begins
	hurry    context.CancelFunc
	all      context.Context // of all requests; ends when Close is called
	cut      context.CancelFunc
	serving  sync.WaitGroup // requests
	working  sync.WaitGroup // the requests that Shutdown lets finish
	watching sync.WaitGroup // goroutines of sandboxes

	tagging sync.Mutex // one changes the tags of templates at a time

	mu      sync.Mutex
	closing bool // also guards Add of the groups
	entries map[sandbar.ID]*entry
	jobs    []*job // in the order of their requests
}

// New returns a Server of sandboxes of e. It has no sandboxes yet but the paused ones that a Server
// of this package has paused.
func New(e *engine.Engine, o Options) *Server {
	s := &Server{engine: e, options: o.withDefaults(), entries: map[sandbar.ID]*entry{}}
	s.names = ports.Names{Mark: mark, Domain: s.options.Domain}
	if s.options.Dir != "" {
		os.RemoveAll(s.options.Dir) // what is left counts as uploaded
	}
	s.all, s.cut = context.WithCancel(context.Background())
	s.patient, s.hurry = context.WithCancel(s.all)
	for _, p := range e.Paused() {
		if g, ok := grantOfNote(p.Note); ok {
			s.entries[p.ID] = &entry{server: s, id: p.ID, grant: g}
		}
	}
	return s
}

// begin counts a request and returns its context, which ends with the request's own and with the
// server. An endless request has no end of its own, and Shutdown does not wait for it.
func (s *Server) begin(parent context.Context, endless bool) (ctx context.Context, end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, nil, shuttingDown()
	}
	s.serving.Add(1)
	until := s.all
	if endless {
		until = s.patient
	} else {
		s.working.Add(1)
	}
	ctx, cancel := context.WithCancel(parent)
	stop := context.AfterFunc(until, cancel)
	return ctx, func() {
		stop()
		cancel()
		if !endless {
			s.working.Done()
		}
		s.serving.Done()
	}, nil
}

func shuttingDown() error {
	return &sandbar.Error{Code: sandbar.Unavailable, Message: "the daemon is shutting down", Fix: "connect again and retry"}
}

// Shutdown ends the server gracefully. It refuses new requests; programs and transfers whose
// clients wait for them continue until they end or ctx ends; then it acts as Close. It returns
// ctx's error if ctx ended first. The engine's sandboxes are shut down after this.
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

// Close ends the server at once: it cuts streams and connections. When it returns, no request is in
// progress.
func (s *Server) Close() error {
	s.refuse()
	s.cut()
	s.watching.Wait()
	s.serving.Wait()
	return nil
}

func (s *Server) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	for _, e := range s.entries {
		e.keep()
	}
}

// find returns the entry of a sandbox. NotFound: this server has created none with this id, or it
// has ended.
func (s *Server) find(id sandbar.ID) (*entry, error) {
	s.mu.Lock()
	e := s.entries[id]
	s.mu.Unlock()
	if e == nil {
		return nil, noSandbox(s.names.Label(id))
	}
	return e, nil
}

// parse returns the entry of an id of the protocol.
func (s *Server) parse(label string) (*entry, error) {
	id, ok := s.names.ParseLabel(label)
	if !ok {
		return nil, noSandbox(label)
	}
	return s.find(id)
}

func noSandbox(label string) error {
	return &sandbar.Error{Code: sandbar.NotFound, Field: "sandboxID", Message: "sandbox " + sandbar.Quote(label, 40) + " does not exist"}
}

// add registers the entry of a sandbox.
func (s *Server) add(e *entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return shuttingDown()
	}
	s.entries[e.id] = e
	return nil
}

func (s *Server) forget(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[e.id] == e {
		delete(s.entries, e.id)
	}
}

// snapshot returns the entries in no order.
func (s *Server) snapshot() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*entry, 0, len(s.entries))
	for _, e := range s.entries {
		all = append(all, e)
	}
	return all
}

// Serves implements httpd.HostHandler.
func (s *Server) Serves(host string) bool {
	_, _, ok := s.names.Parse(host)
	return ok
}

// ServeHost implements httpd.HostHandler. The daemon's token opens nothing here.
func (s *Server) ServeHost(w http.ResponseWriter, r *http.Request, _ bool) {
	id, port, _ := s.names.Parse(ports.NameOf(r.Host))
	s.serveData(w, r, address{id: id, label: s.names.Label(id), port: port, byHost: true})
}
