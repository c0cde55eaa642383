package engine

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
