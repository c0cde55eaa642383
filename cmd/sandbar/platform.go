package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/config"
)

// setting is a flag that gives a setting of the configuration.
type setting struct{ flag, path, help string }

var (
	driverSetting = setting{"driver", "driver", "what runs the program: auto, or a driver that \"sandbar doctor\" lists"}
	listenSetting = setting{"listen", "listen", "address to listen on, HOST:PORT or unix:/path"}
)

// settings adds flags for settings, and --config.
func (a *app) settings(cmd *cobra.Command, settings ...setting) {
	cmd.Flags().String("config", "", "configuration `file`")
	for _, s := range settings {
		cmd.Flags().String(s.flag, "", s.help)
	}
	if cmd.Flags().Lookup(driverSetting.flag) != nil {
		cmd.RegisterFlagCompletionFunc(driverSetting.flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return append([]string{config.AutoDriver}, driverNames(a.factories)...), cobra.ShellCompDirectiveNoFileComp
		})
	}
}

// configuration loads the settings of file, variables and the given flags.
func (a *app) configuration(cmd *cobra.Command, settings ...setting) (*config.Config, error) {
	file := cmd.Flags().Lookup("config")
	if file.Changed && file.Value.String() == "" {
		return nil, usagef(cmd, "--config: the name is empty (allowed: the path of a YAML file)")
	}
	in := config.Input{File: file.Value.String(), Environ: a.environ, Drivers: driverSettings(a.factories), Foreign: foreignIII}
	paths := map[string]string{}
	for _, s := range settings {
		paths[s.flag] = s.path
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if path, ok := paths[f.Name]; ok {
			in.Flags = append(in.Flags, config.Flag{Path: path, Name: "--" + f.Name, Value: f.Value.String()})
		}
	})
	return config.Load(in)
}

// driverSettings is the drivers as far as settings go.
func driverSettings(factories []driver.Factory) []config.Driver {
	var out []config.Driver
	for _, f := range factories {
		out = append(out, config.Driver{Name: f.Name, Summary: f.Summary, Options: f.Options})
	}
	return out
}

func driverNames(factories []driver.Factory) []string {
	var names []string
	for _, f := range factories {
		names = append(names, f.Name)
	}
	return names
}

// newDriver makes the driver that the configuration names. "auto" is the first
// with a boundary that works here; it is never one without.
func (a *app) newDriver(cfg *config.Config, log *slog.Logger) (driver.Driver, error) {
	if err := config.PrivateDir(cfg.RuntimeDir, "runtime_dir"); err != nil {
		return nil, err
	}
	if cfg.Driver != config.AutoDriver {
		for _, f := range a.factories {
			if f.Name == cfg.Driver {
				return f.New(host(cfg, f.Name, log))
			}
		}
		return nil, sandbar.Errorf(sandbar.Invalid, "there is no driver %s", quote(cfg.Driver))
	}
	var errs []error
	for _, f := range a.isolating {
		d, err := f.New(host(cfg, f.Name, log))
		if err == nil {
			return d, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Field: "driver",
			Message: "no driver of this build isolates programs on " + runtime.GOOS,
			Fix:     "use a Linux host; for trusted code only, --driver local runs it without isolation"}
	}
	return nil, errors.Join(errs...)
}

func host(cfg *config.Config, name string, log *slog.Logger) driver.Host {
	return driver.Host{RuntimeDir: cfg.RuntimeDir, Logger: log.With("driver", name), Options: cfg.Drivers[name],
		Images: newImages(cfg), Outbound: outbound(cfg.Network)}
}

// newEngine makes the platform from the configuration and a driver, which it
// owns from then on. adjust may change what the configuration says.
func newEngine(cfg *config.Config, d driver.Driver, log *slog.Logger, adjust func(*engine.Config)) (*engine.Engine, error) {
	languages, err := cfg.Catalogue()
	if err != nil {
		return nil, errors.Join(err, closeDriver(d))
	}
	c := engine.Config{
		Driver: d, Languages: languages, Logger: log,
		Default: cfg.Limits.Default, Min: cfg.Limits.Min, Max: cfg.Limits.Max,
		MaxSandboxes: int(cfg.MaxSandboxes), MaxQueue: int(cfg.MaxQueue), QueueTimeout: cfg.QueueTimeout,
		MaxCode: cfg.MaxCode, MaxEnv: cfg.MaxEnv,
		Grace: cfg.Grace, IdleTimeout: cfg.IdleTimeout, MaxLifetime: cfg.MaxLifetime,
		ReplayBytes: int(cfg.ReplayBytes), KeepFinished: int(cfg.KeepFinished),
		AllowDegraded: cfg.AllowDegraded,
	}
	dropUnheldDefaults(&c, cfg, d.Caps())
	if adjust != nil {
		adjust(&c)
	}
	e, err := engine.New(c)
	if err != nil {
		return nil, errors.Join(err, closeDriver(d))
	}
	return e, nil
}

// dropUnheldDefaults takes the built-in defaults for memory and processes away
// where a driver without a boundary was chosen. The engine refuses a default of
// these that is not held, because it protects the host from a stranger's
// program; whoever chooses such a driver has said that there is no stranger. A
// limit that the operator or the caller set himself is still refused.
func dropUnheldDefaults(c *engine.Config, cfg *config.Config, caps driver.Caps) {
	if caps.Boundary != driver.BoundaryNone {
		return
	}
	if caps.Enforced.Memory == sandbar.EnforcedNone && cfg.Origin("limits.default.memory") == "" {
		c.Default.Memory = sandbar.Unlimited
	}
	if caps.Enforced.PIDs == sandbar.EnforcedNone && cfg.Origin("limits.default.pids") == "" {
		c.Default.PIDs = sandbar.Unlimited
	}
}

func closeDriver(d driver.Driver) error {
	if c, ok := driver.As[driver.Closer](d); ok {
		return c.Close()
	}
	return nil
}

// collect removes what killed daemons have left of a driver's making.
func collect(ctx context.Context, d driver.Driver, remove bool) ([]driver.Leftover, error) {
	c, ok := driver.As[driver.Collector](d)
	if !ok {
		return nil, nil
	}
	return c.Collect(ctx, remove)
}

// logger writes to w as the configuration says.
func logger(cfg *config.Config, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: cfg.Log.Slog()}
	if cfg.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// commandLogger is the logger of commands that speak to a person: errors come
// as exit codes and sentences, so nothing is logged unless it was asked for.
func commandLogger(cfg *config.Config, w io.Writer) *slog.Logger {
	if cfg.Origin("log.level") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return logger(cfg, w)
}

// warnBoundary says loudly that a driver isolates nothing.
func (a *app) warnBoundary(caps driver.Caps) {
	if caps.Boundary == driver.BoundaryNone {
		a.warn("WARNING: driver %s: no isolation; the program runs as you and can do all that you can", strings.ToLower(caps.Name))
	}
}
