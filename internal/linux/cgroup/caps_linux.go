package cgroup

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar"
)

// Caps is what groups can hold and count on this host.
type Caps struct {
	// Memory, CPUs, CPUShares and PIDs tell how each limit is held:
	// EnforcedCgroup2, EnforcedCgroup1 or EnforcedNone.
	Memory, CPUs, CPUShares, PIDs sandbar.Enforcement
	// SwapAccounted: the memory limit covers swap.
	SwapAccounted bool
	// MemoryExact: the memory limit covers all that a sandbox can hold, since
	// swap is accounted or there is none. False when Memory is EnforcedNone.
	MemoryExact bool
	// OOMCounted: Stats.OOMKills is the kernel's counter.
	OOMCounted bool
	// PeakCounted: Stats.MemoryPeak is the kernel's high-water mark.
	PeakCounted bool
	// CPUCounted: Stats.CPUTime covers every process that was in the group.
	CPUCounted bool
	// AtomicKill: the kernel kills a group as a whole (version 2, Linux 5.14).
	AtomicKill bool
	// Notes are sentences for an operator: what is missing, why, what to do.
	Notes []string
}

// Any reports whether groups can be made at all.
func (c Caps) Any() bool {
	return slices.ContainsFunc([]sandbar.Enforcement{c.Memory, c.CPUs, c.PIDs},
		func(e sandbar.Enforcement) bool { return e != sandbar.EnforcedNone })
}

// Caps returns what was found out by Detect.
func (m *Manager) Caps() Caps {
	c := m.caps
	c.Notes = slices.Clone(c.Notes)
	return c
}

func (m *Manager) findCaps() Caps {
	c := Caps{
		Memory: m.enforced(memory), CPUs: m.enforced(cpu), CPUShares: m.enforced(cpu), PIDs: m.enforced(pids),
		CPUCounted: m.hierarchyOf(cpuacct) != nil || m.version2() != nil,
	}
	if h := m.version2(); h != nil {
		c.AtomicKill = m.sys.Readable(h.parent + "/cgroup.kill")
	}
	for _, ctl := range m.controllers {
		if ctl.Version == 0 {
			c.Notes = append(c.Notes, sentence("control group controller "+ctl.Name+" cannot be used: "+ctl.Reason, ctl.Fix))
		}
	}
	if h := m.hierarchyOf(memory); h != nil {
		m.memoryCaps(h, &c)
	}
	return c
}

func (m *Manager) memoryCaps(h *hierarchy, c *Caps) {
	var swap, oom, peak string
	if h.version == 1 {
		swap, oom, peak = "memory.memsw.limit_in_bytes", "memory.oom_control", "memory.max_usage_in_bytes"
	} else {
		swap, oom, peak = "memory.swap.max", "memory.events", "memory.peak"
	}
	c.SwapAccounted = m.sys.Readable(h.parent + "/" + swap)
	c.PeakCounted = m.sys.Readable(h.parent + "/" + peak)
	events, err := m.sys.ReadFile(h.parent + "/" + oom)
	_, counted := field(events, "oom_kill")
	c.OOMCounted = err == nil && counted
	c.MemoryExact = c.SwapAccounted || !m.swapOn()
	if !c.MemoryExact {
		c.Notes = append(c.Notes, sentence("the kernel does not account swap, so that what a sandbox has in swap is not counted against its memory",
			"boot with swapaccount=1 on the kernel's command line, or switch swap off: swapoff -a"))
	}
	if !c.OOMCounted {
		c.Notes = append(c.Notes, sentence("the kernel does not count out-of-memory kills of a group", "use Linux 4.13 or newer"))
	}
}

func sentence(what, fix string) string {
	if fix == "" {
		return what
	}
	return fmt.Sprintf("%s (%s)", what, fix)
}

func (m *Manager) enforced(controller string) sandbar.Enforcement {
	switch h := m.hierarchyOf(controller); {
	case h == nil:
		return sandbar.EnforcedNone
	case h.version == 1:
		return sandbar.EnforcedCgroup1
	}
	return sandbar.EnforcedCgroup2
}

func (m *Manager) version2() *hierarchy {
	for _, h := range m.hierarchies {
		if h.version == 2 {
			return h
		}
	}
	return nil
}

// swapOn reports whether this host swaps: /proc/swaps has a heading and a line
// for each device. What cannot be read is taken for yes.
func (m *Manager) swapOn() bool {
	b, err := m.sys.ReadFile("/proc/swaps")
	return err != nil || strings.Count(strings.TrimSpace(string(b)), "\n") > 0
}
