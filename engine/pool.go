package engine

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine/lang"
)

// pools keeps prestarted sandboxes. A request takes one off a list. One goroutine, run, decides
// everything else (preparing templates, forking, discarding surplus and dead sandboxes), and other
// goroutines do that work.
//
// Each prestarted sandbox holds a slot of the queue, so there are never more sandboxes than slots.
// The slot is of kind reserved: it is given up when a request waits.
type pools struct {
	e            *Engine
	maxForks     int           // forks in progress on this machine at most
	memoryBudget int64         // bytes of all prestarted sandboxes together
	wakeups      chan struct{} // a value makes run look again
	stopped      chan struct{} // closed when run has returned

	mu           sync.Mutex
	byKey        map[poolKey]*pool
	list         []*pool             // pools of the Config in its order, then derived ones
	derived      int                 // number of derived pools
	recentMisses [missWindow]poolKey // last requests without a pool; a ring buffer
	missIndex    int
	filling      int // forks in progress on this machine, of all pools
	closed       bool

	later *time.Timer // wakes run if requests may have slowed down; see outrun
}

// pool is the prestarted sandboxes of one template. The fields from ready on are guarded by
// pools.mu.
type pool struct {
	name     string
	derived  bool // see derive
	key      poolKey
	spec     sandbar.Spec
	language lang.Language // the zero Language: none
	cfg      Template
	remote   int // driver.Caps.RemoteCreates

	ready         []*readySandbox // the oldest first
	filling       int
	template      *preparedTemplate // nil until prepared
	preparing     bool
	importsLogged atomic.Bool   // a missing module of cfg.Imports has been logged
	retryDelay    time.Duration // after the last failure
	retryAt       time.Time     // no attempt before
	demand        demand
	cost          int64 // bytes of one sandbox
	measured      int
	target        int
	lastTaken     time.Time      // when a request last took one
	refill        time.Duration  // how long the last fork took
	stats         *TemplateStats // shared with the pools derived from this one
}

// readySandbox is a prestarted sandbox without a job.
type readySandbox struct {
	p      *pool
	id     sandbar.ID
	sb     driver.Sandbox
	ticket *ticket
	made   time.Time
}

const (
	// assumedCost is the assumed memory of a prestarted sandbox, in bytes, before the first
	// measurement.
	assumedCost = 16 << 20
	// trimInterval is the time between two searches for surplus and dead sandboxes.
	trimInterval = time.Second
	// firstRetry and lastRetry bound the delay after a failure. The delay doubles with each
	// failure.
	firstRetry = 200 * time.Millisecond
	lastRetry  = time.Minute
	// forkDelay is how long forking pauses after a request took a sandbox, if at least half of the
	// target is ready. A short program takes about this time; the fork would compete with it for a
	// processor.
	forkDelay = 3 * time.Millisecond
	// maxDerived is the largest number of derived pools. missWindow is the number of recent
	// requests without a pool among which derive looks for a repetition.
	maxDerived = 8
	missWindow = 16
)

// concurrentForks is the largest number of forks in progress: one per processor, because forks
// compete with executions.
func concurrentForks() int { return max(1, runtime.NumCPU()) }

