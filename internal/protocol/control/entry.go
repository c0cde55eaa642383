package control

import (
	"crypto/sha256"
	"io"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/protocol/ports"
)

// origin has the parameters of a sandbox that the engine does not keep.
type origin struct {
	secret  [sha256.Size]byte // a hash
	guarded bool              // the sandbox has a secret
	idle    time.Duration     // 0: the engine's own; negative: never
}

// describe returns a sandbox's description for clients.
func (o origin) describe(i engine.Info, operatorsIdle time.Duration) wire.Sandbox {
	idle := operatorsIdle
	if o.idle != 0 {
		idle = o.idle
	}
	labels := i.Spec.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	expires := i.Expires
	if !expires.IsZero() {
		expires = expires.UTC()
	}
	return wire.Sandbox{ID: i.ID, Expires: expires, UUID: i.ID.UUID(), Name: i.Spec.Name, Tenant: i.Spec.Client.Tenant, Client: i.Spec.Client.Name, Image: i.Spec.Image, Driver: i.Spec.Driver, Created: i.Created.UTC(), LastUsed: i.LastUsed.UTC(), IdleTimeout: wire.Seconds(idle),
		Running: i.Running, Labels: labels, Limits: wire.LimitsOf(i.Spec.Limits), Enforced: i.Enforced, State: wire.StateRunning}
}

// entry is a sandbox known to the server, with the resources that the server has for it.
type entry struct {
	origin    // only idle changes; it is guarded by mu
	server    *Server
	sandbox   *engine.Sandbox
	transport *http.Transport // to the ports inside
	renewed   chan struct{}   // receives after a change of idle

	mu       sync.Mutex
	closed   bool
	requests int       // in progress
	lastUse  time.Time // end of the last request
	taken    int       // as counted by Options.MaxConnections
	executor Executor  // nil until the first use
	closers  map[*io.Closer]struct{}
	previews map[int]previewAccess // by port
}

func newEntry(s *Server, sandbox *engine.Sandbox, o origin) *entry {
	e := &entry{origin: o, server: s, sandbox: sandbox, lastUse: time.Now(), closers: map[*io.Closer]struct{}{}, renewed: make(chan struct{}, 1)}
	e.transport = ports.NewTransport(e.dial)
	return e
}

// bearer returns the client that has the sandbox's own secret, or the token of a preview. c has the
// rest of its identity.
func (e *entry) bearer(c sandbar.Client) sandbar.Client {
	c.Name, c.Tenant, c.Role, c.Sandbox = "", e.sandbox.Info().Spec.Client.Tenant, sandbar.RoleUser, e.sandbox.ID()
	return c
}

// kept returns the parameters that the engine does not keep.
func (e *entry) kept() origin {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.origin
}

func (e *entry) describe() wire.Sandbox {
	return e.kept().describe(e.sandbox.Info(), e.server.options.IdleTimeout)
}

// watch waits for the end of the sandbox or the server, removes the sandbox if it is idle for too
// long, and then closes the entry's resources.
func (e *entry) watch() {
	look := time.NewTimer(e.idleFor())
	defer look.Stop()
	for waiting := true; waiting; {
		select {
		case <-e.sandbox.Done():
			waiting = false
			continue
		case <-e.server.all.Done():
			waiting = false
			continue
		case <-e.renewed:
		case <-look.C:
		}
		left := e.idleFor()
		if left == 0 {
			e.server.options.Logger.Info("sandbox is idle", "sandbox", e.sandbox.ID(), "idle_timeout", e.kept().idle)
			e.sandbox.End(engine.EndedIdle) // the engine completes the removal, and closes Done
			left = math.MaxInt64
		}
		look.Reset(left)
	}
	e.close()
	e.server.forget(e)
}

// idleFor returns the time of the next check, or 0 if the sandbox has been idle for too long. It
// then refuses further requests: all work begins with a request, so none can begin any more.
func (e *entry) idleFor() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.idle <= 0 || e.closed: // the engine's own timeout applies, or the end has begun
		return math.MaxInt64
	case e.requests > 0:
		return e.idle
	}
	used := e.sandbox.Info().LastUsed
	if e.lastUse.After(used) {
		used = e.lastUse
	}
	left := e.idle - time.Since(used)
	if left > 0 {
		return left
	}
	e.closed = true
	return 0
}

// enter counts a request until leave is called.
func (e *entry) enter() (leave func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, e.gone()
	}
	e.requests++
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.requests--
		e.lastUse = time.Now()
	}, nil
}

func (e *entry) gone() error {
	return sandbar.Errorf(sandbar.Gone, "sandbox %s has ended", e.sandbox.ID())
}

// reserveConn counts a connection until release is called.
func (e *entry) reserveConn() (release func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.taken >= e.server.options.MaxConnections {
		return nil, sandbar.Errorf(sandbar.Exhausted, "sandbox %s has %d connections, which is all that it may have", e.sandbox.ID(), e.taken)
	}
	e.taken++
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.taken--
	}, nil
}

// track closes c when the sandbox ends, unless untrack was called. After the sandbox's end it
// closes c at once.
func (e *entry) track(c io.Closer) (untrack func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		c.Close()
		return func() {}
	}
	key := &c
	e.closers[key] = struct{}{}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.closers, key)
	}
}

// close refuses new requests and ends those in progress.
func (e *entry) close() {
	e.mu.Lock()
	e.closed = true
	x, closers := e.executor, e.closers
	e.closers = map[*io.Closer]struct{}{}
	e.mu.Unlock()
	if x != nil {
		x.Close()
	}
	for c := range closers {
		(*c).Close()
	}
	e.transport.CloseIdleConnections()
}

// getExecutor returns the sandbox's executor, after creating it on the first call.
func (e *entry) getExecutor() (Executor, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return nil, e.gone()
	case e.server.options.NewExecutor == nil:
		return nil, sandbar.Errorf(sandbar.Unsupported, "this daemon has no executors")
	case e.executor == nil:
		e.executor = e.server.options.NewExecutor(e.sandbox)
	}
	return e.executor, nil
}

// serveExecutor forwards a request with the path that the executor expects.
func (e *entry) serveExecutor(w http.ResponseWriter, r *http.Request, t target) {
	x, err := e.getExecutor()
	if err != nil {
		fail(w, err)
		return
	}
	url := *r.URL
	url.Path, url.RawPath = t.rest, t.raw
	inner := *r
	inner.URL = &url
	x.ServeHTTP(w, &inner)
}
