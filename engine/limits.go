package engine

import (
	"strconv"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// quantity is the type of a limit. A time.Duration is an int64.
type quantity interface{ ~int64 | ~float64 }

// inRange resolves one limit of a request: it returns def if asked is 0, and asked if that is
// within the range or equal to def. Else it returns an Invalid error with the limit's name, the
// value and the range.
func inRange[T quantity](name string, show func(T) string, asked, def, lo, hi T) (T, error) {
	switch {
	case asked == 0 || asked == def:
		return def, nil
	case asked == sandbar.Unlimited && hi == sandbar.Unlimited:
		return asked, nil
	case asked > 0 && asked >= lo && (asked <= hi || hi == sandbar.Unlimited) && !isNaN(asked):
		return asked, nil
	}
	return 0, &sandbar.Error{Code: sandbar.Invalid, Field: "limits." + name,
		Message: "limits." + name + ": " + show(asked) + " is out of range; allowed: " + span(show, lo, hi)}
}

// span writes a range as text.
func span[T quantity](show func(T) string, lo, hi T) string {
	if hi == sandbar.Unlimited {
		return show(lo) + " or more, or -1 for no limit"
	}
	return show(lo) + " to " + show(hi)
}

// showBytes writes a size exactly, in the largest unit that divides it.
func showBytes(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + " " + u.name
		}
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

// showNumber writes a plain number.
func showNumber[T int64 | float64](n T) string {
	return strconv.FormatFloat(float64(n), 'f', -1, 64)
}

// resolveLimits returns l with every unset field taken from d, the defaults of its driver, or the
// first Invalid error. If half is true, the default of Disk is halfOf the resolved Memory.
func (c *Config) resolveLimits(l, d sandbar.Limits, half bool) (sandbar.Limits, error) {
	lo, hi := c.Min, c.Max
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	size := func(name string, asked, def, lo, hi int64) int64 {
		v, err := inRange(name, showBytes, asked, def, lo, hi)
		keep(err)
		return v
	}
	number := func(name string, asked, def, lo, hi int64) int64 {
		v, err := inRange(name, showNumber[int64], asked, def, lo, hi)
		keep(err)
		return v
	}
	cpus, err := inRange("cpus", showNumber[float64], l.CPUs, d.CPUs, lo.CPUs, hi.CPUs)
	keep(err)
	timeout, err := inRange("timeout", time.Duration.String, l.Timeout, d.Timeout, lo.Timeout, hi.Timeout)
	keep(err)
	memory := size("memory", l.Memory, d.Memory, lo.Memory, hi.Memory)
	if half {
		d.Disk = max(halfOf(memory), lo.Disk)
		if hi.Disk != sandbar.Unlimited {
			d.Disk = min(d.Disk, hi.Disk)
		}
	}
	return sandbar.Limits{
		Memory:    memory,
		CPUs:      cpus,
		CPUShares: number("cpu_shares", l.CPUShares, d.CPUShares, lo.CPUShares, hi.CPUShares),
		PIDs:      number("pids", l.PIDs, d.PIDs, lo.PIDs, hi.PIDs),
		Disk:      size("disk", l.Disk, d.Disk, lo.Disk, hi.Disk),
		Inodes:    number("inodes", l.Inodes, d.Inodes, lo.Inodes, hi.Inodes),
		Files:     number("files", l.Files, d.Files, lo.Files, hi.Files),
		Timeout:   timeout,
		Output:    size("output", l.Output, d.Output, lo.Output, hi.Output),
	}, first
}

// limit is one limit that a driver enforces.
type limit struct {
	name     string
	enforced bool // the driver has a mechanism for it
	required bool // without it one sandbox can exhaust the host
	isSet    func(sandbar.Limits) bool
	clear    func(*sandbar.Limits)
}

// driverLimits lists the limits that a driver enforces, with the driver's mechanisms. isSet reports
// whether a limit is set; clear removes it.
func driverLimits(e sandbar.Enforcements) []limit {
	held := func(m sandbar.Enforcement) bool { return m != sandbar.EnforcedNone && m != "" }
	return []limit{
		{"memory", held(e.Memory), true, func(l sandbar.Limits) bool { return l.Memory > 0 }, func(l *sandbar.Limits) { l.Memory = sandbar.Unlimited }},
		{"cpus", held(e.CPUs), false, func(l sandbar.Limits) bool { return l.CPUs > 0 }, func(l *sandbar.Limits) { l.CPUs = sandbar.Unlimited }},
		// CPUShares is a weight and has no Unlimited; clear makes it unset.
		{"cpu_shares", held(e.CPUShares), false, func(l sandbar.Limits) bool { return l.CPUShares > 0 }, func(l *sandbar.Limits) { l.CPUShares = 0 }},
		{"pids", held(e.PIDs), true, func(l sandbar.Limits) bool { return l.PIDs > 0 }, func(l *sandbar.Limits) { l.PIDs = sandbar.Unlimited }},
		{"disk", held(e.Disk), false, func(l sandbar.Limits) bool { return l.Disk > 0 }, func(l *sandbar.Limits) { l.Disk = sandbar.Unlimited }},
		{"inodes", held(e.Inodes), false, func(l sandbar.Limits) bool { return l.Inodes > 0 }, func(l *sandbar.Limits) { l.Inodes = sandbar.Unlimited }},
		{"files", held(e.Files), false, func(l sandbar.Limits) bool { return l.Files > 0 }, func(l *sandbar.Limits) { l.Files = sandbar.Unlimited }},
	}
}
