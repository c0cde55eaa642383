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

// Engine runs sandboxes. Its methods may be called concurrently.
type Engine struct {
	cfg          Config // no field is unset
	backends     []backend
	caps         driver.Caps // of backends[0]
	log          *slog.Logger
	queue        *queue
	rateLimiters atomic.Pointer[rateLimiters]
	pools        *pools // nil: no templates
	interpreters interpreters
	paused       *pausedStore
	events       *eventLog

	// running counts the work that Shutdown lets end by itself: executions from Admit to their
	// result, and calls of Exec. work counts everything that Shutdown waits for: that work, every
	// ticket until it has left (after the removal of its sandbox), and every program in a
	// long-lived sandbox.
	running, work workCounter

	draining     chan struct{} // closed when Shutdown begins; no new work after that
	force        chan struct{} // closed when Shutdown's ctx ends; all work is ended
	giveUp       chan struct{} // closed at the end of Shutdown; removals are not retried
	shutdownDone chan struct{} // closed when Shutdown is complete
	forced       sync.Once

	limiting sync.Mutex // one changes Config.Clients and Config.Tenants at a time; guards them

	mu          sync.Mutex
	closing     bool
	executions  map[*Execution]struct{}
	sandboxes   map[sandbar.ID]*Sandbox
	removing    int          // sandboxes whose removal failed repeatedly and is retried
	leftover    []sandbar.ID // sandboxes that could not be removed
	shutdownErr error        // written before shutdownDone is closed
}

// New makes an Engine from a Config. Invalid: fields of the Config contradict one another. The
// Engine starts preparing Config.Templates at once.
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
		cfg: c, backends: backends, caps: backends[0].caps, log: c.Logger, events: newEventLog(),
		draining: make(chan struct{}), force: make(chan struct{}),
		giveUp: make(chan struct{}), shutdownDone: make(chan struct{}),
		executions: map[*Execution]struct{}{}, sandboxes: map[sandbar.ID]*Sandbox{},
	}
	if e.paused, err = openPaused(c); err != nil {
		return nil, err
	}
	e.queue = newQueue(c.MaxSandboxes, c.MaxQueue, c.Clients, func() { e.work.add(-1); e.pools.wake() })
	e.queue.setLimits(c.Clients, c.Tenants)
	for _, p := range e.paused.list() {
		e.queue.addDisk(p.Spec.Client, p.Size)
	}
	paces := newRateLimiters(c.Clients, c.Tenants, nil)
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

// Caps returns the facts about the driver of a Spec that names no driver.
func (e *Engine) Caps() driver.Caps { return e.caps }

// Languages returns the language catalogue.
func (e *Engine) Languages() *lang.Catalogue { return e.cfg.Languages }

// Limits returns the default limits and the range that callers may request. No field is unset.
func (e *Engine) Limits() (def, min, max sandbar.Limits) {
	return e.cfg.Default, e.cfg.Min, e.cfg.Max
}

// Stats returns the current load.
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

// Templates returns the state of Config.Templates, in the same order.
func (e *Engine) Templates() []TemplateStats { return e.pools.snapshot() }

// unavailable is the error of every call after Shutdown has begun.
func unavailable() error {
	return sandbar.Errorf(sandbar.Unavailable, "the platform is shutting down")
}

// enter takes a slot or a position in the queue, unless Shutdown has begun. r is a prestarted
// sandbox or nil. enter returns r with its own slot, unless the client is at its limit; it discards
// an r that it does not return. d comes from hold; after an error it is not counted. e.mu must be
// held, so that Shutdown finds all earlier entries.
func (e *Engine) enter(k kind, c sandbar.Client, d claim, r *readySandbox) (*ticket, *readySandbox, error) {
	if e.closing {
		if r != nil {
			r.discard(e)
		}
		e.queue.release(c, d)
		return nil, nil, unavailable()
	}
	if r != nil {
		if r.ticket.assign(k, c, d) {
			return r.ticket, r, nil
		}
		// Other requests of the same client came in between, and the client is at its limit.
		r.discard(e)
	}
	t, err := e.queue.enter(k, c, d)
	if err != nil {
		e.queue.release(c, d)
		return nil, nil, err
	}
	e.work.add(1)
	return t, nil, nil
}

// takeReady returns a prestarted sandbox that matches, or nil. It returns nil if the client is at
// its limit.
func (e *Engine) takeReady(s sandbar.Spec, languages ...string) *readySandbox {
	if e.pools == nil || e.queue.full(s.Client) {
		return nil
	}
	return e.pools.take(s, languages...)
}

// makeRoom discards one prestarted sandbox if t waits for a slot.
func (e *Engine) makeRoom(t *ticket) {
	if e.pools != nil && t.isWaiting() {
		e.pools.evict()
	}
}

// awaitSlot waits until t has its slot. On error t has left the queue.
func (e *Engine) awaitSlot(t *ticket, stop <-chan struct{}, since time.Time) error {
	select {
	case <-t.granted: // saves the timer if there is a slot
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
		err = sandbar.Errorf(sandbar.Canceled, "cancelled while waiting for a slot")
	case <-e.draining:
		err = unavailable()
	case <-late:
		err = &sandbar.Error{Code: sandbar.Timeout,
			Message: "no slot became free within " + e.cfg.QueueTimeout.String() + ", the longest wait",
			Fix:     "try again later, or let the operator raise the number of sandboxes or the queue's timeout"}
	}
	t.leave()
	return err
}

// create calls the driver's Create with a resolved Spec. On error the sandbox is nil.
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

// discard destroys a sandbox in the background and then frees its slot. If sb is nil it only frees
// the slot.
func (e *Engine) discard(id sandbar.ID, sb removable, t *ticket) {
	if sb == nil {
		t.leave()
		return
	}
	go func() {
		e.remove(id, sb, func() {})
		t.leave()
	}()
}

// removalDelay is the time between the result of an execution and the removal of its sandbox. The
// removal ends about two dozen threads and takes a millisecond or more; a client on this machine
// reads the result sooner with the delay.
const removalDelay = time.Millisecond

// removeLater removes a sandbox after removalDelay, unless its removal has begun. If another
// execution waits for the slot, the caller removes the sandbox at once.
func (e *Engine) removeLater(removal *sync.Once, l launched, t *ticket) {
	_, waiting := e.queue.load()
	if waiting > 0 || e.isClosing() {
		return // the caller removes the sandbox
	}
	removal.Do(func() { time.AfterFunc(removalDelay, func() { e.discard(l.id, l.sb, t) }) })
}

// explain converts the error of a setup for the caller. If down is closed, Shutdown stopped the
// setup and not the caller.
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
		return sandbar.Errorf(sandbar.Timeout, "the sandbox was not ready in time: %w", err)
	}
	return sandbar.AsError(err)
}

// deadChan returns the channel that closes when a sandbox dies; nil if its driver has no Watcher.
func deadChan(sb any) <-chan struct{} {
	if w, ok := driver.As[driver.Watcher](sb); ok {
		return w.Dead()
	}
	return nil
}
