package engine

import (
	"log/slog"
	"math"
	"runtime"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine/lang"
)

// The values that New puts into zero fields of Config.Default, Min and Max.
var (
	builtinDefault = sandbar.Limits{
		Memory: 256 << 20, CPUs: sandbar.Unlimited, CPUShares: 512, PIDs: 128,
		Inodes: 65536, Files: 1024, // Disk: see halfOf
		Timeout: 30 * time.Second, Output: 1 << 20,
	}
	builtinMin = sandbar.Limits{
		Memory: 16 << 20, CPUs: 0.01, CPUShares: 2, PIDs: 4,
		Disk: 64 << 10, Inodes: 16, Files: 16,
		Timeout: time.Millisecond, Output: 0,
	}
	builtinMax = sandbar.Limits{
		Memory: 1 << 30, CPUs: float64(runtime.NumCPU()), CPUShares: 262144, PIDs: 4096,
		Disk: 4 << 30, Inodes: 1 << 20, Files: 65536,
		Timeout: 300 * time.Second, Output: 64 << 20,
	}
)

// complete returns c with its zero fields filled, or an Invalid error naming
// the field that contradicts another.
func (c Config) complete() (Config, error) {
	if c.Driver == nil {
		return c, sandbar.Errorf(sandbar.Invalid, "the engine needs a driver, and Config.Driver is nil")
	}
	if c.Languages == nil {
		l, err := lang.New(lang.Default()...)
		if err != nil {
			return c, err
		}
		c.Languages = l
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	fill(&c.MaxSandboxes, 64)
	fill(&c.MaxQueue, 1024)
	fill(&c.QueueTimeout, 60*time.Second)
	fill(&c.MaxCode, 1<<20)
	fill(&c.MaxEnv, 64<<10)
	fill(&c.MaxFile, 16<<30)
	fill(&c.Grace, 500*time.Millisecond)
	fill(&c.IdleTimeout, 10*time.Minute)
	fill(&c.MaxLifetime, 24*time.Hour)
	fill(&c.ReplayBytes, 1<<20)
	fill(&c.KeepFinished, 64)
	fill(&c.ReadyMemory, 512<<20)
	if c.MaxSandboxes < 0 {
		return c, badConfig("max_sandboxes", "must be at least 1")
	}
	if c.MaxCode < 0 || c.MaxEnv < 0 {
		return c, badConfig("max_code", "max_code and max_env must be at least 1 byte")
	}
	if c.MaxFile < 0 {
		return c, badConfig("max_file", "must be at least 1 byte")
	}
	if c.ReplayBytes < 0 {
		return c, badConfig("replay_bytes", "must be at least 1 byte")
	}
	if err := checkClients(c.Clients); err != nil {
		return c, err
	}
	c.MaxQueue = max(c.MaxQueue, 0)
	c.KeepFinished = max(c.KeepFinished, 0)
	return c, c.completeLimits()
}

func badConfig(field, what string) error {
	return &sandbar.Error{Code: sandbar.Invalid, Field: field, Message: "configuration: " + field + " " + what}
}

func fill[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// halfOf is the disk of a sandbox for which nobody set one. Files are in its memory:
// so it meets the end of the disk, which programs are told, before that of the memory,
// at which they are killed.
func halfOf(memory int64) int64 {
	if memory == sandbar.Unlimited {
		return 256 << 20
	}
	return memory / 2
}

// completeLimits fills Default, Min and Max. What the operator wrote stands,
// or is an error; what is built in gives way to it.
func (c *Config) completeLimits() error {
	d, lo, hi := &c.Default, &c.Min, &c.Max
	bd, bl, bh := builtinDefault, builtinMin, builtinMax
	c.halfDisk = d.Disk == 0
	for _, err := range []error{
		settle("memory", showBytes, &d.Memory, &lo.Memory, &hi.Memory, bd.Memory, bl.Memory, bh.Memory),
		settle("cpus", showNumber[float64], &d.CPUs, &lo.CPUs, &hi.CPUs, bd.CPUs, bl.CPUs, bh.CPUs),
		settle("cpu_shares", showNumber[int64], &d.CPUShares, &lo.CPUShares, &hi.CPUShares, bd.CPUShares, bl.CPUShares, bh.CPUShares),
		settle("pids", showNumber[int64], &d.PIDs, &lo.PIDs, &hi.PIDs, bd.PIDs, bl.PIDs, bh.PIDs),
		settle("disk", showBytes, &d.Disk, &lo.Disk, &hi.Disk, halfOf(d.Memory), bl.Disk, bh.Disk),
		settle("inodes", showNumber[int64], &d.Inodes, &lo.Inodes, &hi.Inodes, bd.Inodes, bl.Inodes, bh.Inodes),
		settle("files", showNumber[int64], &d.Files, &lo.Files, &hi.Files, bd.Files, bl.Files, bh.Files),
		settle("timeout", time.Duration.String, &d.Timeout, &lo.Timeout, &hi.Timeout, bd.Timeout, bl.Timeout, bh.Timeout),
		settle("output", showBytes, &d.Output, &lo.Output, &hi.Output, bd.Output, bl.Output, bh.Output),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// settle makes one limit's default and range consistent.
func settle[T quantity](name string, show func(T) string, def, lo, hi *T, bdef, blo, bhi T) error {
	for _, v := range []T{*def, *lo, *hi} {
		if notANumber(v) || (v < 0 && v != sandbar.Unlimited) {
			return badConfig("limits."+name, "holds "+show(v)+"; a limit is positive, or -1 for none")
		}
	}
	if *lo < 0 {
		return badConfig("limits."+name, "has no limit as its minimum; give a number")
	}
	top := func(v T) bool { return v == sandbar.Unlimited }
	givenLo, givenHi, givenDef := *lo != 0, *hi != 0, *def != 0
	fill(hi, bhi)
	fill(lo, blo)
	if !givenLo && !top(*hi) {
		*lo = min(*lo, *hi)
	}
	if !givenHi && *lo > *hi {
		*hi = *lo
	}
	if !top(*hi) && *lo > *hi {
		return badConfig("limits."+name, "has the minimum "+show(*lo)+" above its maximum "+show(*hi))
	}
	if givenDef {
		if top(*def) {
			return nil // no limit unless the caller sets one: the operator's own decision
		}
		if *def < *lo || (!top(*hi) && *def > *hi) {
			return badConfig("limits."+name, "has the default "+show(*def)+" outside its range, which is "+span(show, *lo, *hi))
		}
		return nil
	}
	*def = bdef
	if !top(*def) {
		*def = max(*def, *lo)
		if !top(*hi) {
			*def = min(*def, *hi)
		}
	}
	return nil
}

func notANumber[T quantity](v T) bool {
	f := float64(v)
	return math.IsNaN(f) || math.IsInf(f, 0)
}

// warn tells the operator which of his defaults a driver does not hold.
func (b backend) warn(c Config) {
	for _, l := range owned(b.caps.Enforced) {
		if !l.held && l.of(b.def) {
			c.Logger.Warn("this driver does not hold a limit on this host", "driver", b.caps.Name, "limit", l.name,
				"allow_degraded", c.AllowDegraded, "next", "sandbar doctor")
		}
	}
}
