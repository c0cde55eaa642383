package engine

import (
	"cmp"
	"slices"
)

// ClientStats is the load of one client of the default tenant, or of another tenant with all its
// tokens, at one moment.
type ClientStats struct {
	Tenant    string // "" for the default tenant
	Name      string // of the client; "" for the daemon's own token, and for a tenant
	Sandboxes int    // slots that it has: executions and long-lived sandboxes
	Queued    int    // requests that wait for a slot
	Memory    int64  // the memory limits of its sandboxes and waiting requests together, in bytes
}

// ClientStats returns the load of all clients and tenants that have had a request, ordered by their
// names.
func (e *Engine) ClientStats() []ClientStats {
	q := e.queue
	q.mu.Lock()
	all := make([]ClientStats, 0, len(q.clients))
	for p, s := range q.clients {
		all = append(all, ClientStats{Tenant: p.tenant, Name: p.name, Sandboxes: s.taken, Queued: s.waiting, Memory: s.use.memory})
	}
	q.mu.Unlock()
	slices.SortFunc(all, func(a, b ClientStats) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// DriverStats is the load of one driver at one moment.
type DriverStats struct {
	Name      string
	Sandboxes int // long-lived sandboxes, and executions that have a slot and no result yet
	Ready     int // prestarted sandboxes that wait for a job
}

// DriverStats returns the load of all drivers, in the order of Drivers.
func (e *Engine) DriverStats() []DriverStats {
	all := make([]DriverStats, len(e.backends))
	index := map[string]int{}
	for i, b := range e.backends {
		all[i].Name, index[b.caps.Name] = b.caps.Name, i
	}
	e.mu.Lock()
	for _, s := range e.sandboxes {
		if s.live() {
			all[index[s.spec.Driver]].Sandboxes++
		}
	}
	executions := make([]*Execution, 0, len(e.executions))
	for x := range e.executions {
		executions = append(executions, x)
	}
	e.mu.Unlock()
	for _, x := range executions {
		x.mu.Lock()
		if x.state == hasSlot {
			all[index[x.plan.spec.Driver]].Sandboxes++
		}
		x.mu.Unlock()
	}
	if e.pools != nil {
		e.pools.mu.Lock()
		defer e.pools.mu.Unlock()
		for _, p := range e.pools.list {
			all[index[p.spec.Driver]].Ready += len(p.ready)
		}
	}
	return all
}
