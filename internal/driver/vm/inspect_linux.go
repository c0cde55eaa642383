package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/guest"
)

var _ driver.Inspector = (*Driver)(nil)

// Inspect implements driver.Inspector.
func (d *Driver) Inspect(ctx context.Context, measure bool) []driver.Fact {
	facts := []driver.Fact{{Name: "monitor", State: d.qemu.Facts().Build + ", " + d.qemu.Path()}}
	if measure {
		// the facts below are those after the preparation
		if err := d.Prepare(ctx); err != nil {
			return append(facts, failed("preparation", err))
		}
	}
	facts = append(facts, d.inspectKernel(), d.inspectRoots(), d.inspectAccelerator())
	if measure {
		facts = append(facts, d.measure(ctx))
	}
	return facts
}

// failed is the fact of a step that failed.
func failed(name string, err error) driver.Fact {
	e := *sandbar.AsError(err)
	fix := e.Fix
	e.Fix = ""
	return driver.Fact{Name: name, State: e.Error(), Fix: fix}
}

func (d *Driver) inspectKernel() driver.Fact {
	k, err := guest.OpenKernel(d.cache)
	switch {
	case sandbar.CodeOf(err) == sandbar.NotFound:
		return driver.Fact{Name: "kernel", State: "not prepared; the first sandbox prepares it", Fix: "run `sandbar vm setup`"}
	case err != nil:
		return failed("kernel", err)
	}
	return driver.Fact{Name: "kernel", State: k.Release + " from " + k.Source}
}

func (d *Driver) inspectRoots() driver.Fact {
	if d.fixed {
		return driver.Fact{Name: "root", State: "the option root"}
	}
	roots, err := guest.Roots(d.cache)
	switch {
	case err != nil:
		return failed("root", err)
	case len(roots) == 0:
		return driver.Fact{Name: "root", State: "not prepared; the first sandbox copies this machine's programs, which takes a minute", Fix: "run `sandbar vm setup`"}
	}
	return driver.Fact{Name: "root", State: fmt.Sprintf("%d prepared in %s", len(roots), d.cache)}
}

// inspectAccelerator tells what machines run on, and why.
func (d *Driver) inspectAccelerator() driver.Fact {
	err := d.Accelerated()
	if err == nil {
		return driver.Fact{Name: "accelerator", State: "kvm: a machine has booted on it"}
	}
	e := sandbar.AsError(err)
	if d.monitor == nil {
		if _, err := os.Stat("/dev/kvm"); err != nil {
			return driver.Fact{Name: "accelerator", State: "tcg (emulation): there is no /dev/kvm", Fix: kvmFix(err)}
		}
		return driver.Fact{Name: "accelerator", State: "unknown: " + e.Message, Fix: e.Fix}
	}
	state := "tcg (emulation): " + e.Message
	if e.Err != nil {
		state += ": " + e.Err.Error()
	}
	return driver.Fact{Name: "accelerator", State: state, Fix: e.Fix}
}

// measure boots a machine of the default size without keeping its snapshot, and then makes a
// sandbox and runs a program in it.
func (d *Driver) measure(ctx context.Context) driver.Fact {
	const name = "speed"
	s := sandbar.Spec{Image: sandbar.ImageHost, Network: sandbar.NetworkNone, Limits: sandbar.Limits{CPUs: sandbar.Unlimited}}
	k, err := d.kind(ctx, s)
	if err != nil {
		return failed(name, err)
	}
	boot, err := d.measureBoot(ctx, k)
	if err != nil {
		return failed(name, err)
	}
	if _, err := d.templates.get(ctx, k); err != nil {
		return failed(name, err)
	}
	began := time.Now()
	box, err := d.Create(ctx, "sb_measure", s)
	if err != nil {
		return failed(name, err)
	}
	create := time.Since(began)
	began = time.Now()
	p, err := box.Start(ctx, sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{})
	if err == nil {
		_, err = p.Wait()
	}
	run := time.Since(began)
	if err := errors.Join(err, box.Destroy(context.WithoutCancel(ctx))); err != nil {
		return failed(name, err)
	}
	ms := func(t time.Duration) float64 { return float64(t.Microseconds()) / 1000 }
	return driver.Fact{Name: name, State: fmt.Sprintf("boot of a snapshot %.1f s, once; creation of a sandbox from it %.0f ms; first program %.0f ms", boot.Seconds(), ms(create), ms(run))}
}

// measureBoot boots and saves a machine, and returns how long that takes.
func (d *Driver) measureBoot(ctx context.Context, k kind) (time.Duration, error) {
	dir, err := os.MkdirTemp(d.templates.dir, unfinishedPrefix)
	if err != nil {
		return 0, writeError(err)
	}
	defer os.RemoveAll(dir)
	s, err := newSnapshot(dir, k)
	defer closeSnapshot(s)
	if err != nil {
		return 0, writeError(err)
	}
	r := newResources(d, "sb_boot_measure")
	began := time.Now()
	if err := d.Build(ctx, &r.Resources, func() error { _, err := r.boot(ctx, k, s); return err }); err != nil {
		return 0, err
	}
	return time.Since(began), r.Destroy(context.WithoutCancel(ctx))
}
