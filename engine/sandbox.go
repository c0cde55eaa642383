package engine

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// maxFollowed is the largest number of programs with followers that run in one sandbox at once. It
// bounds the memory of their replays: 2 * Config.ReplayBytes each.
const maxFollowed = 256

// Sandbox is a long-lived sandbox. It ends by Stop, by the idle timeout, by the maximum lifetime,
// or by its own death. Calls return Conflict while the sandbox is being stopped, and Gone after its
// end.
type Sandbox struct {
	e         *Engine
	id        sandbar.ID
	spec      sandbar.Spec
	inner     driver.Sandbox
	ticket    *ticket
	env       map[string]string // merged into programs' environment if inner was made without it
	created   time.Time
	began     time.Time     // of its life in this process
	lived     time.Duration // before it was paused
	suspended bool          // see Paused.Suspended

	ending chan struct{} // closed when the end begins
	done   chan struct{} // closed when no program can run any more
	gone   chan struct{} // closed when nothing is left of the sandbox

	restricting sync.Mutex // one Restrict at a time

	mu         sync.Mutex
	closed     bool // the end has begun
	pausing    bool // it is being saved; calls are refused
	paused     bool // it has ended because it was paused
	endReason  EndReason
	cause      error           // why it died by itself; nil if unknown
	note       []byte          // see SetNote
	egress     *sandbar.Egress // Spec.Egress now; see Restrict
	lastUsed   time.Time
	work       int                     // number of activities; the idle timeout applies at 0
	cancellers map[*canceller]struct{} // of running programs
	programs   workCounter             // running programs, to wait for
	following  int                     // processes with followers, running or starting
	procs      []*Process              // in the order of their start
	started    int                     // number of processes started so far
	contexts   []*Context              // in the order of their creation

	contextsMade int // number of contexts created so far
	awaited      int // number of programs started so far whose caller waits
	polls        int // watches that compare listings
}

// Create makes a long-lived sandbox. It belongs to the caller in ctx, see WithClient; without one
// to Spec.Client. It waits if no slot is free. Canceled: ctx ended before the sandbox was made.
// Denied: the caller may read only.
func (e *Engine) Create(ctx context.Context, spec sandbar.Spec) (*Sandbox, error) {
	var s *Sandbox
	client, err := creator(ctx, spec.Client)
	trace := e.trace(client, DidCreate)
	if spec.Client = client; err == nil {
		s, err = e.createLongLived(ctx, spec, trace)
	}
	e.called(call{client: spec.Client, verb: DidCreate, sandbox: idOf(s, err), outcome: outcomeOK, err: err})
	trace.end(idOf(s, err), outcomeOK, err)
	return s, err
}

// idOf returns the id of a sandbox that was made, "" after an error.
func idOf(s *Sandbox, err error) sandbar.ID {
	if err != nil {
		return ""
	}
	return s.id
}

// createLongLived implements Create.
func (e *Engine) createLongLived(ctx context.Context, spec sandbar.Spec, trace *callTrace) (*Sandbox, error) {
	spec, err := e.resolve(spec)
	if err != nil {
		return nil, err
	}
	if err := e.allow(spec.Client); err != nil {
		return nil, err
	}
	d, err := e.hold(ctx, spec.Client, claimOf(spec))
	if err != nil {
		return nil, err
	}
	r := e.takeReady(spec, "")
	e.mu.Lock()
	t, r, err := e.enter(longLived, spec.Client, d, r)
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	e.makeRoom(t)
	err = e.awaitSlot(t, ctx.Done(), time.Now())
	trace.about(spec.Driver, "")
	trace.step(StepAdmission)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	s := e.newSandbox(sandbar.NewID(), spec)
	s.ticket = t
	trace.from(OriginReady)
	if r != nil {
		s.useReady(r)
	}
	if s.inner == nil {
		trace.from(OriginCreated)
		if err := s.build(ctx); err != nil {
			trace.step(StepCreate)
			err = explain(err, e.draining)
			e.logFailure("sandbox not created", err, slog.Any("", spec.Client), "sandbox", s.id, "driver", spec.Driver, "took", time.Since(began))
			return nil, err
		}
	}
	trace.step(StepCreate)
	if err := e.add(s, Event{Type: EventCreated, Client: spec.Client.Name}); err != nil {
		e.discard(s.id, s.inner, t)
		return nil, err
	}
	e.log.Info("sandbox created", slog.Any("", spec.Client), "sandbox", s.id, "driver", spec.Driver, "took", time.Since(began))
	return s, nil
}

