package cgroup

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar"
)

// Caps says what the cgroups of this host can enforce and count.
type Caps struct {
	// Memory, CPUs, CPUShares and PIDs are the mechanism of each limit: EnforcedCgroup2,
	// EnforcedCgroup1 or EnforcedNone.
	Memory, CPUs, CPUShares, PIDs sandbar.Enforcement
	// SwapAccounted says that the memory limit includes swap.
	SwapAccounted bool
	// MemoryExact says that the memory limit covers all memory of a sandbox: swap is accounted, or
	// the host has none. False if Memory is EnforcedNone.
	MemoryExact bool
	// OOMCounted says that Stats.OOMKills is the kernel's counter.
	OOMCounted bool
	// PeakCounted says that Stats.MemoryPeak is the kernel's high-water mark.
	PeakCounted bool
	// PeakResets says that Counters.ResetPeak works: version 1, or Linux 6.12.
	PeakResets bool
	// CPUCounted says that Stats.CPUTime covers every process that was in the group.
	CPUCounted bool
	// AtomicKill says that the kernel can kill a group as a whole (cgroup.kill: version 2, Linux
	// 5.14).
	AtomicKill bool
	// Notes are sentences for an operator: what is missing, why, and how to fix it.
	Notes []string
}

// Any reports whether groups can be created at all.
func (c Caps) Any() bool {
	return slices.ContainsFunc([]sandbar.Enforcement{c.Memory, c.CPUs, c.PIDs},
		func(e sandbar.Enforcement) bool { return e != sandbar.EnforcedNone })
}

// Caps returns the result of Detect.
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
	// In version 2 a write concerns the descriptor that it is made with.
	c.PeakResets = c.PeakCounted && (h.version == 1 || m.sys.WriteFile(h.parent+"/"+peak, "0") == nil)
	events, err := m.sys.ReadFile(h.parent + "/" + oom)
	_, counted := field(events, "oom_kill")
	c.OOMCounted = err == nil && counted
	c.MemoryExact = c.SwapAccounted || !m.swapOn()
	if !c.MemoryExact {
		c.Notes = append(c.Notes, sentence("the kernel does not account swap, so a sandbox's swapped-out memory does not count towards its memory limit",
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

// swapOn reports whether the host has swap: /proc/swaps has a heading and one line per device. If
// the file cannot be read, it reports true.
func (m *Manager) swapOn() bool {
	b, err := m.sys.ReadFile("/proc/swaps")
	return err != nil || strings.Count(strings.TrimSpace(string(b)), "\n") > 0
}
