package engine

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// TenantLimits are the quotas of one tenant, by its name: of what all its tokens have together. A
// zero field is no limit. The live sandboxes count, one-shot and long-lived, and the requests that
// wait for a slot. A sandbox counts with its limits, not with what it uses.
type TenantLimits struct {
	// MaxSandboxes is the largest number of sandboxes. A further request is Exhausted.
	MaxSandboxes int
	// CPUs is the sum of Limits.CPUs, Memory that of Limits.Memory and Disk that of Limits.Disk, in
	// bytes. The space of paused sandboxes counts towards Disk. A request beyond them is Exhausted,
	// and one without such a limit is Invalid.
	CPUs         float64
	Memory, Disk int64
	// Rate and Burst are as in ClientLimits.
	Rate  float64
	Burst int
}

// party is who takes turns in the queue and has limits: a client of the default tenant, or another
// tenant with all its tokens.
type party struct{ tenant, name string }

func partyOf(c sandbar.Client) party {
	if c.Tenant != "" {
		return party{tenant: c.Tenant}
	}
	return party{name: c.Name}
}

// flowOf separates the activities of a party: those of a tenant's tokens, too.
func flowOf(c sandbar.Client) string {
	if c.Tenant != "" {
		return c.Name + "\x00" + c.Flow
	}
	return c.Flow
}

// String names a party in errors.
func (p party) String() string {
	if p.tenant != "" {
		return "tenant " + sandbar.Quote(p.tenant, 100)
	}
	return "client " + sandbar.Quote(p.name, 100)
}

// kind is "client" or "tenant".
func (p party) kind() string {
	if p.tenant != "" {
		return "tenant"
	}
	return "client"
}

// claim is what a sandbox takes of the quotas of a tenant. A negative amount is an unlimited one.
type claim struct {
	cpus         int64 // thousandths
	memory, disk int64
	// credit is the space of the paused sandbox that is resumed, which it frees.
	credit int64
	held   bool // it is counted already, see Engine.hold
}

func claimOf(s sandbar.Spec) claim {
	return claim{cpus: thousandths(s.Limits.CPUs), memory: s.Limits.Memory, disk: s.Limits.Disk}
}

func thousandths(cpus float64) int64 {
	if cpus <= 0 {
		return -1
	}
	return int64(math.Ceil(cpus*1000 - 1e-6))
}

// usage is what a party has of its quotas. Unlimited amounts do not count.
type usage struct {
	sandboxes    int
	cpus         int64 // thousandths
	memory, disk int64
}

// add counts a sandbox n times: 1 or -1.
func (u *usage) add(d claim, n int) {
	u.sandboxes += n
	u.cpus += int64(n) * max(d.cpus, 0)
	u.memory += int64(n) * max(d.memory, 0)
	u.disk += int64(n) * max(d.disk, 0)
}

// admit returns nil if the quotas of a party admit one more sandbox.
func (s *clientQueue) admit(d claim) error {
	if d.held {
		return nil
	}
	return s.fits(d, s.use)
}

// fits returns nil if the quotas of a party admit one more sandbox beside what is in use.
func (s *clientQueue) fits(d claim, used usage) error {
	l := s.quota
	if l.MaxSandboxes > 0 && used.sandboxes >= l.MaxSandboxes {
		return s.beyond("", "sandboxes", "1", strconv.Itoa(used.sandboxes), strconv.Itoa(l.MaxSandboxes), "max_sandboxes")
	}
	cpus := func(n int64) string { return strconv.FormatFloat(float64(n)/1000, 'g', -1, 64) }
	for _, r := range []struct {
		name, setting              string
		asked, used, allowed, free int64
		show                       func(int64) string
	}{
		{"cpus", "cpus", d.cpus, used.cpus, thousandths(l.CPUs), 0, cpus},
		{"memory", "memory", d.memory, used.memory, l.Memory, 0, showBytes},
		{"disk", "disk", d.disk, used.disk, l.Disk, d.credit, showBytes},
	} {
		switch {
		case r.allowed <= 0:
		case r.asked < 0:
			return &sandbar.Error{Code: sandbar.Invalid, Field: "limits." + r.name,
				Message: s.party.String() + " has a quota of " + r.show(r.allowed) + " for " + r.name + ", so a sandbox without this limit is not possible",
				Fix:     "ask for limits." + r.name + ", or let the operator set its default; `sandbar doctor` says if the driver cannot enforce it"}
		case r.used-r.free+r.asked > r.allowed:
			return s.beyond("limits."+r.name, r.name, r.show(r.asked), r.show(r.used), r.show(r.allowed), r.setting)
		}
	}
	return nil
}

