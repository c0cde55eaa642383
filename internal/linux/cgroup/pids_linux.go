package cgroup

import "strconv"

// SetPIDs changes the limit of processes and threads of the group. It does nothing if no hierarchy
// has the pids controller.
func (g *Group) SetPIDs(n int64) error {
	h := g.m.hierarchyOf(pids)
	if h == nil {
		return nil
	}
	return kernelError("change the limit of processes of "+g.name, g.m.sys.WriteFile(g.dir(h)+"/pids.max", strconv.FormatInt(n, 10)))
}