// newSandbox returns a sandbox that does not exist yet.
func (e *Engine) newSandbox(id sandbar.ID, spec sandbar.Spec) *Sandbox {
	now := time.Now()
	return &Sandbox{e: e, id: id, spec: spec, egress: spec.Egress, created: now, began: now, lastUsed: now,
		ending: make(chan struct{}), done: make(chan struct{}), gone: make(chan struct{}),
		cancellers: map[*canceller]struct{}{}}
}

// build makes the sandbox. The end of ctx and the beginning of Shutdown stop it. On error its slot
// is freed when nothing is left of the sandbox.
func (s *Sandbox) build(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer s.cancelWhenDraining(cancel)()
	s.inner, err = bounded(s.e.setupTimeout(s.spec.Driver), ctx.Done(), func(ctx context.Context) (driver.Sandbox, error) {
		return s.e.create(ctx, s.id, s.spec)
	}, func(sb driver.Sandbox) { s.e.discard(s.id, sb, s.ticket) })
	return err
}

// add registers a sandbox and starts to watch it. v is the event of its beginning.
func (e *Engine) add(s *Sandbox, v Event) error { return e.addAfter(s, v, nil) }

// addAfter is add after a first step. If the step fails, the sandbox is not registered.
func (e *Engine) addAfter(s *Sandbox, v Event, first func() error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return unavailable()
	}
	if first != nil {
		if err := first(); err != nil {
			return err
		}
	}
	e.sandboxes[s.id] = s
	s.happened(v)
	go s.watch()
	return nil
}

// happened records an event of the sandbox.
func (s *Sandbox) happened(v Event) {
	v.Sandbox, v.Tenant = s.id, s.spec.Client.Tenant
	s.e.happened(v)
}

// Get returns a live sandbox. NotFound: the caller in ctx sees none with this id. Conflict: it is
// paused.
func (e *Engine) Get(ctx context.Context, id sandbar.ID) (*Sandbox, error) {
	if err := e.permit(ctx, looks, id); err != nil {
		return nil, err
	}
	if s := e.find(id); s != nil && s.live() {
		return s, nil
	}
	if err := e.paused.refusal(id); err != nil {
		return nil, err
	}
	return nil, noSandbox(id)
}

func (e *Engine) find(id sandbar.ID) *Sandbox {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sandboxes[id]
}

func noSandbox(id sandbar.ID) error {
	return &sandbar.Error{Code: sandbar.NotFound, Field: "id", Message: "there is no sandbox " + sandbar.Quote(string(id), 40)}
}

// List returns the live sandboxes that the caller in ctx sees, oldest first.
func (e *Engine) List(ctx context.Context) []Info {
	e.mu.Lock()
	all := slices.Collect(maps.Values(e.sandboxes))
	e.mu.Unlock()
	infos := make([]Info, 0, len(all))
	for _, s := range all {
		if s.live() && sees(ctx, s.spec.Client, s.id) {
			infos = append(infos, s.Info())
		}
	}
	slices.SortFunc(infos, func(a, b Info) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return infos
}

// Stop kills and removes a sandbox, or removes a paused one, and waits until nothing is left of it.
// If the sandbox is already being stopped, Stop waits for the same end. NotFound: the id is
// unknown. The end of ctx ends only the wait, with Canceled or, for a deadline, Timeout; the
// removal continues. Denied: the caller in ctx may read only.
func (e *Engine) Stop(ctx context.Context, id sandbar.ID) (err error) {
	var trace *callTrace
	defer func() {
		e.called(callOf(ctx, DidStop, id, outcomeOK, err))
		trace.end(id, outcomeOK, err)
	}()
	if err := e.permit(ctx, DidStop, id); err != nil {
		return err
	}
	s := e.find(id)
	if s == nil {
		return e.dropPaused(id)
	}
	trace = s.trace(ctx, DidStop)
	s.end(EndedStopped)
	defer func() { trace.step(StepRemoval) }()
	select {
	case <-s.gone:
	default:
		select {
		case <-s.gone:
		case <-ctx.Done():
			return sandbar.Errorf(sandbar.CodeOfContext(ctx), "sandbox %s is being stopped but is not gone yet: %w", id, context.Cause(ctx))
		}
	}
	if s.wasPaused() { // it was paused before the call
		return e.dropPaused(id)
	}
	return nil
}

// dropPaused removes a paused sandbox.
func (e *Engine) dropPaused(id sandbar.ID) error {
	p, _, err := e.paused.take(id)
	if err != nil {
		return err
	}
	gone, err := e.paused.hide(id)
	if err != nil {
		e.paused.give(id)
		return err
	}
	e.queue.addDisk(p.Spec.Client, -p.Size)
	os.RemoveAll(gone) // on failure the next start removes it
	e.happened(Event{Type: EventEnded, Sandbox: id, Tenant: p.Spec.Client.Tenant, Reason: EndedStopped})
	e.log.Info("paused sandbox removed", ownerOf(p.Spec), "sandbox", id)
	return nil
}

// wasPaused reports whether the sandbox has ended because it was paused.
func (s *Sandbox) wasPaused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paused
}

