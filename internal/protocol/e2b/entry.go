package e2b

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/protocol/ports"
)

// dialTimeout bounds the connect to a port inside.
const dialTimeout = 30 * time.Second

// grant has the creation parameters of a sandbox that the engine does not keep. It is constant, and
// kept with a paused sandbox.
type grant struct {
	Template string `json:"template"`
	// Token is the access token of envd. Traffic is the token that requests to ports must have; "":
	// ports are open.
	Token   string `json:"token"`
	Traffic string `json:"traffic,omitempty"`
	// AutoPause: the sandbox is paused at its timeout, and not removed. AutoResume: a request to it
	// resumes it then. Timeout is that of its creation, in seconds.
	AutoPause  bool  `json:"auto_pause,omitempty"`
	AutoResume bool  `json:"auto_resume,omitempty"`
	Timeout    int64 `json:"timeout,omitempty"`
	// Build is that of its template, nil for an image.
	Build *build `json:"build,omitempty"`
}

// note is what Pause keeps: with a paused sandbox its grant, with a saved state its description.
type note struct {
	E2B   *grant `json:"e2b,omitempty"`
	Saved *saved `json:"e2b_saved,omitempty"`
}

func grantOfNote(b []byte) (grant, bool) {
	var n note
	if err := json.Unmarshal(b, &n); err != nil || n.E2B == nil || n.E2B.Token == "" {
		return grant{}, false
	}
	return *n.E2B, true
}

// newToken returns a token of 160 random bits.
func newToken(prefix string) string {
	var b [20]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return prefix + hex.EncodeToString(b[:])
}

// same compares tokens in constant time. No token is never right.
func same(got, want string) bool {
	return want != "" && subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

// entry is a sandbox of the server, running or paused.
type entry struct {
	server *Server
	id     sandbar.ID
	grant

	waking sync.Mutex // one pauses or resumes it at a time
	log    logbook

	mu    sync.Mutex
	kept  bool      // the server is closing; the timer is not started any more
	end   time.Time // when the sandbox is removed
	timer *time.Timer
	life  *life // while it runs
}

// current returns the running sandbox; find has checked the caller. NotFound: it has ended.
// Conflict: it is paused.
func (e *entry) current() (*life, error) {
	sandbox, err := e.server.engine.Get(context.Background(), e.id)
	if err != nil {
		if sandbar.CodeOf(err) == sandbar.NotFound {
			e.server.forget(e)
			return nil, noSandbox(e.label())
		}
		return nil, err
	}
	return e.adopt(sandbox)
}

// adopt returns the life of a running sandbox.
func (e *entry) adopt(sandbox *engine.Sandbox) (*life, error) {
	s := e.server
	s.mu.Lock()
	defer s.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.life != nil && e.life.sandbox == sandbox {
		return e.life, nil
	}
	if s.closing {
		return nil, shuttingDown()
	}
	l := &life{entry: e, sandbox: sandbox, watchers: map[string]*watcher{}, defaults: map[string]*engine.Context{}}
	l.transport = ports.NewTransport(l.dial)
	e.life = l
	sandbox.SetNote(e.note())
	s.watching.Go(l.watch)
	return l, nil
}

func (e *entry) label() string { return e.server.names.Label(e.id) }

// endAt sets the time at which the sandbox is removed. With longer it only lengthens the time left.
func (e *entry) endAt(end time.Time, longer bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if longer && e.timer != nil && end.Before(e.end) {
		return
	}
	e.end = end
	if e.timer != nil {
		e.timer.Stop()
	}
	if e.kept {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(time.Until(end), func() {
		e.mu.Lock()
		current := e.timer == t
		e.mu.Unlock()
		if current {
			e.expire()
		}
	})
	e.timer = t
}

// keep stops the timer: the sandbox is paused, or the server is closing.
func (e *entry) keep() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
}

// ends returns the time of the sandbox's end.
func (e *entry) ends() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.end
}

// life is a running sandbox with the resources that the server has for it.
type life struct {
	*entry
	sandbox   *engine.Sandbox
	transport *http.Transport // to the ports inside

	starting sync.Mutex // of the default contexts
	sampling sync.Mutex // orders measurements

	mu       sync.Mutex
	closed   bool
	taken    int        // as counted by Options.MaxConnections
	procs    []*process // in the order of their start
	unknown  int        // processes without an id of their own
	watchers map[string]*watcher
	defaults map[string]*engine.Context // by language
	owner    *uint32                    // of the home directory
	samples  []sample                   // in the order of their time
}

// watch waits for the end of the sandbox or the server, and then closes the resources.
func (l *life) watch() {
	ctx, cancel := context.WithCancel(l.server.all)
	l.server.watching.Go(func() { l.sample(ctx) })
	defer cancel()
	select {
	case <-l.sandbox.Done():
	case <-l.server.all.Done():
	}
	l.close()
	if _, err := l.server.engine.Get(context.Background(), l.id); sandbar.CodeOf(err) == sandbar.NotFound {
		l.keep()
		l.server.forget(l.entry)
	}
}

func (l *life) close() {
	l.mu.Lock()
	l.closed = true
	watchers := l.watchers
	l.watchers = nil
	l.mu.Unlock()
	for _, w := range watchers {
		w.close()
	}
	l.transport.CloseIdleConnections()
}

// enter counts a request into the sandbox until leave is called.
func (l *life) enter() (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.taken >= l.server.options.MaxConnections {
		return nil, &sandbar.Error{Code: sandbar.Exhausted, Message: "the sandbox has too many requests in progress", Fix: "end others first"}
	}
	l.taken++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.taken--
	}, nil
}

// dial connects to a port inside.
func (l *life) dial(ctx context.Context, port int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return l.sandbox.DialPort(ctx, port)
}

// note returns what Pause keeps.
func (e *entry) note() []byte {
	b, err := json.Marshal(note{E2B: &e.grant})
	if err != nil {
		panic(err) // strings can be encoded
	}
	return b
}
