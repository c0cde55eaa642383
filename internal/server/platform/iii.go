package platform

import (
	"errors"
	"log/slog"
	"maps"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/server/config"
)

// Accelerated is an optional interface of a driver that makes virtual machines.
type Accelerated interface {
	// Accelerated returns nil if machines run on the processor's virtualization. Otherwise the
	// error tells the reason.
	Accelerated() error
}

// IIIDriver returns the driver of the iii protocol's sandboxes by the setting iii.driver, and adds
// it to ds unless ds has it. For auto it is vm if a machine boots on KVM, which takes 15 s at most,
// otherwise ds.First; the log has the reason. OpenDriver or OpenDrivers has opened ds.
func IIIDriver(cfg *config.Config, factories []driver.Factory, ds *Drivers, log *slog.Logger) (driver.Driver, error) {
	switch cfg.III.Driver {
	case "":
		return ds.First, nil
	case config.AutoDriver:
		d, err := ds.addIII(cfg, factories, config.IIIMachines, log)
		if sandbar.CodeOf(err) == sandbar.Invalid { // a wrong setting must not lead to a weaker boundary
			return nil, err
		}
		if err != nil {
			log.Info("iii: sandboxes are not virtual machines", "driver", ds.First.Caps().Name, "reason", err)
			return ds.First, nil
		}
		log.Info("iii: each sandbox is a virtual machine", "driver", d.Caps().Name)
		return d, nil
	}
	return ds.addIII(cfg, factories, cfg.III.Driver, log)
}

// addIII returns the driver of that name, which it opens and adds to ds unless ds has it. For auto
// the machines of the driver must run on KVM.
func (ds *Drivers) addIII(cfg *config.Config, factories []driver.Factory, name string, log *slog.Logger) (driver.Driver, error) {
	auto := cfg.III.Driver == config.AutoDriver
	for _, d := range ds.All() {
		if d.Caps().Name != name {
			continue
		}
		if auto {
			return d, accelerated(d)
		}
		return d, nil
	}
	d, err := openIII(cfg, factories, name, log)
	if err != nil {
		return nil, err
	}
	if auto {
		if err := accelerated(d); err != nil {
			return nil, errors.Join(err, CloseDriver(d))
		}
	}
	ds.Others = append(ds.Others, d)
	return d, nil
}

// openIII opens a driver for the iii protocol. The driver vm is opened for KVM only.
func openIII(cfg *config.Config, factories []driver.Factory, name string, log *slog.Logger) (driver.Driver, error) {
	f, ok := find(factories, name)
	if !ok {
		return nil, sandbar.Errorf(sandbar.Unsupported, "this build has no driver %s", sandbar.Quote(name, 80))
	}
	h := Host(cfg, name, log)
	if name == config.IIIMachines && cfg.III.Driver == config.AutoDriver && (h.Options["accelerator"] == "" || h.Options["accelerator"] == "auto") {
		h.Options = maps.Clone(h.Options)
		if h.Options == nil {
			h.Options = map[string]string{}
		}
		h.Options["accelerator"] = "kvm"
	}
	return f.New(h)
}

// accelerated returns nil if the machines of a driver run on the processor's virtualization.
func accelerated(d driver.Driver) error {
	a, ok := driver.As[Accelerated](d)
	if !ok {
		return sandbar.Errorf(sandbar.Unsupported, "the driver %s makes no virtual machines", d.Caps().Name)
	}
	return a.Accelerated()
}
