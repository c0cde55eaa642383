package cgroup

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// The kernel's bounds of a CPU quota (kernel/sched/core.c) and of shares.
const (
	period     = 100_000   // µs; the kernel's default
	longPeriod = 1_000_000 // µs; the maximum, for quotas too small for the default
	minQuota   = 1_000     // µs
	minShares  = 2
	maxShares  = 262_144
)

// MinCPUs is the smallest CPU limit that the kernel accepts.
const MinCPUs = float64(minQuota) / longPeriod

// setting is a file and the value to write.
type setting struct {
	controller string
	file       string
	value      string
}

// settingsV1 returns the files and values of a version 1 group, in the order in which they must be
// written. swap says that swap is accounted.
func settingsV1(l sandbar.Limits, swap bool) []setting {
	var s []setting
	if l.Memory > 0 {
		bytes := strconv.FormatInt(l.Memory, 10)
		s = append(s, setting{memory, "memory.limit_in_bytes", bytes})
		if swap {
			// memory plus swap; the kernel refuses less than the memory limit
			s = append(s, setting{memory, "memory.memsw.limit_in_bytes", bytes})
		} else {
			s = append(s, setting{memory, "memory.swappiness", "0"})
		}
	}
	if l.CPUShares > 0 {
		s = append(s, setting{cpu, "cpu.shares", strconv.FormatInt(clampShares(l.CPUShares), 10)})
	}
	if l.CPUs > 0 {
		quota, period := quota(l.CPUs)
		s = append(s, setting{cpu, "cpu.cfs_period_us", strconv.Itoa(period)},
			setting{cpu, "cpu.cfs_quota_us", strconv.Itoa(quota)})
	}
	if l.PIDs > 0 {
		s = append(s, setting{pids, "pids.max", strconv.FormatInt(l.PIDs, 10)})
	}
	return s
}

// settingsV2 returns the files and values of a version 2 group.
func settingsV2(l sandbar.Limits, swap bool) []setting {
	var s []setting
	if l.Memory > 0 {
		s = append(s, setting{memory, "memory.max", strconv.FormatInt(l.Memory, 10)})
		if swap {
			s = append(s, setting{memory, "memory.swap.max", "0"})
		}
	}
	if l.CPUShares > 0 {
		s = append(s, setting{cpu, "cpu.weight", strconv.FormatInt(weight(l.CPUShares), 10)})
	}
	if l.CPUs > 0 {
		quota, period := quota(l.CPUs)
		s = append(s, setting{cpu, "cpu.max", fmt.Sprintf("%d %d", quota, period)})
	}
	if l.PIDs > 0 {
		s = append(s, setting{pids, "pids.max", strconv.FormatInt(l.PIDs, 10)})
	}
	return s
}

// quota returns the CPU time per period, and the period, in microseconds.
func quota(cpus float64) (quota, per int) {
	per = period
	if cpus*period < minQuota {
		per = longPeriod
	}
	return max(int(cpus*float64(per)), minQuota), per
}

func clampShares(shares int64) int64 { return min(max(shares, minShares), maxShares) }

// weight converts shares of version 1 (2 to 262144) to a weight of version 2 (1 to 10000), with the
// formula of systemd and of the container runtimes.
func weight(shares int64) int64 {
	return 1 + (clampShares(shares)-minShares)*9999/(maxShares-minShares)
}

// check refuses limits that no hierarchy can enforce.
func (m *Manager) check(l sandbar.Limits) error {
	for _, c := range []struct {
		set        bool
		controller string
		field      string
	}{
		{l.Memory > 0, memory, "memory"},
		{l.CPUs > 0, cpu, "cpus"},
		{l.CPUShares > 0, cpu, "cpu_shares"},
		{l.PIDs > 0, pids, "pids"},
	} {
		if c.set && m.hierarchyOf(c.controller) == nil {
			err := sandbar.Errorf(sandbar.Unsupported, "the limit %s cannot be enforced by a control group: %s", c.field, m.reason(c.controller))
			err.Field, err.Fix = c.field, m.fix(c.controller)
			return err
		}
	}
	if l.CPUs > 0 && l.CPUs < MinCPUs {
		err := sandbar.Errorf(sandbar.Invalid, "cpus %g is less than the kernel accepts, %g", l.CPUs, MinCPUs)
		err.Field = "cpus"
		return err
	}
	return nil
}

// hierarchyOf returns the hierarchy of a controller, or nil.
func (m *Manager) hierarchyOf(controller string) *hierarchy {
	for _, h := range m.hierarchies {
		if h.has(controller) {
			return h
		}
	}
	return nil
}

func (m *Manager) controller(name string) Controller {
	for _, c := range m.controllers {
		if c.Name == name {
			return c
		}
	}
	return Controller{Name: name}
}

func (m *Manager) reason(name string) string { return m.controller(name).Reason }
func (m *Manager) fix(name string) string    { return m.controller(name).Fix }

// apply writes the limits of h's controllers to the group at dir.
func (m *Manager) apply(h *hierarchy, dir string, l sandbar.Limits) error {
	plan := settingsV1
	if h.version == 2 {
		plan = settingsV2
	}
	for _, s := range plan(l, m.caps.SwapAccounted) {
		if !h.has(s.controller) {
			continue
		}
		err := m.sys.WriteFile(dir+"/"+s.file, s.value)
		if err == unix.ENOENT && h.version == 2 && m.makeParent(h) == nil {
			// Another daemon has just created the parent and has not enabled its controllers yet.
			err = m.sys.WriteFile(dir+"/"+s.file, s.value)
		}
		if err == unix.EINVAL && s.file == "cpu.cfs_quota_us" {
			err = m.inheritQuota(h, dir, l.CPUs)
		}
		if err != nil {
			return kernelError("write "+s.value+" to "+dir+"/"+s.file, err)
		}
	}
	return nil
}

// inheritQuota handles version 1's rule that a group's quota cannot exceed that of its ancestors.
// If an ancestor's quota is at most cpus, it applies and the group gets none of its own. If no
// visible ancestor has one, the result is an error.
func (m *Manager) inheritQuota(h *hierarchy, dir string, cpus float64) error {
	for up := parentDir(dir); ; up = parentDir(up) {
		quota, err := readNumber(m.sys, up+"/cpu.cfs_quota_us")
		if err != nil {
			return unix.EINVAL // no further ancestor is visible
		}
		per, err := readNumber(m.sys, up+"/cpu.cfs_period_us")
		if err == nil && quota > 0 && per > 0 && float64(quota)/float64(per) <= cpus {
			return nil
		}
	}
}

func parentDir(dir string) string { return dir[:max(strings.LastIndexByte(dir, '/'), 0)] }

// readNumber reads a file with one number.
func readNumber(sys system, name string) (int64, error) {
	b, err := sys.ReadFile(name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// kernelError converts an errno to an Error with the operation and a Code.
func kernelError(doing string, err error) error {
	if err == nil {
		return nil
	}
	code := sandbar.Internal
	switch err {
	case unix.ENOSPC, unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE:
		code = sandbar.Exhausted // a bound of the kernel on groups or files
	case unix.EACCES, unix.EPERM, unix.EROFS, unix.ENOENT, unix.EINVAL, unix.EOPNOTSUPP:
		code = sandbar.Unsupported
	case unix.EEXIST:
		code = sandbar.Exists
	}
	return sandbar.Errorf(code, "control groups: %s: %w", doing, err)
}
