package engine

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/warm/prestart"
)

// prepareTimeout bounds the preparation of a template, which imports the operator's modules.
const prepareTimeout = 2 * time.Minute

// run maintains the pools until Shutdown begins, and then empties them.
func (a *pools) run() {
	defer close(a.stopped)
	timer := time.NewTicker(trimInterval)
	defer timer.Stop()
	a.later = time.AfterFunc(burstWindow, a.wake)
	defer a.later.Stop()
	for {
		a.refill(time.Now())
		select {
		case <-a.wakeups:
		case <-timer.C:
			a.trim()
		case <-a.e.draining:
			a.close()
			return
		}
	}
}

// refill sets the targets of all pools and starts what is missing: templates to prepare and
// sandboxes to fork.
func (a *pools) refill(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.setTargets(now)
	for _, p := range a.list {
		if now.Before(p.retryAt) || p.delayed(now) {
			continue
		}
		if p.template == nil {
			if p.target > 0 && !p.preparing {
				a.beginPrepare(p)
			}
			continue
		}
		if isClosed(p.template.Dead()) {
			a.removeTemplate(p)
			continue
		}
		wanted := p.target
		if a.outrun(p, now) {
			wanted = p.cfg.Min
			a.later.Reset(burstWindow)
		}
		for len(p.ready)+p.filling < wanted && a.mayFork(p) {
			t := a.e.reserve()
			if t == nil {
				return // a freed slot wakes the loop
			}
			a.count(p, 1)
			go a.fork(p, p.template, t)
		}
	}
}

// mayFork reports whether another fork of a pool may begin. a.mu is held.
func (a *pools) mayFork(p *pool) bool {
	if p.remote > 0 {
		return p.filling < p.remote
	}
	return a.filling < a.maxForks
}

// count adds n to the forks in progress. a.mu is held.
func (a *pools) count(p *pool, n int) {
	p.filling += n
	if p.remote == 0 {
		a.filling += n
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// reserve takes a slot that no request needs; nil if there is none, or if Shutdown has begun.
func (e *Engine) reserve() *ticket {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return nil
	}
	t := e.queue.reserve()
	if t != nil {
		e.work.add(1)
	}
	return t
}

// trim discards dead sandboxes, and the oldest of each pool if it is above its target or has waited
// for longer than Config.MaxLifetime. It discards one per pool and call, so that a lull in demand
// does not empty the pools at once.
func (a *pools) trim() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.removeIdle(time.Now())
	for _, p := range a.list {
		p.ready = slices.DeleteFunc(p.ready, func(r *readySandbox) bool {
			if r.alive() {
				return false
			}
			p.stats.Lost++
			r.discard(a.e)
			return true
		})
		if len(p.ready) > p.target || len(p.ready) > 0 && a.e.cfg.MaxLifetime > 0 && time.Since(p.ready[0].made) > a.e.cfg.MaxLifetime {
			r := p.ready[0]
			p.ready = slices.Delete(p.ready, 0, 1)
			r.discard(a.e)
		}
	}
}

// beginPrepare prepares a template in the background. a.mu is held.
func (a *pools) beginPrepare(p *pool) {
	if !a.e.beginWork() {
		return
	}
	p.preparing = true
	go func() {
		began := time.Now()
		t, err := bounded(prepareTimeout, a.e.draining, func(ctx context.Context) (*preparedTemplate, error) {
			return a.prepare(ctx, p)
		}, func(t *preparedTemplate) { a.closeTemplate(p, t) })
		a.mu.Lock()
		defer a.mu.Unlock()
		p.preparing = false
		if err != nil { // bounded calls drop, now or later
			a.fail(p, "template not prepared", err)
			return
		}
		if a.closed {
			go a.closeTemplate(p, t)
			return
		}
		p.template = t
		a.watch(t)
		a.e.log.Info("template prepared", "template", p.name, "took", time.Since(began))
		a.wake()
	}()
}

