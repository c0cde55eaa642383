package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
	"github.com/sandbar-dev/sandbar/sandbox"
)

// setting is a flag that sets a value of the configuration. path is the setting's name
// in the configuration file.
type setting struct{ flag, path, help string }

var (
	driverSetting = setting{"driver", "driver", "driver that runs the program: auto, or one that \"sandbar doctor\" lists"}
	listenSetting = setting{"listen", "listen", "address to listen on, HOST:PORT or unix:/path"}
	certSetting   = setting{"tls-cert", "tls.cert", "PEM `file` with the certificate chain"}
	keySetting    = setting{"tls-key", "tls.key", "PEM `file` with the private key"}
)

// settings adds the flags of the given settings, and --config.
func (a *app) settings(cmd *cobra.Command, settings ...setting) {
	cmd.Flags().String("config", "", "configuration `file`")
	for _, s := range settings {
		if cmd.Flags().Lookup(s.flag) == nil {
			cmd.Flags().String(s.flag, "", s.help)
		}
	}
	if cmd.Flags().Lookup(driverSetting.flag) != nil {
		cmd.RegisterFlagCompletionFunc(driverSetting.flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return append([]string{config.AutoDriver}, driverNames(a.factories)...), cobra.ShellCompDirectiveNoFileComp
		})
	}
}

// configuration loads the settings from the file, the environment, and the flags of the
// given settings.
func (a *app) configuration(cmd *cobra.Command, settings ...setting) (*config.Config, error) {
	file := cmd.Flags().Lookup("config")
	if file.Changed && file.Value.String() == "" {
		return nil, usagef(cmd, "--config: the name is empty (allowed: the path of a YAML file)")
	}
	in := config.Input{File: file.Value.String(), Environ: a.environ, Drivers: platform.Settings(a.factories), Foreign: foreignIII}
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

func driverNames(factories []driver.Factory) []string {
	var names []string
	for _, f := range factories {
		names = append(names, f.Name)
	}
	return names
}

// newDriver opens and prepares the driver that the configuration names.
func (a *app) newDriver(cfg *config.Config, log *slog.Logger) (platform.Drivers, error) {
	factories := a.factories
	if !log.Enabled(context.Background(), slog.LevelInfo) {
		factories = a.factoriesWithProgress()
	}
	ds, err := a.reportDrivers(platform.OpenDriver(cfg, factories, log))
	if err != nil {
		return ds, err
	}
	return prepareHost(ds)
}

// prepareHost runs the driver's once-per-host preparation. It closes ds on error.
func prepareHost(ds platform.Drivers) (platform.Drivers, error) {
	p, ok := driver.As[driver.Preparer](ds.First)
	if !ok {
		return ds, nil
	}
	ctx, stop := interruptible(context.Background())
	defer stop()
	if err := p.Prepare(ctx); err != nil {
		return ds, errors.Join(err, ds.Close())
	}
	return ds, nil
}

// factoriesWithProgress returns the drivers of this build with showProgress as
// Host.Waiting, for commands that write no log.
func (a *app) factoriesWithProgress() []driver.Factory {
	var all []driver.Factory
	for _, f := range a.factories {
		make := f.New
		f.New = func(h driver.Host) (driver.Driver, error) {
			h.Waiting = a.showProgress
			return make(h)
		}
		all = append(all, f)
	}
	return all
}

// showProgress reports on standard error that a long step runs: one line, or on a
// terminal a spinner with the elapsed seconds. The caller must call done.
func (a *app) showProgress(what string) (done func()) {
	if !cli.OnTerminal(a.stderr) {
		a.warn("%s", what)
		return func() {}
	}
	bar := progressbar.NewOptions64(-1, progressbar.OptionSetWriter(a.stderr), progressbar.OptionSetDescription("sandbar: "+what),
		progressbar.OptionSetElapsedTime(true), progressbar.OptionClearOnFinish())
	stop := make(chan struct{})
	var shown sync.WaitGroup
	shown.Go(func() {
		t := time.NewTicker(200 * time.Millisecond)
		defer t.Stop()
		for {
			bar.Add(1) // an error of the terminal does not stop the step
			select {
			case <-t.C:
			case <-stop:
				bar.Finish()
				return
			}
		}
	})
	return func() { close(stop); shown.Wait() }
}

// newDrivers opens all drivers that the configuration allows requests to name.
func (a *app) newDrivers(cfg *config.Config, log *slog.Logger) (platform.Drivers, error) {
	ds, err := platform.OpenDrivers(cfg, a.factories, log)
	return a.reportDrivers(ds, err)
}

// reportDrivers warns of drivers that auto skipped, and of drivers without isolation. It
// passes ds and err through.
func (a *app) reportDrivers(ds platform.Drivers, err error) (platform.Drivers, error) {
	if err != nil {
		return ds, err
	}
	for _, p := range ds.Skipped {
		a.warn("driver auto: using %s, because %s does not work on this host: %v", ds.First.Caps().Name, p.Name, p.Err)
	}
	for _, d := range ds.All() {
		a.warnBoundary(d.Caps())
	}
	return ds, nil
}

// newEngine makes the engine from the configuration. The engine owns ds from then on.
// adjust, if not nil, may change the engine's configuration.
func (a *app) newEngine(cfg *config.Config, ds platform.Drivers, log *slog.Logger, adjust func(*engine.Config)) (*engine.Engine, error) {
	recorder, err := sandbox.NewRecorder(sandbox.RecorderOptions{
		Dir: cfg.Code.Executions(), FailedOnly: cfg.Code.Store == config.StoreOnError, MaxOutput: cfg.Code.MaxOutput,
		Caps: ds.Caps, Version: thisBuild().Version, Failed: func(err error) { a.warn("%v", err) },
	})
	if err != nil {
		return nil, errors.Join(err, ds.Close())
	}
	return platform.NewEngine(cfg, ds, log, func(c *engine.Config) {
		recorder.Configure(c)
		if adjust != nil {
			adjust(c)
		}
	})
}

// collect lists, and with remove removes, the driver's leftovers of killed daemons.
func collect(ctx context.Context, d driver.Driver, remove bool) ([]driver.Leftover, error) {
	c, ok := driver.As[driver.Collector](d)
	if !ok {
		return nil, nil
	}
	return c.Collect(ctx, remove)
}

// logger returns a logger to w with the configured level and format.
func logger(cfg *config.Config, w io.Writer) *slog.Logger {
	return loggerAt(cfg.Log.Slog(), cfg, w)
}

// loggerAt is logger with another level.
func loggerAt(level slog.Leveler, cfg *config.Config, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if cfg.Log.Format == "json" {
		return slog.New(engine.LogHandler(slog.NewJSONHandler(w, options)))
	}
	return slog.New(engine.LogHandler(slog.NewTextHandler(w, options)))
}

// commandLogger returns the logger of interactive commands, which report errors as exit
// codes and messages. It discards all records unless log.level is set.
func commandLogger(cfg *config.Config, w io.Writer) *slog.Logger {
	if cfg.Origin("log.level") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return logger(cfg, w)
}

// warnBoundary warns of a driver without isolation.
func (a *app) warnBoundary(caps driver.Caps) {
	if caps.Boundary == driver.BoundaryNone {
		a.warn("WARNING: driver %s: no isolation; the program runs with all of your user's rights", strings.ToLower(caps.Name))
	}
}
