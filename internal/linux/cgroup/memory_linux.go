package cgroup

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// SetMemory sets a memory limit of n bytes on a group that has none or a larger one, and resets the
// kernel's peak counter if it can. It does nothing if no hierarchy has the memory controller.
func (g *Group) SetMemory(n int64) error {
	h := g.m.hierarchyOf(memory)
	if h == nil || n <= 0 {
		return nil
	}
	if err := g.m.apply(h, g.dir(h), sandbar.Limits{Memory: n}); err != nil {
		return err
	}
	if h.version != 1 {
		return nil
	}
	for _, file := range []string{"/memory.max_usage_in_bytes", "/memory.memsw.max_usage_in_bytes"} {
		if err := g.m.sys.WriteFile(g.dir(h)+file, strconv.Itoa(0)); err != nil && err != unix.ENOENT {
			return kernelError("count the peak of "+g.name+" anew", err)
		}
	}
	return nil
}
