package engine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// maxFollowed is how many followed programs of one sandbox may run at once. It
// bounds what their replay costs: 2 * Config.ReplayBytes each.
const maxFollowed = 256

// Sandbox is a long-lived sandbox. It ends by Stop, by being idle or too old, or by its own death.
// Calls on a sandbox that is being stopped are Conflict, calls on one that has ended are Gone.
type Sandbox struct {
	e       *Engine
	id      sandbar.ID
	spec    sandbar.Spec
	inner   driver.Sandbox
	ticket  *ticket
	env     map[string]string // of programs, where inner was made without that of spec
	created time.Time

	ending chan struct{} // closed when the end begins
	done   chan struct{} // closed when it can run nothing any more
	gone   chan struct{} // closed when nothing is left of it

	mu         sync.Mutex
	closed     bool   // the end has begun
	endReason  string // what happened to it: "was stopped"
	lastUsed   time.Time
	work       int                     // what the idle reaper spares
	cancellers map[*canceller]struct{} // of the programs that run
	programs   workCounter             // the same, to wait for
	following  int                     // processes that run or are being started
	procs      []*Process              // in the order of their start
	started    int                     // how many processes there ever were
}

// Create makes a long-lived sandbox, and waits for a place if none is free. It is Canceled if ctx
// ends before the sandbox is made.
func (e *Engine) Create(ctx context.Context, spec sandbar.Spec) (*Sandbox, error) {
	spec, err := e.resolve(spec)
	if err != nil {
		return nil, err
	}
	if err := e.rateLimiters.Load().allow(spec.Client); err != nil {
		return nil, err
	}
	r := e.takeReady("", spec)
	e.mu.Lock()
	t, r, err := e.enter(longLived, spec.Client, r)
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	e.makeRoom(t)
	if err := e.awaitPlace(t, ctx.Done(), time.Now()); err != nil {
		return nil, err
	}
	began := time.Now()
	s := &Sandbox{e: e, id: sandbar.NewID(), spec: spec, ticket: t, created: began, lastUsed: began,
		ending: make(chan struct{}), done: make(chan struct{}), gone: make(chan struct{}),
		cancellers: map[*canceller]struct{}{}}
	if r != nil {
		s.id, s.inner, s.env = r.id, r.sb, spec.Env
	} else if err := s.build(ctx); err != nil {
		err = explain(err, e.draining)
		e.logFailure("sandbox not created", err, "sandbox", s.id, "took", time.Since(began))
		return nil, err
	}
	if err := e.add(s); err != nil {
		e.discard(s.id, s.inner, t)
		return nil, err
	}
	e.log.Info("sandbox created", "sandbox", s.id, "took", time.Since(began))
	return s, nil
}

// build makes the sandbox. On error its place is given back when nothing is
// left of it. The end of ctx stops it, and so does the beginning of Shutdown,
// for which no new sandbox is of any use.
func (s *Sandbox) build(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.e.draining:
			cancel()
		case <-ctx.Done():
		}
	}()
	s.inner, err = bounded(setupTimeout, ctx.Done(), func(ctx context.Context) (driver.Sandbox, error) {
		return s.e.create(ctx, s.id, s.spec)
	}, func(sb driver.Sandbox) { s.e.discard(s.id, sb, s.ticket) })
	return err
}

// add makes a sandbox known and begins to watch it.
func (e *Engine) add(s *Sandbox) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return unavailable()
	}
	e.sandboxes[s.id] = s
	go s.watch()
	return nil
}

// Get finds a live sandbox; NotFound if there is none of this id.
func (e *Engine) Get(id sandbar.ID) (*Sandbox, error) {
	if s := e.find(id); s != nil && s.live() {
		return s, nil
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

// List returns the live sandboxes, oldest first.
func (e *Engine) List() []Info {
	e.mu.Lock()
	all := slices.Collect(maps.Values(e.sandboxes))
	e.mu.Unlock()
	infos := make([]Info, 0, len(all))
	for _, s := range all {
		if s.live() {
			infos = append(infos, s.Info())
		}
	}
	slices.SortFunc(infos, func(a, b Info) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return infos
}

// Stop kills and removes a sandbox, and waits until nothing is left of it. A Stop of a sandbox that
// is already being stopped waits for the same end; NotFound if the id is unknown. The end of ctx ends
// only the waiting: it is Canceled, or Timeout for a deadline, and the removal goes on.
func (e *Engine) Stop(ctx context.Context, id sandbar.ID) error {
	s := e.find(id)
	if s == nil {
		return noSandbox(id)
	}
	s.end("was stopped")
	select {
	case <-s.gone:
		return nil
	default:
	}
	select {
	case <-s.gone:
		return nil
	case <-ctx.Done():
		code := sandbar.Canceled
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			code = sandbar.Timeout
		}
		return sandbar.Errorf(code, "sandbox %s is being stopped but is not gone yet: %w", id, context.Cause(ctx))
	}
}

// live reports whether the end has not begun.
func (s *Sandbox) live() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed
}

// end begins the end, once: everything that runs is killed, and watch takes
// it from there.
func (s *Sandbox) end(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.close(why) {
		for b := range s.cancellers {
			b.kill()
		}
	}
}

// close refuses everything from now on, with mu held, and reports whether it
// was the first to do so.
func (s *Sandbox) close(why string) bool {
	if s.closed {
		return false
	}
	s.closed, s.endReason = true, why
	close(s.ending)
	return true
}

// died is end for a sandbox that has ended by itself. Its programs are not
// cancelled: they are Lost, which is for the driver to say.
func (s *Sandbox) died() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close("died")
}