// beyond is the error of a request that exceeds a quota.
func (s *clientQueue) beyond(field, what, asked, used, allowed, setting string) error {
	return &sandbar.Error{Code: sandbar.Exhausted, Field: field, RetryAfter: time.Second,
		Message: s.party.String() + " exceeds its quota of " + what + ": asked " + asked + ", in use " + used + ", allowed " + allowed,
		Fix:     "stop or remove sandboxes, ask for less, or let the operator raise " + setting + " of this tenant"}
}

// uncount frees what the ticket of an execution that has ended takes of the quotas, before the
// sandbox is removed, so that a tenant can use its whole quota in sequence.
func (t *ticket) uncount() {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	t.free()
}

// free implements uncount. q.mu is held.
func (t *ticket) free() {
	if t.counted {
		t.counted = false
		t.client.use.add(t.claim, -1)
	}
}

// addDisk counts the space of a paused sandbox; a negative amount frees it.
func (q *queue) addDisk(c sandbar.Client, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.partyOf(c).use.disk += bytes
}

// keepDisk makes the space of a sandbox's state count in place of its limit. undo reverts that.
// Exhausted: the state is larger than the quota allows.
func (t *ticket) keepDisk(bytes int64) (undo func(), err error) {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	s, before := t.client, max(t.claim.disk, 0)
	if s.quota.Disk > 0 && s.use.disk-before+bytes > s.quota.Disk {
		return nil, s.beyond("limits.disk", "disk", showBytes(bytes), showBytes(s.use.disk-before), showBytes(s.quota.Disk), "disk")
	}
	s.use.disk += bytes - before
	old := t.claim.disk
	t.claim.disk = 0
	return func() {
		t.q.mu.Lock()
		defer t.q.mu.Unlock()
		s.use.disk -= bytes - before
		t.claim.disk = old
	}, nil
}

// SetTenants replaces Config.Tenants. Sandboxes of a tenant continue and count. Invalid: a quota is
// negative; then nothing changes.
func (e *Engine) SetTenants(tenants map[string]TenantLimits) error {
	if err := checkTenants(tenants); err != nil {
		return err
	}
	e.limiting.Lock()
	defer e.limiting.Unlock()
	e.cfg.Tenants = maps.Clone(tenants)
	e.applyLimits()
	return nil
}

func checkTenants(tenants map[string]TenantLimits) error {
	for name, l := range tenants {
		switch {
		case name == "":
			return badConfig("tenants", "holds a quota of the default tenant, which has the limits of its clients")
		case l.MaxSandboxes < 0 || !(l.CPUs >= 0) || l.Memory < 0 || l.Disk < 0 || !(l.Rate >= 0) || l.Burst < 0:
			return badConfig("tenants", "holds a negative quota for "+sandbar.Quote(name, 100))
		}
	}
	return nil
}

// ClientStats returns the load of those clients and tenants that the caller in ctx sees and that
// have had a request, sorted by tenant and name.
func (e *Engine) ClientStats(ctx context.Context) []ClientStats {
	c, own := callerOf(ctx)
	e.queue.mu.Lock()
	defer e.queue.mu.Unlock()
	all := []ClientStats{}
	for p, s := range e.queue.clients {
		if own || c.Sees(sandbar.Client{Tenant: p.tenant}, "") {
			all = append(all, ClientStats{Name: p.name, Tenant: p.tenant, Sandboxes: s.taken - s.oneShots, Active: s.oneShots, Queued: s.waiting, Memory: s.use.memory})
		}
	}
	slices.SortFunc(all, func(a, b ClientStats) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// StatsOf is Stats of what the caller in ctx sees: for a tenant its own load, and as Capacity its
// quota.
func (e *Engine) StatsOf(ctx context.Context) Stats {
	c, own := callerOf(ctx)
	if own || c.Operator() {
		return e.Stats()
	}
	s := Stats{Sandboxes: len(e.List(ctx)), Capacity: e.cfg.MaxSandboxes}
	e.queue.mu.Lock()
	defer e.queue.mu.Unlock()
	if p := e.queue.clients[partyOf(c)]; p != nil {
		s.Active, s.Queued = p.oneShots, p.waiting
		if p.quota.MaxSandboxes > 0 {
			s.Capacity = p.quota.MaxSandboxes
		}
	}
	return s
}