// take returns a prestarted sandbox for a resolved Spec: one of the first language that has a ready
// one; "" is a sandbox without an interpreter. It returns nil if none has. The caller then owns the
// sandbox's ticket.
func (a *pools) take(s sandbar.Spec, languages ...string) *readySandbox {
	if a == nil || s.Cold {
		return nil
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	var counted bool
	for i, language := range languages {
		p := a.byKey[keyOf(language, s)]
		if p == nil && i == 0 {
			p = a.derive(language, s)
		}
		if p == nil || p.backedOff(now) {
			continue
		}
		if !counted {
			p.demand.note(now)
			counted = true
		}
		if r := a.pop(p); r != nil {
			p.stats.Hits++
			p.lastTaken = now
			time.AfterFunc(forkDelay, a.wake)
			return r
		}
		p.stats.Misses++
		a.wake()
	}
	return nil
}

// derive makes a pool for requests that match a template except for its limits, from the second
// such request on: callers choose limits, and most always choose the same. It returns nil for the
// first such request, if no template matches, or if there are maxDerived pools. a.mu is held.
func (a *pools) derive(language string, s sandbar.Spec) *pool {
	key := keyOf(language, s)
	like := func(p *pool) bool {
		k := p.key
		k.limits = key.limits
		return !p.derived && k == key
	}
	i := slices.IndexFunc(a.list, like)
	if i < 0 || a.closed {
		return nil
	}
	if !slices.Contains(a.recentMisses[:], key) || a.derived == maxDerived {
		a.recentMisses[a.missIndex] = key
		a.missIndex = (a.missIndex + 1) % missWindow
		return nil
	}
	base := a.list[i]
	p := &pool{name: base.name, derived: true, key: key, spec: templateSpec(s), language: base.language, cfg: base.cfg, remote: base.remote, cost: base.cost, stats: base.stats}
	p.cfg.Min = 0
	a.byKey[key] = p
	a.list = append(a.list, p)
	a.derived++
	return p
}

// removeIdle removes derived pools without recent requests. a.mu is held.
func (a *pools) removeIdle(now time.Time) {
	a.list = slices.DeleteFunc(a.list, func(p *pool) bool {
		if !p.derived || p.preparing || p.filling+len(p.ready) > 0 || p.demand.expected(now) > 0 {
			return false
		}
		if p.template != nil {
			go a.closeTemplate(p, p.template)
		}
		delete(a.byKey, p.key)
		a.derived--
		return true
	})
}

// delayed reports whether forking pauses after a request; see forkDelay.
func (p *pool) delayed(now time.Time) bool {
	return 2*len(p.ready) >= p.target && now.Sub(p.lastTaken) < forkDelay
}

// outrun reports whether requests come faster than the pool can make sandboxes with a started
// interpreter, and the driver has a cheaper sandbox for one program. Then only the floor is kept
// ready: more would take processor time from programs that do not wait for them.
func (a *pools) outrun(p *pool, now time.Time) bool {
	if p.language.Name == "" || p.template.forksInterpreter || a.e.oneShotter(&plan{language: p.language, spec: p.spec}) == nil {
		return false
	}
	p.demand.decay(now)
	return p.demand.level*float64(p.refill) > float64(a.maxForks)*float64(burstWindow)
}

// backedOff reports whether the pool is empty and its next attempt is far away, because its image
// or interpreter is missing.
func (p *pool) backedOff(now time.Time) bool {
	return len(p.ready) == 0 && p.retryDelay == lastRetry && now.Before(p.retryAt)
}

// pop removes and returns the oldest live sandbox of a pool; nil for none. a.mu is held.
func (a *pools) pop(p *pool) *readySandbox {
	for len(p.ready) > 0 {
		r := p.ready[0]
		p.ready = slices.Delete(p.ready, 0, 1)
		if r.alive() {
			return r
		}
		p.stats.Lost++
		r.discard(a.e)
	}
	return nil
}

// alive reports whether the sandbox has not died.
func (r *readySandbox) alive() bool {
	select {
	case <-deadChan(r.sb): // blocks if nil
		return false
	default:
		return true
	}
}

// discard removes the sandbox and then frees its slot.
func (r *readySandbox) discard(e *Engine) { e.discard(r.id, r.sb, r.ticket) }

// evict discards one prestarted sandbox because a request waits for a slot. It takes it from the
// pool with the most sandboxes above Template.Min.
func (a *pools) evict() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var most *pool
	for _, p := range a.list {
		if len(p.ready) > 0 && (most == nil || len(p.ready)-p.cfg.Min > len(most.ready)-most.cfg.Min) {
			most = p
		}
	}
	if most != nil {
		r := most.ready[0]
		most.ready = slices.Delete(most.ready, 0, 1)
		r.discard(a.e)
	}
}

// failed counts a prestarted sandbox that failed its job.
func (a *pools) failed(p *pool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p.stats.Lost++
}

// wake makes run look again. It does not block and may be called with any lock held.
func (a *pools) wake() {
	if a == nil {
		return
	}
	select {
	case a.wakeups <- struct{}{}:
	default:
	}
}

// snapshot returns the state of all templates.
func (a *pools) snapshot() []TemplateStats {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []TemplateStats
	for _, p := range a.list {
		if !p.derived {
			s := *p.stats
			s.Name, s.Driver, s.Language, s.Image = p.name, p.key.driver, p.key.language, p.key.image
			for _, q := range a.list {
				if q.stats == p.stats {
					s.Ready += len(q.ready)
					s.Target += q.target
				}
			}
			all = append(all, s)
		}
	}
	return all
}

// demand estimates the number of simultaneous requests: the most requests within about burstWindow.
// The estimate decays by half every halfLife.
type demand struct {
	level, peak float64
	at          time.Time
}

const (
	burstWindow = 100 * time.Millisecond
	halfLife    = 30 * time.Second
)

// note counts a request.
func (d *demand) note(now time.Time) {
	d.decay(now)
	d.level++
	d.peak = max(d.peak, d.level)
}

func (d *demand) decay(now time.Time) {
	passed := now.Sub(d.at)
	if passed <= 0 {
		return
	}
	d.at = now
	d.level *= math.Exp(-float64(passed) / float64(burstWindow))
	d.peak *= math.Exp2(-float64(passed) / float64(halfLife))
}

// expected returns the expected number of simultaneous requests. One request counts as 1 for one
// halfLife.
func (d *demand) expected(now time.Time) int {
	d.decay(now)
	return int(math.Round(min(d.peak, math.MaxInt32)))
}

// setTargets sets the number of sandboxes of each pool. It is the expected demand, between
// Template.Min and Template.Max, and within the memory budget that is left after the minimums of
// all pools and the targets of earlier pools. The minimums themselves may exceed the budget. a.mu
// is held.
func (a *pools) setTargets(now time.Time) {
	left := a.memoryBudget
	for _, p := range a.list {
		p.target = p.cfg.Min
		left -= int64(p.target) * p.cost
	}
	for _, p := range a.list {
		more := min(max(p.demand.expected(now), p.cfg.Min), p.cfg.Max) - p.target
		more = int(max(0, min(int64(more), left/p.cost)))
		p.target += more
		left -= int64(more) * p.cost
	}
}
