package engine

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// TenantUsage is what a tenant has of its quotas in one engine: its live sandboxes with their
// limits, the requests that wait for a slot, and the space of its paused sandboxes. Unlimited
// amounts do not count.
type TenantUsage struct {
	Sandboxes    int
	CPUs         float64
	Memory, Disk int64 // bytes
	// Deciding is the number of requests for which Config.Elsewhere is being asked. They count above,
	// and may be refused.
	Deciding int
}

// Add adds the usage in another engine.
func (u *TenantUsage) Add(o TenantUsage) {
	u.Sandboxes += o.Sandboxes
	u.CPUs += o.CPUs
	u.Memory += o.Memory
	u.Disk += o.Disk
	u.Deciding += o.Deciding
}

// TenantUsage returns what a tenant has of its quotas in this engine, and the quotas. The default
// tenant has none.
func (e *Engine) TenantUsage(tenant string) (TenantUsage, TenantLimits) {
	e.queue.mu.Lock()
	defer e.queue.mu.Unlock()
	s := e.queue.clients[party{tenant: tenant}]
	if s == nil || tenant == "" {
		return TenantUsage{}, e.queue.quotas[tenant]
	}
	return TenantUsage{s.use.sandboxes, float64(s.use.cpus) / 1000, s.use.memory, s.use.disk, s.deciding}, s.quota
}

const (
	// holdAttempts is how often a request is decided that undecided ones of other engines leave no
	// room for. The pause between is at most holdPause, doubled each time.
	holdAttempts = 5
	holdPause    = 10 * time.Millisecond
)

// hold counts what a request takes of the quotas of its tenant, if other engines serve the tenant
// too, and checks that all together do not exceed them. enter takes the claim over.
//
// A request counts before the others are asked. So of two simultaneous ones in two engines at least
// one sees the other, and together the engines never admit more than the quota. Both may be
// refused; that is why they try again.
func (e *Engine) hold(ctx context.Context, c sandbar.Client, d claim) (claim, error) {
	if e.cfg.Elsewhere == nil || !e.queue.hasQuota(c) {
		return d, nil
	}
	for n := 1; ; n++ {
		before, err := e.queue.hold(c, d)
		if err != nil {
			return d, err
		}
		others, err := e.cfg.Elsewhere(ctx, c.Tenant)
		if err = e.queue.decide(c, d, before, others, err); err == nil {
			d.held = true
			return d, nil
		}
		if n == holdAttempts || others.Deciding == 0 || sandbar.CodeOf(err) != sandbar.Exhausted {
			return d, err
		}
		select {
		case <-ctx.Done():
			return d, err
		case <-time.After(rand.N(holdPause << n)):
		}
	}
}

// hasQuota reports whether a client belongs to a tenant with a quota that sandboxes count towards.
func (q *queue) hasQuota(c sandbar.Client) bool {
	if c.Tenant == "" {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.quotas[c.Tenant]
	return l.MaxSandboxes > 0 || l.CPUs > 0 || l.Memory > 0 || l.Disk > 0
}

// hold counts a request that is not decided, and returns what the tenant had before it.
func (q *queue) hold(c sandbar.Client, d claim) (before usage, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.partyOf(c)
	if err := s.admit(d); err != nil {
		return before, err
	}
	before = s.use
	s.count(d)
	s.deciding++
	return before, nil
}

// decide decides a request: by err, what Config.Elsewhere returned, else by the usage here before
// the request and that in other engines. After an error the request does not count.
func (q *queue) decide(c sandbar.Client, d claim, before usage, others TenantUsage, err error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.partyOf(c)
	s.deciding--
	if err == nil {
		err = s.fits(d, before.plus(others))
	}
	if err != nil {
		s.use.add(d, -1)
	}
	return err
}

// plus adds the usage in other engines.
func (u usage) plus(o TenantUsage) usage {
	u.sandboxes += o.Sandboxes
	u.cpus += int64(math.Round(o.CPUs * 1000))
	u.memory += o.Memory
	u.disk += o.Disk
	return u
}

// release frees what hold has counted.
func (q *queue) release(c sandbar.Client, d claim) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if d.held {
		q.partyOf(c).use.add(d, -1)
	}
}

// count counts a sandbox, unless hold has.
func (s *clientQueue) count(d claim) {
	if !d.held {
		s.use.add(d, 1)
	}
}

// room returns how much space the state of a ticket's sandbox may take, in bytes; 0 for no quota.
// Exhausted: none.
func (e *Engine) room(ctx context.Context, t *ticket) (int64, error) {
	e.queue.mu.Lock()
	s := t.client
	quota, tenant := s.quota.Disk, s.tenant
	e.queue.mu.Unlock()
	if quota <= 0 {
		return 0, nil
	}
	var others TenantUsage
	if e.cfg.Elsewhere != nil {
		var err error
		if others, err = e.cfg.Elsewhere(ctx, tenant); err != nil {
			return 0, err
		}
	}
	e.queue.mu.Lock()
	defer e.queue.mu.Unlock()
	used := s.use.disk + others.Disk
	left := quota - used + max(t.claim.disk, 0)
	if left <= 0 {
		return 0, s.beyond("limits.disk", "disk", "more", showBytes(used), showBytes(quota), "disk")
	}
	return left, nil
}