// watch waits for a reason to end the sandbox, then removes it. It is the one
// goroutine that every long-lived sandbox has.
func (s *Sandbox) watch() {
	dead := deadChan(s.inner)
	var old <-chan time.Time
	if s.e.cfg.MaxLifetime > 0 {
		t := time.NewTimer(s.e.cfg.MaxLifetime)
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
			s.end("reached its lifetime")
		case <-idle.C:
			idle.Reset(s.idleIn())
		}
	}
	s.remove()
}

// idleIn ends the sandbox if it has been idle for too long, and else returns
// when to look again. Looking and ending are one step, so that work which
// begins at this moment is either seen or refused.
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
		s.close("was idle for too long")
		return limit
	}
	return left
}

// remove lets killed programs tell their end, destroys the sandbox and forgets
// it.
func (s *Sandbox) remove() {
	settle := time.NewTimer(killSettle)
	defer settle.Stop()
	select {
	case <-s.programs.zero():
	case <-settle.C:
	}
	s.e.remove(s.id, s.inner, func() { close(s.done) })
	s.e.log.Info("sandbox ended", "sandbox", s.id, "reason", s.endReason, "age", time.Since(s.created))
	s.e.mu.Lock()
	delete(s.e.sandboxes, s.id)
	s.e.mu.Unlock()
	close(s.gone)
	s.ticket.leave()
}

// hold counts as work until release is called.
func (s *Sandbox) hold() (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, s.refusal()
	}
	s.work++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.release()
	}), nil
}

// rest is the end of a piece of work, with mu held.
func (s *Sandbox) release() {
	s.work--
	s.lastUsed = time.Now()
}

// begin counts a program that ends with b. Its end is finish.
func (s *Sandbox) begin(b *canceller, followed bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.refusal()
	}
	if followed {
		if s.following == maxFollowed {
			return sandbar.Errorf(sandbar.Exhausted, "sandbox %s runs %d followed programs, which is all that may run at once", s.id, maxFollowed)
		}
		s.following++
	}
	s.work++
	s.cancellers[b] = struct{}{}
	s.programs.add(1)
	s.e.work.add(1)
	return nil
}

// finish is the end of a program. p, if it was followed, ends in the same
// step: whoever sees it ended finds it ended in every other way too.
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

// refusal is the error of a call that comes too late.
func (s *Sandbox) refusal() error {
	select {
	case <-s.done:
		return sandbar.Errorf(sandbar.Gone, "sandbox %s has ended: it %s", s.id, s.endReason)
	default:
		return sandbar.Errorf(sandbar.Conflict, "sandbox %s is being stopped", s.id)
	}
}

// ID is the sandbox's id.
func (s *Sandbox) ID() sandbar.ID { return s.id }

// Info describes the sandbox at this moment. LastUsed is now while work is in
// progress.
func (s *Sandbox) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.lastUsed
	if s.work > 0 {
		used = time.Now()
	}
	spec := s.spec
	spec.Env, spec.Labels = maps.Clone(spec.Env), maps.Clone(spec.Labels)
	return Info{ID: s.id, Spec: spec, Created: s.created, LastUsed: used,
		Enforced: s.e.capsOf(s.spec).Enforced, Running: len(s.cancellers)}
}

// Done is closed when the sandbox has ended, for whatever reason, and can run nothing any more.
func (s *Sandbox) Done() <-chan struct{} { return s.done }

// Hold counts as work until release is called, once or more often, so that the idle reaper spares
// the sandbox during an open transfer or a proxied connection. On a sandbox that has ended it does
// nothing.
func (s *Sandbox) Hold() (release func()) {
	release, err := s.hold()
	if err != nil {
		return func() {}
	}
	return release
}

// FS returns the sandbox's files. A call under way and an open file count as work.
func (s *Sandbox) FS() sandbar.FS { return files{s, s.inner.FS()} }

// DialPort connects to a port inside; Unsupported if the driver cannot. The
// connection itself is not counted as work: whoever proxies it uses Hold.
func (s *Sandbox) DialPort(ctx context.Context, port int) (net.Conn, error) {
	d, ok := driver.As[driver.Dialer](s.inner)
	if !ok {
		return nil, sandbar.Errorf(sandbar.Unsupported, "the driver %q cannot connect to a port of a sandbox", s.spec.Driver)
	}
	release, err := s.hold()
	if err != nil {
		return nil, err
	}
	defer release()
	return d.DialPort(ctx, port)
}
