package engine

import (
	"errors"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// backend is one driver and the engine's settings for it.
type backend struct {
	driver   driver.Driver
	caps     driver.Caps
	defaults sandbar.Limits // no field is unset
	halfDisk bool           // defaults.Disk is halfOf the memory
}

// newBackends makes the backends of a complete Config. The backend of Config.Driver is the first.
func newBackends(c Config) ([]backend, error) {
	all := []backend{{c.Driver, c.Driver.Caps(), c.Default, c.halfDisk}}
	for _, o := range c.ExtraDrivers {
		if o.Driver == nil {
			return nil, badConfig("extra_drivers", "holds a driver that is nil")
		}
		own := c
		own.Default = withDefaults(o.Default, c.Default)
		if c.halfDisk {
			own.Default.Disk = o.Default.Disk
		}
		if err := own.completeLimits(); err != nil {
			return nil, err
		}
		b := backend{o.Driver, o.Driver.Caps(), own.Default, own.halfDisk}
		for _, other := range all {
			if other.caps.Name == b.caps.Name {
				return nil, badConfig("extra_drivers", "holds two drivers called "+sandbar.Quote(b.caps.Name, 40))
			}
		}
		all = append(all, b)
	}
	return all, nil
}

// withDefaults returns l with its unset fields taken from def.
func withDefaults(l, def sandbar.Limits) sandbar.Limits {
	setDefault(&l.Memory, def.Memory)
	setDefault(&l.CPUs, def.CPUs)
	setDefault(&l.CPUShares, def.CPUShares)
	setDefault(&l.PIDs, def.PIDs)
	setDefault(&l.Disk, def.Disk)
	setDefault(&l.Inodes, def.Inodes)
	setDefault(&l.Files, def.Files)
	setDefault(&l.Timeout, def.Timeout)
	setDefault(&l.Output, def.Output)
	return l
}

// backend finds the driver that a Spec names; "" is the operator's choice. It never falls back to
// another driver, because that would run the program behind another boundary.
func (e *Engine) backend(name string) (backend, error) {
	if name == "" {
		return e.backends[0], nil
	}
	var names []string
	for _, b := range e.backends {
		if b.caps.Name == name {
			return b, nil
		}
		names = append(names, b.caps.Name)
	}
	return backend{}, &sandbar.Error{Code: sandbar.Unsupported, Field: "driver",
		Message: "the driver " + sandbar.Quote(name, 40) + " is not allowed; allowed: " + strings.Join(names, ", "),
		Fix:     "leave the driver out, or let the operator add it to allowed_drivers"}
}

// Drivers returns the Caps of all drivers that a Spec may name. The first are those of Engine.Caps.
func (e *Engine) Drivers() []driver.Caps {
	var all []driver.Caps
	for _, b := range e.backends {
		all = append(all, b.caps)
	}
	return all
}

// closeDrivers closes all drivers, also after an error of one.
func (e *Engine) closeDrivers() error {
	var errs []error
	for _, b := range e.backends {
		if c, ok := driver.As[driver.Closer](b.driver); ok {
			errs = append(errs, catchPanic(c.Close))
		}
	}
	return errors.Join(errs...)
}
