package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine/lang"
)

// Engine is the platform. Its methods may be called concurrently.
type Engine struct {
	cfg          Config // complete
	backends     []backend
	caps         driver.Caps // of the first
	log          *slog.Logger
	queue        *queue
	rateLimiters atomic.Pointer[rateLimiters]
	pools        *pools // nil: nothing is kept ready
	interpreters interpreters

	// running counts what Shutdown lets end by itself: executions from Admit to
	// their result, and calls of Exec. work counts all that must be over before
	// nothing is left: those, every ticket until it has left (which is after the
	// removal of what was made on it), and every program in a long-lived sandbox.
	running, work workCounter

	draining     chan struct{} // closed when Shutdown begins: nothing new
	force        chan struct{} // closed when its time is up: everything is ended
	giveUp       chan struct{} // closed at the very end: removals are not retried
	shutdownDone chan struct{} // closed when Shutdown is over
	forced       sync.Once

	mu          sync.Mutex
	closing     bool
	executions  map[*Execution]struct{}
	sandboxes   map[sandbar.ID]*Sandbox
	removing    int          // sandboxes whose removal has failed and is being retried
	leftover    []sandbar.ID // that could not be removed at all
	shutdownErr error        // Shutdown's; written before down is closed
}

// New makes an Engine from a Config. It fails with Invalid when fields of the
// Config contradict one another. Nothing runs until something is admitted, but
// for Config.Templates, which are prepared from now on.
func New(c Config) (*Engine, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	backends, err := newBackends(c)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: c, backends: backends, caps: backends[0].caps, log: c.Logger,
		draining: make(chan struct{}), force: make(chan struct{}),
		giveUp: make(chan struct{}), shutdownDone: make(chan struct{}),
		executions: map[*Execution]struct{}{}, sandboxes: map[sandbar.ID]*Sandbox{},
	}
	e.queue = newQueue(c.MaxSandboxes, c.MaxQueue, c.Clients, func() { e.work.add(-1); e.pools.wake() })
	paces := newRateLimiters(c.Clients, nil)
	e.rateLimiters.Store(&paces)
	if len(c.Templates) > 0 {
		if e.pools, err = e.newPools(c.Templates); err != nil {
			return nil, err
		}
		go e.pools.run()
	}
	for _, b := range backends {
		b.warn(c)
	}
	if c.CheckLanguages {
		e.probeDefault()
	}
	return e, nil
}

// Caps returns the facts about the driver of a Spec that names none.
func (e *Engine) Caps() driver.Caps { return e.caps }

// Languages returns the language catalogue.
func (e *Engine) Languages() *lang.Catalogue { return e.cfg.Languages }

// Limits returns the defaults and the range of what a caller may ask for, with no field unset.
func (e *Engine) Limits() (def, min, max sandbar.Limits) {
	return e.cfg.Default, e.cfg.Min, e.cfg.Max
}

// Stats returns the load at this moment.
func (e *Engine) Stats() Stats {
	taken, waiting := e.queue.load()
	e.mu.Lock()
	defer e.mu.Unlock()
	live := 0
	for _, s := range e.sandboxes {
		if s.live() {
			live++
		}
	}
	return Stats{Active: taken[oneShot], Queued: waiting, Sandboxes: live, Ready: taken[reserved],
		Capacity: e.cfg.MaxSandboxes, Removing: e.removing}
}

// Templates returns the state of Config.Templates, in their order.
func (e *Engine) Templates() []TemplateStats { return e.pools.snapshot() }

// unavailable is the refusal of everything once Shutdown has begun.
func unavailable() error {
	return sandbar.Errorf(sandbar.Unavailable, "the platform is shutting down")
}

// enter takes a place or joins the line, unless Shutdown has begun. With a ready
// sandbox it is that one's place, and the sandbox is returned, unless the client
// has all that it may have. It is called with mu held, so that Shutdown finds all
// that came before it; a ready sandbox that is not returned is on its way out.
func (e *Engine) enter(k kind, c sandbar.Client, r *readySandbox) (*ticket, *readySandbox, error) {
	if e.closing {
		if r != nil {
			r.discard(e)
		}
		return nil, nil, unavailable()
	}
	if r != nil {
		if r.ticket.assign(k, c) {
			return r.ticket, r, nil
		}
		// Others of the same client came in between, and it has all it may have.
		r.discard(e)
	}
	t, err := e.queue.enter(k, c)
	if err == nil {
		e.work.add(1)
	}
	return t, nil, err
}

