package vm

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/guest"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/monitor"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/qemu"
)

// probeTimeout bounds the boot that proves KVM. A machine on working KVM answers within a second.
const probeTimeout = 15 * time.Second

// knownAccelerator returns Invalid if the option has another value than auto, kvm, tcg or "".
func knownAccelerator(choice string) error {
	switch choice {
	case "", acceleratorAuto, qemu.KVM, qemu.TCG:
		return nil
	}
	return &sandbar.Error{Code: sandbar.Invalid, Field: "drivers." + Name + "." + OptionAccelerator,
		Message: "there is no accelerator " + sandbar.Quote(choice, 40), Fix: "use auto, kvm or tcg"}
}

// accelerated returns the monitor with the accelerator that the options select. Opening /dev/kvm
// proves nothing: a machine must boot.
func (d *Driver) accelerated(q *qemu.QEMU) (monitor.Monitor, error) {
	choice := d.host.Options[OptionAccelerator]
	if choice == qemu.TCG {
		return q, nil
	}
	err := d.probeKVM(q.With(qemu.KVM))
	if err == nil {
		return q.With(qemu.KVM), nil
	}
	if choice == qemu.KVM {
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Field: OptionAccelerator, Message: "no machine boots on KVM", Err: err,
			Fix: kvmFix(err) + "; or use the accelerator tcg"}
	}
	d.Log.Info("machines are emulated", "reason", err)
	d.noKVM = err
	return q, nil
}

// Accelerated returns nil if machines run on KVM. Unsupported: they are emulated, or no guest
// kernel is prepared; the error tells the reason.
func (d *Driver) Accelerated() error {
	d.readyMu.Lock()
	defer d.readyMu.Unlock()
	switch {
	case d.monitor == nil:
		return &sandbar.Error{Code: sandbar.Unsupported, Message: "no guest kernel of the driver vm is prepared", Fix: "run `sandbar vm setup`"}
	case d.monitor.Facts().Accelerator == qemu.KVM:
		return nil
	case d.noKVM == nil:
		return &sandbar.Error{Code: sandbar.Unsupported, Message: "the driver's option accelerator is tcg", Fix: "set it to auto"}
	}
	return &sandbar.Error{Code: sandbar.Unsupported, Message: "no machine boots on KVM", Err: d.noKVM, Fix: kvmFix(d.noKVM)}
}

// kvmFix returns what makes KVM work after an error of probeKVM.
func kvmFix(err error) string {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "enable virtualization in the firmware, or nested virtualization for this virtual machine; in a container add the device /dev/kvm"
	case errors.Is(err, os.ErrPermission):
		return "give this user access to /dev/kvm: its group is usually kvm"
	}
	return "use a host with working KVM; within a virtual machine this needs nested virtualization"
}

// probeKVM boots a machine on KVM up to the first message of its first process. The machine has no
// root, so that message is the report of a failed boot.
func (d *Driver) probeKVM(q *qemu.QEMU) error {
	device, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	device.Close()
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	dir, err := os.MkdirTemp(d.templates.dir, unfinishedPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	k := kind{Memory: MinMemory, Processors: 1}
	b := monitor.Boot{Cmdline: guest.Cmdline(guest.Boot{})}
	for _, f := range []struct {
		file **os.File
		size int64
	}{{&b.RAM, k.machineMemory()}, {&b.State, 0}, {&b.Root, 1 << 20}} {
		if *f.file, err = os.CreateTemp(dir, ""); err != nil {
			return err
		}
		defer (*f.file).Close()
		if err := (*f.file).Chmod(0o666); err != nil {
			return err
		}
		if err := (*f.file).Truncate(f.size); err != nil {
			return err
		}
	}
	for path, file := range map[string]**os.File{d.kernel.Vmlinux: &b.Kernel, d.initramfs: &b.Initramfs} {
		if *file, err = os.Open(path); err != nil {
			return err
		}
		defer (*file).Close()
	}
	r := newResources(d, "sb_probe")
	b.Machine = k.machine(machineName(d.Owner, r.ID), b.Root)
	err = d.Build(ctx, &r.Resources, func() error {
		if err := r.prepare(k.machineMemory(), sandbar.Limits{}); err != nil {
			return err
		}
		if r.vm, err = q.Boot(ctx, r, b); err != nil {
			return err
		}
		defer context.AfterFunc(ctx, func() { r.vm.Agent().SetReadDeadline(time.Unix(1, 0)) })()
		if _, err := r.vm.Agent().Read(make([]byte, 1)); err != nil {
			return r.ended("a machine on KVM did not answer", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.Destroy(context.WithoutCancel(ctx))
}