// beginWork adds 1 to e.work. It returns false if Shutdown has begun.
func (e *Engine) beginWork() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closing {
		e.work.add(1)
	}
	return !e.closing
}

// watch wakes run when a template dies.
func (a *pools) watch(t *preparedTemplate) {
	if c := t.Dead(); c != nil {
		go func() {
			select {
			case <-c:
				a.wake()
			case <-a.stopped:
			}
		}()
	}
}

// closeTemplate closes a template, which may be nil, and ends the work that beginWork began.
func (a *pools) closeTemplate(p *pool, t *preparedTemplate) {
	defer a.e.work.add(-1)
	if t == nil {
		return
	}
	if err := catchPanic(t.Close); err != nil {
		a.e.log.Warn("a template was not closed", "template", p.name, "error", err)
	}
}

// preparedTemplate is the template of a pool.
type preparedTemplate struct {
	driver.Template
	// forksInterpreter is true if a fork copies a running interpreter, which takes less time than
	// starting one.
	forksInterpreter bool
}

// prepare makes the template of a pool, of the first possible kind: the driver's own, whose forks
// copy an interpreter; one whose forks start an interpreter; one whose forks have no interpreter.
func (a *pools) prepare(ctx context.Context, p *pool) (*preparedTemplate, error) {
	b, err := a.e.backend(p.spec.Driver)
	if err != nil {
		return nil, err
	}
	bare := bareTemplate{a.e, p.spec}
	if p.language.Name == "" || p.cfg.NoInterpreter {
		return &preparedTemplate{Template: bare}, nil
	}
	argv, file := p.language.Argv("", nil), p.language.File
	spec := driver.TemplateSpec{Spec: p.spec, Language: p.language.Name, File: file,
		Argv: slices.DeleteFunc(argv, func(s string) bool { return s == "" }), Env: p.language.Env, Imports: p.cfg.Imports, Once: a.e.cfg.Vet == nil}
	if t, ok := driver.As[driver.Templater](b.driver); ok {
		made, err := t.Prepare(ctx, spec)
		if len(spec.Imports) > 0 && missingImport(err) {
			if p.importsLogged.CompareAndSwap(false, true) {
				a.e.log.Warn("warm_imports are not imported in advance", "template", p.name, "error", err)
			}
			spec.Imports = nil
			made, err = t.Prepare(ctx, spec)
		}
		switch {
		case err == nil:
			return &preparedTemplate{made, true}, nil
		case sandbar.CodeOf(err) != sandbar.Unsupported:
			return nil, err
		}
		a.e.log.Debug("the driver prepares no template for this language", "template", p.name, "error", err)
	}
	made, err := prestart.Prepare(b.driver, spec)
	switch {
	case sandbar.CodeOf(err) == sandbar.Unsupported:
		return &preparedTemplate{Template: bare}, nil
	case err != nil:
		return nil, err
	}
	return &preparedTemplate{Template: &fallbackTemplate{Template: made, bare: bare, name: p.name}}, nil
}

// missingImport reports whether a template could not be prepared because a module of its imports
// does not exist or fails.
func missingImport(err error) bool {
	return sandbar.CodeOf(err) == sandbar.Unsupported && sandbar.AsError(err).Field == "imports"
}

// fallbackTemplate is a template of package prestart. Only its first fork shows whether the
// interpreter can be prestarted. If it cannot, the forks are sandboxes without an interpreter.
type fallbackTemplate struct {
	driver.Template
	bare bareTemplate
	name string
	// works is true after a successful fork. A later failure is then an error and is retried.
	works  atomic.Bool
	failed atomic.Bool
}

func (t *fallbackTemplate) Fork(ctx context.Context, id sandbar.ID) (driver.Sandbox, error) {
	if t.failed.Load() {
		return t.bare.Fork(ctx, id)
	}
	sb, err := t.Template.Fork(ctx, id)
	if err == nil {
		t.works.Store(true)
	}
	if sandbar.CodeOf(err) != sandbar.Unsupported || t.works.Load() {
		return sb, err
	}
	if t.failed.CompareAndSwap(false, true) {
		t.bare.e.log.Info("sandboxes are kept ready without a started interpreter", "template", t.name, "reason", err)
	}
	return t.bare.Fork(ctx, id)
}