// takeReady hands out a ready sandbox that suits, if there is one and its client
// may have another.
func (e *Engine) takeReady(language string, s sandbar.Spec) *readySandbox {
	if e.pools == nil || e.queue.full(s.Client) {
		return nil
	}
	return e.pools.take(language, s)
}

// makeRoom lets a ready sandbox give way to a ticket that waits for a place.
func (e *Engine) makeRoom(t *ticket) {
	if e.pools != nil && t.isWaiting() {
		e.pools.evict()
	}
}

// awaitPlace waits until t has its place. On error t has been left.
func (e *Engine) awaitPlace(t *ticket, stop <-chan struct{}, since time.Time) error {
	select {
	case <-t.granted: // nobody need make a timer when there is a place
		return nil
	default:
	}
	var late <-chan time.Time
	if e.cfg.QueueTimeout > 0 {
		timer := time.NewTimer(e.cfg.QueueTimeout - time.Since(since))
		defer timer.Stop()
		late = timer.C
	}
	var err error
	select {
	case <-t.granted:
		return nil
	case <-stop:
		err = sandbar.Errorf(sandbar.Canceled, "cancelled while waiting for a place")
	case <-e.draining:
		err = unavailable()
	case <-late:
		err = &sandbar.Error{Code: sandbar.Timeout,
			Message: "no place became free within " + e.cfg.QueueTimeout.String() + ", which is the longest wait",
			Fix:     "try again later, or let the operator raise the number of sandboxes or the queue's timeout"}
	}
	t.leave()
	return err
}

// create calls the driver's Create for a resolved Spec. On error the sandbox is
// nil.
func (e *Engine) create(ctx context.Context, id sandbar.ID, s sandbar.Spec) (driver.Sandbox, error) {
	b, err := e.backend(s.Driver)
	if err != nil {
		return nil, err
	}
	sb, err := b.driver.Create(ctx, id, s)
	if err != nil {
		return nil, err
	}
	if sb == nil {
		return nil, sandbar.Errorf(sandbar.Internal, "the driver made no sandbox and reported no error")
	}
	return sb, nil
}

// discard destroys a sandbox, without waiting for it, and gives its place back
// when nothing is left. A nil sb never came to be.
func (e *Engine) discard(id sandbar.ID, sb driver.Sandbox, t *ticket) {
	if sb == nil {
		t.leave()
		return
	}
	go func() {
		e.remove(id, sb, func() {})
		t.leave()
	}()
}

// handOverTime is how long a result has a processor before the sandbox that it came
// from is removed. Removing one ends two dozen threads and takes a millisecond or
// more, while on this machine somebody may be about to read the result.
const removalDelay = time.Millisecond

// handOver has a sandbox, if nobody has begun to remove it, be removed when the
// result has been on its way for a moment; at once if the place is needed.
func (e *Engine) removeLater(removal *sync.Once, l launched, t *ticket) {
	_, waiting := e.queue.load()
	if waiting > 0 || e.isClosing() {
		return // the caller removes it
	}
	removal.Do(func() { time.AfterFunc(removalDelay, func() { e.discard(l.id, l.sb, t) }) })
}

// explain makes the error of a setup what a caller can use. If down is closed,
// it was Shutdown that stopped the setup and not the caller.
func explain(err error, down <-chan struct{}) error {
	switch {
	case errors.Is(err, errStopped):
		select {
		case <-down:
			return unavailable()
		default:
			return sandbar.Errorf(sandbar.Canceled, "cancelled before the program started")
		}
	case errors.Is(err, errSlow):
		return sandbar.Errorf(sandbar.Timeout, "the sandbox was not ready within %v: %w", setupTimeout, err)
	}
	return sandbar.AsError(err)
}

// deathOf returns the channel on which a sandbox tells of its death; nil if
// its driver cannot.
func deadChan(sb driver.Sandbox) <-chan struct{} {
	if w, ok := driver.As[driver.Watcher](sb); ok {
		return w.Dead()
	}
	return nil
}