// live reports whether the end has not begun. A sandbox whose state is stored has begun to end.
func (s *Sandbox) live() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && !s.paused
}

// End begins the end of the sandbox for a protocol's own reason, such as a shorter idle timeout. It
// does not wait; see Done. After the beginning of the end it does nothing.
func (s *Sandbox) End(why EndReason) { s.end(why) }

// end begins the end of the sandbox and kills its programs. watch does the rest. Only the first
// call has an effect.
func (s *Sandbox) end(why EndReason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeAndKill(why)
}

// closeAndKill is close, and kills the programs. s.mu is held.
func (s *Sandbox) closeAndKill(why EndReason) {
	if s.close(why) {
		for b := range s.cancellers {
			b.kill()
		}
	}
}

// close makes all later calls fail. It reports whether this is the first call. s.mu is held.
func (s *Sandbox) close(why EndReason) bool {
	if s.closed {
		return false
	}
	s.closed, s.endReason = true, why
	close(s.ending)
	return true
}

// died begins the end of a sandbox that died by itself. It does not cancel the programs; the driver
// reports them as Lost.
func (s *Sandbox) died() {
	var cause error
	if x, ok := driver.As[driver.Explainer](s.inner); ok {
		cause = x.Death()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.close(EndedDied) {
		s.cause = cause
	}
}

// watch waits for a reason to end the sandbox and then removes it. Every long-lived sandbox has one
// such goroutine.
func (s *Sandbox) watch() {
	dead := deadChan(s.inner)
	var old <-chan time.Time
	if s.e.cfg.MaxLifetime > 0 {
		t := time.NewTimer(max(s.e.cfg.MaxLifetime-s.lived, 0))
		defer t.Stop()
		old = t.C
	}
	idle := time.NewTimer(s.idleIn())
	defer idle.Stop()
	for waiting := true; waiting; {
		select {
		case <-s.ending:
			waiting = false
		case <-dead:
			dead = nil
			s.died()
		case <-old:
			s.end(EndedLifetime)
		case <-idle.C:
			idle.Reset(s.idleIn())
		}
	}
	s.remove()
}

// idleIn ends the sandbox if it was idle for too long. Otherwise it returns the time until the next
// check. The check and the end are one critical section, so a concurrent call either counts as
// activity or is refused.
func (s *Sandbox) idleIn() time.Duration {
	limit := s.spec.IdleTimeout
	if limit < 0 {
		return math.MaxInt64
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.work > 0 {
		return limit
	}
	left := limit - time.Since(s.lastUsed)
	if left <= 0 {
		s.closeAndKill(EndedIdle) // idle interpreters of contexts
		return limit
	}
	return left
}

// remove waits killSettle for killed programs, destroys the sandbox and unregisters it.
func (s *Sandbox) remove() {
	settle := time.NewTimer(killSettle)
	defer settle.Stop()
	select {
	case <-s.programs.zero():
	case <-settle.C:
	}
	s.e.remove(s.id, s.inner, func() {
		if s.wasPaused() {
			s.happened(Event{Type: EventPaused})
		} else {
			s.happened(Event{Type: EventEnded, Reason: s.endReason})
		}
		close(s.done)
	})
	attrs := []any{ownerOf(s.spec), "sandbox", s.id, "driver", s.spec.Driver, "reason", s.endReason.text(), "age", time.Since(s.created)}
	if s.cause != nil {
		attrs = append(attrs, "cause", s.cause)
	}
	s.e.log.Info("sandbox ended", attrs...)
	s.e.mu.Lock()
	delete(s.e.sandboxes, s.id)
	s.e.mu.Unlock()
	s.ticket.leave() // first: who waits for the end may count on the slot
	close(s.gone)
}

// hold counts a client's call as activity until release is called. It returns an error if the
// caller in ctx may not act so on the sandbox.
func (s *Sandbox) hold(ctx context.Context, verb Verb) (release func(), err error) {
	if err := s.permit(ctx, verb); err != nil {
		return nil, err
	}
	if err := s.e.recordable(); err != nil {
		return nil, err
	}
	return s.keep()
}

// keep counts as activity until release is called.
func (s *Sandbox) keep() (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.pausing {
		return nil, s.refusal()
	}
	s.work++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.release()
	}), nil
}

