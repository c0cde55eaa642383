package platform

import (
	"errors"
	"log/slog"
	"runtime"
	"slices"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/server/config"
)

// automatic are the drivers that "auto" chooses from, the strongest first: those with a boundary
// that need no other software.
func automatic() []string { return []string{"native", "wasm"} }

// Drivers are the opened drivers of the settings.
type Drivers struct {
	First  driver.Driver   // the setting driver
	Others []driver.Driver // the setting allowed_drivers, without that of First
	// Skipped are the drivers that "auto" prefers but that do not work on this host, with the
	// reasons.
	Skipped []SkippedDriver
}

// SkippedDriver is a driver that does not work on this host.
type SkippedDriver struct {
	Name string
	Err  error
}

// OpenDriver opens the driver of the setting driver. It returns the error of its factory, or
// Unsupported if no driver of "auto" works.
func OpenDriver(cfg *config.Config, factories []driver.Factory, log *slog.Logger) (Drivers, error) {
	if err := config.PrivateDir(cfg.RuntimeDir, "runtime_dir"); err != nil {
		return Drivers{}, err
	}
	if cfg.Driver != config.AutoDriver {
		d, err := open(cfg, factories, cfg.Driver, log)
		return Drivers{First: d}, err
	}
	var passed []SkippedDriver
	var errs []error
	for _, name := range automatic() {
		if _, ok := find(factories, name); !ok {
			continue
		}
		d, err := open(cfg, factories, name, log)
		if err == nil {
			return Drivers{First: d, Skipped: passed}, nil
		}
		// a wrong setting must not lead to a weaker boundary
		if sandbar.CodeOf(err) == sandbar.Invalid {
			return Drivers{}, err
		}
		passed, errs = append(passed, SkippedDriver{name, err}), append(errs, err)
	}
	if len(errs) == 0 {
		return Drivers{}, &sandbar.Error{Code: sandbar.Unsupported, Field: "driver",
			Message: "no driver of this build isolates programs on " + runtime.GOOS,
			Fix:     "use a Linux host; for trusted code only, --driver local runs it without isolation"}
	}
	return Drivers{}, errors.Join(errs...)
}

// OpenDrivers opens the drivers of driver and allowed_drivers. On an error it closes all of them.
func OpenDrivers(cfg *config.Config, factories []driver.Factory, log *slog.Logger) (Drivers, error) {
	ds, err := OpenDriver(cfg, factories, log)
	if err != nil {
		return ds, err
	}
	for _, name := range cfg.AllowedDrivers {
		if name == ds.First.Caps().Name {
			continue
		}
		d, err := open(cfg, factories, name, log)
		if err != nil {
			return Drivers{}, errors.Join(err, ds.Close())
		}
		ds.Others = append(ds.Others, d)
	}
	return ds, nil
}

// Settings returns the drivers' settings for package config.
func Settings(factories []driver.Factory) []config.Driver {
	var out []config.Driver
	for _, f := range factories {
		out = append(out, config.Driver{Name: f.Name, Summary: f.Summary, Options: f.Options})
	}
	return out
}

// Caps returns the Caps of a driver by name, or those of First if there is none.
func (ds Drivers) Caps(name string) driver.Caps {
	for _, d := range ds.Others {
		if c := d.Caps(); c.Name == name {
			return c
		}
	}
	return ds.First.Caps()
}

// All returns First and Others.
func (ds Drivers) All() []driver.Driver { return append([]driver.Driver{ds.First}, ds.Others...) }

// Close closes all drivers, if no engine owns them yet.
func (ds Drivers) Close() error {
	var errs []error
	for _, d := range ds.All() {
		errs = append(errs, CloseDriver(d))
	}
	return errors.Join(errs...)
}

// CloseDriver closes a driver that implements io.Closer.
func CloseDriver(d driver.Driver) error {
	if c, ok := driver.As[driver.Closer](d); ok {
		return c.Close()
	}
	return nil
}

// open opens the driver of that name.
func open(cfg *config.Config, factories []driver.Factory, name string, log *slog.Logger) (driver.Driver, error) {
	f, ok := find(factories, name)
	if !ok {
		return nil, sandbar.Errorf(sandbar.Invalid, "there is no driver %s", sandbar.Quote(name, 80))
	}
	return f.New(Host(cfg, name, log))
}

func find(factories []driver.Factory, name string) (driver.Factory, bool) {
	i := slices.IndexFunc(factories, func(f driver.Factory) bool { return f.Name == name })
	if i < 0 {
		return driver.Factory{}, false
	}
	return factories[i], true
}

// Host returns a driver's Host from the settings.
func Host(cfg *config.Config, name string, log *slog.Logger) driver.Host {
	return driver.Host{RuntimeDir: cfg.RuntimeDir, Logger: log.With("driver", name), Options: cfg.Drivers[name],
		Images: newImages(cfg), Outbound: outbound(cfg.Network), Speculation: cfg.SpeculationMitigations == config.Off, MaxAge: engine.MaxAge(cfg.MaxLifetime)}
}

// outbound returns the operator's network rules, nil if no sandbox may have a network.
func outbound(n config.Network) *driver.Outbound {
	if !n.Outbound {
		return nil
	}
	return &driver.Outbound{AllowPrivate: n.AllowPrivate, Deny: n.Deny, DeniedPorts: n.PortsDenied, DNS: n.DNS,
		MaxConnections: int(n.MaxConnections), MaxBytes: n.MaxBytes}
}
