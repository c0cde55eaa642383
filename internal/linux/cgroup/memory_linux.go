package cgroup

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// SetMemory gives a group that has no limit of memory, or a larger one, a limit
// of n bytes, everything in the group counted, and begins to count its peak anew
// where the kernel can. It does nothing where no group holds that limit.
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
