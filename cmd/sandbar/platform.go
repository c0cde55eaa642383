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

// setting is a flag that gives a setting of the configuration.
type setting struct{ flag, path, help string }

var (
	driverSetting = setting{"driver", "driver", "what runs the program: auto, or a driver that \"sandbar doctor\" lists"}
	listenSetting = setting{"listen", "listen", "address to listen on, HOST:PORT or unix:/path"}
	certSetting   = setting{"tls-cert", "tls.cert", "PEM `file` with the certificate chain"}
	keySetting    = setting{"tls-key", "tls.key", "PEM `file` with the private key"}
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

// newDriver makes the driver that the configuration names, and tells a person
// what that means where it is not plain.
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

// prepared has the driver do what is done once for a host.
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

// patient are the drivers of this build for commands whose user waits for them and
// reads no log.
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

// waiting shows a person what takes long: one line, and on a terminal the seconds
// in place of it.
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
			bar.Add(1) // the terminal's trouble is not the work's
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

// newDrivers makes all drivers that the configuration lets requests name.
func (a *app) newDrivers(cfg *config.Config, log *slog.Logger) (platform.Drivers, error) {
	ds, err := platform.OpenDrivers(cfg, a.factories, log)
	return a.reportDrivers(ds, err)
}

// told says which driver was chosen where it is not the one that is expected,
// and loudly where one isolates nothing.
func (a *app) reportDrivers(ds platform.Drivers, err error) (platform.Drivers, error) {
	if err != nil {
		return ds, err
	}
	for _, p := range ds.Skipped {
		a.warn("driver auto: %s does not work here, so %s is used: %v", p.Name, ds.First.Caps().Name, p.Err)
	}
	for _, d := range ds.All() {
		a.warnBoundary(d.Caps())
	}
	return ds, nil
}

// newEngine makes the platform from the configuration and its drivers, which it
// owns from then on. adjust may change what the configuration says.
func (a *app) newEngine(cfg *config.Config, ds platform.Drivers, log *slog.Logger, adjust func(*engine.Config)) (*engine.Engine, error) {
	recorder, err := sandbox.NewRecorder(sandbox.RecorderOptions{
		Dir: cfg.Code.Executions(), FailedOnly: cfg.Code.Store == config.StoreOnError, MaxOutput: cfg.Code.MaxOutput,
		Caps: ds.Caps, Failed: func(err error) { a.warn("%v", err) },
	})
	if err != nil {
		return nil, errors.Join(err, ds.Close())
	}
	return platform.NewEngine(cfg, ds, log, func(c *engine.Config) {
		recorder.Into(c)
		if adjust != nil {
			adjust(c)
		}
	})
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
	return loggerAt(cfg.Log.Slog(), cfg, w)
}

// loggerAt is logger with a level that may change.
func loggerAt(level slog.Leveler, cfg *config.Config, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
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