// bareTemplate is a template whose forks are fresh sandboxes without an interpreter.
type bareTemplate struct {
	e    *Engine
	spec sandbar.Spec
}

func (t bareTemplate) Fork(ctx context.Context, id sandbar.ID) (driver.Sandbox, error) {
	return t.e.create(ctx, id, t.spec)
}
func (bareTemplate) Dead() <-chan struct{} { return nil }
func (bareTemplate) Close() error          { return nil }

// fork makes one prestarted sandbox on a reserved slot.
func (a *pools) fork(p *pool, t *preparedTemplate, slot *ticket) {
	began := time.Now()
	r := &readySandbox{p: p, id: sandbar.NewID(), ticket: slot}
	sb, err := bounded(a.e.setupTimeout(p.spec.Driver), a.e.draining, func(ctx context.Context) (driver.Sandbox, error) {
		sb, err := t.Fork(ctx, r.id)
		switch {
		case err != nil:
		case sb == nil:
			err = sandbar.Errorf(sandbar.Internal, "the template made no sandbox and reported no error")
		default:
			a.e.rest(ctx, r.id, p.name, sb)
		}
		return sb, err
	}, func(sb driver.Sandbox) { a.e.discard(r.id, sb, slot) })
	took := time.Since(began)
	cost := costOf(sb)
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.wake()
	a.count(p, -1)
	if err != nil {
		a.fail(p, "sandbox not made ready", err)
		return
	}
	r.sb, r.made = sb, began
	p.stats.Forks++
	p.stats.Refill += took
	p.refill = took
	p.measure(cost)
	p.retryDelay, p.retryAt = 0, time.Time{}
	if a.closed || a.e.queue.hasWaiting() {
		r.discard(a.e) // a request waits for its slot
		return
	}
	p.ready = append(p.ready, r)
}

// costOf returns the peak memory of a sandbox in bytes; 0 if unknown.
func costOf(sb driver.Sandbox) int64 {
	if m, ok := driver.As[driver.PeakMemory](sb); ok {
		return m.PeakMemory()
	}
	return 0
}

// measure updates the average memory of one prestarted sandbox.
func (p *pool) measure(cost int64) {
	if cost > 0 {
		p.measured++
		n := int64(min(p.measured, 8))
		if p.cost += (cost - p.cost) / n; p.measured == 1 {
			p.cost = cost
		}
	}
}

// fail records a failure and delays the next attempt. The delay doubles with each failure and is at
// once lastRetry if the image or the interpreter is missing. a.mu is held.
func (a *pools) fail(p *pool, what string, err error) {
	if a.closed || isClosed(a.e.draining) {
		return
	}
	p.stats.Failed++
	p.retryDelay = min(max(firstRetry, 2*p.retryDelay), lastRetry)
	if sandbar.CodeOf(err) == sandbar.NotFound {
		p.retryDelay = lastRetry
	}
	p.retryAt = time.Now().Add(p.retryDelay)
	a.e.log.Warn(what, "template", p.name, "code", string(sandbar.CodeOf(err)), "error", err, "again_in", p.retryDelay)
}

// removeTemplate removes a dead template from its pool. Its forks stay alive. a.mu is held.
func (a *pools) removeTemplate(p *pool) {
	t := p.template
	p.template = nil
	go a.closeTemplate(p, t)
	a.fail(p, "template died", sandbar.Errorf(sandbar.Gone, "it can fork no more"))
}

// close discards all prestarted sandboxes and closes the templates. Forks in progress end by
// themselves.
func (a *pools) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for _, p := range a.list {
		for _, r := range p.ready {
			r.discard(a.e)
		}
		p.ready = nil
		if p.template != nil {
			go a.closeTemplate(p, p.template)
			p.template = nil
		}
	}
}
