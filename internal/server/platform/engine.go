package platform

import (
	"errors"
	"log/slog"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/importpolicy"
)

// NewEngine creates the engine of the settings. It takes ownership of the drivers and closes them
// on an error. adjust, if not nil, can change the engine's Config.
func NewEngine(cfg *config.Config, ds Drivers, log *slog.Logger, adjust func(*engine.Config)) (*engine.Engine, error) {
	languages, err := cfg.Catalogue()
	if err != nil {
		return nil, errors.Join(err, ds.Close())
	}
	c := engine.Config{
		Driver: ds.First, Languages: languages, Logger: log,
		Default: enforceableDefaults(cfg, ds.First.Caps()), Min: cfg.Limits.Min, Max: cfg.Limits.Max,
		MaxSandboxes: int(cfg.MaxSandboxes), MaxQueue: int(cfg.MaxQueue), QueueTimeout: cfg.QueueTimeout,
		MaxCode: cfg.MaxCode, MaxEnv: cfg.MaxEnv, MaxFile: cfg.MaxFile,
		Grace: cfg.Grace, IdleTimeout: cfg.IdleTimeout, MaxLifetime: cfg.MaxLifetime,
		ReplayBytes: int(cfg.ReplayBytes), KeepFinished: int(cfg.KeepFinished),
		AllowDegraded: cfg.AllowDegraded,
	}
	for _, d := range ds.Others {
		c.ExtraDrivers = append(c.ExtraDrivers, engine.ExtraDriver{Driver: d, Default: enforceableDefaults(cfg, d.Caps())})
	}
	if cfg.Code.BlockImports {
		c.Vet = importpolicy.Imports(cfg.Code.BlockedImports)
	}
	if adjust != nil {
		adjust(&c)
	}
	e, err := engine.New(c)
	if err != nil {
		return nil, errors.Join(err, ds.Close())
	}
	return e, nil
}

// enforceableDefaults returns the default limits. For a driver without a boundary, or with programs
// on another machine, it drops the built-in defaults of memory and processes that the driver cannot
// enforce: the engine would refuse them, since they protect the host from untrusted programs, but
// an operator who chooses such a driver runs trusted ones, or none on this host. A limit that the
// operator or the caller sets explicitly is still refused.
func enforceableDefaults(cfg *config.Config, caps driver.Caps) sandbar.Limits {
	l := cfg.Limits.Default
	if caps.Boundary != driver.BoundaryNone && caps.Boundary != driver.BoundaryRemote {
		return l
	}
	if caps.Enforced.Memory == sandbar.EnforcedNone && cfg.Origin("limits.default.memory") == "" {
		l.Memory = sandbar.Unlimited
	}
	if caps.Enforced.PIDs == sandbar.EnforcedNone && cfg.Origin("limits.default.pids") == "" {
		l.PIDs = sandbar.Unlimited
	}
	return l
}

// OwnLimits removes the ranges that the operator has not set: their defaults protect a daemon from
// its callers, and here the caller owns the process.
func OwnLimits(cfg *config.Config, c *engine.Config) {
	unset := func(name string) bool { return cfg.Origin("limits.max."+name) == "" }
	for name, limit := range map[string]*int64{"memory": &c.Max.Memory, "pids": &c.Max.PIDs, "disk": &c.Max.Disk,
		"inodes": &c.Max.Inodes, "files": &c.Max.Files, "output": &c.Max.Output} {
		if unset(name) {
			*limit = sandbar.Unlimited
		}
	}
	if unset("cpus") {
		c.Max.CPUs = sandbar.Unlimited
	}
	if unset("timeout") {
		c.Max.Timeout = sandbar.Unlimited
	}
}
