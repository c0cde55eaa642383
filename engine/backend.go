package engine

import (
	"errors"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// backend is one driver with what the engine knows of it.
type backend struct {
	driver driver.Driver
	caps   driver.Caps
	def    sandbar.Limits // complete
	half   bool           // the disk of def is halfOf its memory
}

// newBackends makes the backends of a complete Config, that of Config.Driver
// first.
func newBackends(c Config) ([]backend, error) {
	all := []backend{{c.Driver, c.Driver.Caps(), c.Default, c.halfDisk}}
	for _, o := range c.Others {
		if o.Driver == nil {
			return nil, badConfig("others", "holds a driver that is nil")
		}
		own := c
		own.Default = orElse(o.Default, c.Default)
		if c.halfDisk {
			own.Default.Disk = o.Default.Disk
		}
		if err := own.completeLimits(); err != nil {
			return nil, err
		}
		b := backend{o.Driver, o.Driver.Caps(), own.Default, own.halfDisk}
		for _, other := range all {
			if other.caps.Name == b.caps.Name {
				return nil, badConfig("others", "holds two drivers called "+sandbar.Quote(b.caps.Name, 40))
			}
		}
		all = append(all, b)
	}
	return all, nil
}

// orElse is l with its unset fields from def.
func orElse(l, def sandbar.Limits) sandbar.Limits {
	fill(&l.Memory, def.Memory)
	fill(&l.CPUs, def.CPUs)
	fill(&l.CPUShares, def.CPUShares)
	fill(&l.PIDs, def.PIDs)
	fill(&l.Disk, def.Disk)
	fill(&l.Inodes, def.Inodes)
	fill(&l.Files, def.Files)
	fill(&l.Timeout, def.Timeout)
	fill(&l.Output, def.Output)
	return l
}

// backend finds the driver that a Spec names: "" is the operator's choice. There
// is no other way to a driver, so that nothing runs behind a boundary that its
// caller did not ask for.
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
		Message: "the driver " + sandbar.Quote(name, 40) + " was asked for, and is not one that may be; there is " + strings.Join(names, ", "),
		Fix:     "leave the driver out, or let the operator add it to allowed_drivers"}
}

// Drivers returns the Caps of all drivers that a Spec may name, that of Caps first.
func (e *Engine) Drivers() []driver.Caps {
	var all []driver.Caps
	for _, b := range e.backends {
		all = append(all, b.caps)
	}
	return all
}

// closeDrivers closes all drivers, whatever comes of each.
func (e *Engine) closeDrivers() error {
	var errs []error
	for _, b := range e.backends {
		if c, ok := driver.As[driver.Closer](b.driver); ok {
			errs = append(errs, guarded(c.Close))
		}
	}
	return errors.Join(errs...)
}
