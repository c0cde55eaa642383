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

// pools are the sandboxes that are kept ready. Handing one out is taking it off
// a list; all else (preparing templates, forking, discarding what is too much or
// has died) is decided in one goroutine, keep, and done in others.
//
// Each ready sandbox has a place of the queue, so that there are never more
// sandboxes than places. It is a reserved one: it gives way when it is needed.
type pools struct {
	e            *Engine
	maxForks     int           // forks at once
	memoryBudget int64         // bytes that ready sandboxes may hold together
	wakeups      chan struct{} // something has happened that keep may care about
	stopped      chan struct{} // closed when keep has returned

	mu           sync.Mutex
	byKey        map[poolKey]*pool
	list         []*pool             // those of the Config in its order, then derived ones
	derived      int                 // how many of these
	recentMisses [missWindow]poolKey // the last that had no pool, in a ring
	missIndex    int
	filling      int // forks under way, of all pools
	closed       bool
}

// pool is the ready sandboxes of one template. All below the constants is
// guarded by pools.mu.
type pool struct {
	name     string
	derived  bool // see derive
	key      poolKey
	spec     sandbar.Spec
	language lang.Language // the zero Language for none
	cfg      Template

	ready         []*readySandbox // the oldest first
	filling       int
	template      *preparedTemplate // nil until prepared
	preparing     bool
	importsLogged atomic.Bool   // a missing module of cfg.Imports has been logged
	retryDelay    time.Duration // how long the last failure was waited for
	retryAt       time.Time     // nothing is tried before
	demand        demand
	cost          int64 // bytes that one holds
	measured      int
	target        int
	lastTaken     time.Time      // when one was last handed out
	stats         *TemplateStats // shared with those derived from it
}

// ready is a sandbox that waits for a job.
type readySandbox struct {
	p      *pool
	id     sandbar.ID
	sb     driver.Sandbox
	ticket *ticket
}

const (
	// guessedCost is what a ready sandbox is taken to hold until one was measured.
	assumedCost = 16 << 20
	// tick is how often keep looks, when nothing happens, for what is too much
	// and for what has died.
	trimInterval = time.Second
	// firstRetry and lastRetry bound the pause after a failure, which doubles.
	firstRetry = 200 * time.Millisecond
	lastRetry  = time.Minute
	// yield is how long forking lets the job go first that a sandbox was handed to,
	// which is about what a short program takes from there to its result, as long
	// as half of what is wanted is ready.
	forkDelay = 3 * time.Millisecond
	// maxDerived is how many pools there may be beyond those of the Config, and
	// seen among how many requests without one a second of its kind is noticed.
	maxDerived = 8
	missWindow = 16
)

// refillsAtOnce is how many forks may be under way: enough to use the machine,
// and no more, since they compete with the executions they are for.
func refillsAtOnce() int { return max(1, runtime.NumCPU()) }

// take hands out a ready sandbox for a resolved Spec: one of the language or, if
// it has none ready, one without an interpreter. nil if there is neither. The
// caller has its ticket from then on.
func (a *pools) take(language string, s sandbar.Spec) *readySandbox {
	if a == nil || s.Cold {
		return nil
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	names := []string{language, ""}
	if language == "" {
		names = names[:1]
	}
	var counted bool
	for _, name := range names {
		p := a.byKey[keyOf(name, s)]
		if p == nil && name == language {
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

// derive makes a pool for requests that a template would suit if it had other
// limits, when it is not the first of its kind: callers choose limits, and most
// choose the same ones always. nil if it is the first, if there is no such
// template, or if there are enough pools. It is called with mu held.
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
	p := &pool{name: base.name, derived: true, key: key, spec: templateSpec(s), language: base.language, cfg: base.cfg, cost: base.cost, stats: base.stats}
	p.cfg.Min = 0
	a.byKey[key] = p
	a.list = append(a.list, p)
	a.derived++
	return p
}

// forget takes away derived pools that nobody has asked of for long, with mu
// held.
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

// yields reports whether forking waits for the sake of a job that has just begun.
func (p *pool) delayed(now time.Time) bool {
	return 2*len(p.ready) >= p.target && now.Sub(p.lastTaken) < forkDelay
}

// absent reports that nothing is to be had of a pool for some time: its image or
// interpreter is not there.
func (p *pool) backedOff(now time.Time) bool {
	return len(p.ready) == 0 && p.retryDelay == lastRetry && now.Before(p.retryAt)
}

// pop takes the oldest that is alive off a pool's list, with mu held.
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

// alive reports whether the sandbox has not told of its death.
func (r *readySandbox) alive() bool {
	select {
	case <-deadChan(r.sb): // never ready when nil
		return false
	default:
		return true
	}
}

// discard removes a sandbox that is not needed, and then gives its place back.
func (r *readySandbox) discard(e *Engine) { e.discard(r.id, r.sb, r.ticket) }

// giveWay discards one ready sandbox for the sake of somebody who waits for a
// place: of the pool that has the most beyond its floor.
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

// failed counts a ready sandbox that was of no use to its job.
func (a *pools) failed(p *pool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p.stats.Lost++
}

// poke has keep look. It does not wait and may be called with any lock held.
func (a *pools) wake() {
	if a == nil {
		return
	}
	select {
	case a.wakeups <- struct{}{}:
	default:
	}
}

// snapshot is the state of all templates.
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
			s.Name = p.name
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

// demand estimates how many requests come at once: the most that came within
// about burst, which is forgotten by half every halfLife.
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

// expected is how many may come at once. One that came is expected to come
// again until it is a half.
func (d *demand) expected(now time.Time) int {
	d.decay(now)
	return int(math.Round(min(d.peak, math.MaxInt32)))
}

// aim sets how many sandboxes each pool is to have: what is expected, within its
// bounds, and within what is left of the budget after the floors of all and what
// the pools before it were given. Floors are the operator's word and stand. It
// is called with mu held.
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