// release ends one activity. s.mu is held.
func (s *Sandbox) release() {
	s.work--
	s.lastUsed = time.Now()
}

// begin counts a program that b ends. finish ends it.
func (s *Sandbox) begin(b *canceller, followed bool) error {
	if err := s.e.recordable(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.pausing {
		return s.refusal()
	}
	if followed {
		if s.following == maxFollowed {
			return sandbar.Errorf(sandbar.Exhausted, "sandbox %s runs %d background programs, which is the limit", s.id, maxFollowed)
		}
		s.following++
	}
	s.work++
	s.cancellers[b] = struct{}{}
	s.programs.add(1)
	s.e.work.add(1)
	return nil
}

// finish ends a program. If p is not nil, p's result is published in the same critical section.
func (s *Sandbox) finish(b *canceller, p *Process, r sandbar.Result, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release()
	delete(s.cancellers, b)
	if p != nil {
		s.following--
		p.end(r, err)
		s.dropFinished()
	}
	s.programs.add(-1)
	s.e.work.add(-1)
}

// refusal is the error of a call after the end has begun, or while the sandbox is being paused.
// s.mu is held.
func (s *Sandbox) refusal() error {
	switch {
	case s.paused:
		return isPaused(s.id)
	case s.pausing && !s.closed:
		return &sandbar.Error{Code: sandbar.Conflict, Message: "sandbox " + string(s.id) + " is being paused", Fix: "resume it then: sandbar resume " + string(s.id)}
	}
	select {
	case <-s.done:
		return s.ended()
	default:
		return sandbar.Errorf(sandbar.Conflict, "sandbox %s is being stopped", s.id)
	}
}

// ended is the error of a call after the end.
func (s *Sandbox) ended() error {
	e := &sandbar.Error{Code: sandbar.Gone, Err: s.cause, Message: "sandbox " + string(s.id) + " has ended: it " + s.endReason.text()}
	if s.cause != nil {
		e.Message += ": " + sandbar.AsError(s.cause).Message
	}
	return e
}

// ID returns the sandbox's id.
func (s *Sandbox) ID() sandbar.ID { return s.id }

// Info describes the current state. LastUsed is now if there is activity.
func (s *Sandbox) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.lastUsed
	if s.work > 0 {
		used = time.Now()
	}
	spec := s.spec
	spec.Egress = s.egress
	spec.Env, spec.Labels = maps.Clone(spec.Env), maps.Clone(spec.Labels)
	var expires time.Time
	if s.e.cfg.MaxLifetime > 0 {
		expires = s.began.Add(s.e.cfg.MaxLifetime - s.lived)
	}
	return Info{ID: s.id, Spec: spec, Created: s.created, LastUsed: used, Expires: expires,
		Enforced: s.e.capsOf(s.spec).Enforced, Running: len(s.cancellers)}
}

// Done is closed when the sandbox has ended for any reason and no program can run in it.
func (s *Sandbox) Done() <-chan struct{} { return s.done }

// Hold counts as activity until release is called, so that the sandbox is not idle during an open
// transfer or a proxied connection. Further calls of release do nothing. After the sandbox's end
// Hold does nothing.
func (s *Sandbox) Hold() (release func()) {
	release, err := s.keep()
	if err != nil {
		return func() {}
	}
	return release
}

// FS returns the sandbox's files. Calls and open files count as activity.
func (s *Sandbox) FS() sandbar.FS { return files{s, s.inner.FS()} }

// DialPort connects to a TCP port in the sandbox. Unsupported: the driver has no Dialer. The open
// connection does not count as activity; see Hold.
func (s *Sandbox) DialPort(ctx context.Context, port int) (_ net.Conn, err error) {
	defer func() { s.called(ctx, DidDial, err) }()
	if err := s.permit(ctx, DidDial); err != nil {
		return nil, err
	}
	d, ok := driver.As[driver.Dialer](s.inner)
	if !ok {
		return nil, sandbar.Errorf(sandbar.Unsupported, "the driver %q cannot connect to a port of a sandbox", s.spec.Driver)
	}
	release, err := s.hold(ctx, DidDial)
	if err != nil {
		return nil, err
	}
	defer release()
	return d.DialPort(ctx, port)
}
