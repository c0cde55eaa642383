package engine

import (
	"errors"
	"log/slog"
	"math"
	"runtime"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine/lang"
)

// The values that New sets in zero fields of Config.Default, Min and Max.
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

// complete returns c with its zero fields set, or an Invalid error that names the field that
// contradicts another.
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
	setDefault(&c.MaxSandboxes, 64)
	setDefault(&c.MaxQueue, 1024)
	setDefault(&c.QueueTimeout, 60*time.Second)
	setDefault(&c.MaxCode, 1<<20)
	setDefault(&c.MaxEnv, 64<<10)
	setDefault(&c.MaxFile, 16<<30)
	setDefault(&c.Grace, 500*time.Millisecond)
	setDefault(&c.IdleTimeout, 10*time.Minute)
	setDefault(&c.MaxLifetime, 24*time.Hour)
	setDefault(&c.ReplayBytes, 1<<20)
	setDefault(&c.KeepFinished, 64)
	setDefault(&c.ReadyMemory, 512<<20)
	setDefault(&c.MaxPaused, 64)
	setDefault(&c.MaxPausedBytes, 16<<30)
	setDefault(&c.PausedShare, 25)
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
	if c.PausedShare > 100 {
		return c, badConfig("paused_share", "must be at most 100 percent")
	}
	if err := errors.Join(checkClients(c.Clients), checkTenants(c.Tenants)); err != nil {
		return c, err
	}
	c.MaxQueue = max(c.MaxQueue, 0)
	c.KeepFinished = max(c.KeepFinished, 0)
	return c, c.completeLimits()
}

func badConfig(field, what string) error {
	return &sandbar.Error{Code: sandbar.Invalid, Field: field, Message: "configuration: " + field + " " + what}
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// halfOf returns the default disk size for a memory size. Files use the sandbox's memory. With half
// of it as disk, a program gets the error ENOSPC before the kernel kills it for memory.
func halfOf(memory int64) int64 {
	if memory == sandbar.Unlimited {
		return 256 << 20
	}
	return memory / 2
}

// completeLimits sets the zero fields of Default, Min and Max. Values of the operator are kept or
// are an error. Built-in values move into the range of the operator's values.
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

// settle makes the default and the range of one limit consistent.
func settle[T quantity](name string, show func(T) string, def, lo, hi *T, bdef, blo, bhi T) error {
	for _, v := range []T{*def, *lo, *hi} {
		if isNaN(v) || (v < 0 && v != sandbar.Unlimited) {
			return badConfig("limits."+name, "holds "+show(v)+"; a limit is positive, or -1 for none")
		}
	}
	if *lo < 0 {
		return badConfig("limits."+name, "has no limit as its minimum; give a number")
	}
	top := func(v T) bool { return v == sandbar.Unlimited }
	givenLo, givenHi, givenDef := *lo != 0, *hi != 0, *def != 0
	setDefault(hi, bhi)
	setDefault(lo, blo)
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
			return nil // the operator allows no limit as the default
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

func isNaN[T quantity](v T) bool {
	f := float64(v)
	return math.IsNaN(f) || math.IsInf(f, 0)
}

// warn logs each default limit that the driver does not enforce.
func (b backend) warn(c Config) {
	for _, l := range driverLimits(b.caps.Enforced) {
		if !l.enforced && l.isSet(b.defaults) {
			c.Logger.Warn("this driver does not hold a limit on this host", "driver", b.caps.Name, "limit", l.name,
				"allow_degraded", c.AllowDegraded, "next", "sandbar doctor")
		}
	}
}

// ageMargin is more than any operation at the end of a sandbox takes.
const ageMargin = time.Hour

// MaxAge returns how long a sandbox exists at most with this Config.MaxLifetime: a ready one waits
// at most that long, and then lives as long. 0: no limit.
func MaxAge(lifetime time.Duration) time.Duration {
	if lifetime <= 0 {
		return 0
	}
	return 2*lifetime + ageMargin
}
