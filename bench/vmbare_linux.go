package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/sandbar-dev/sandbar/internal/driver/vm/guest"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/monitor"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/qemu"
)

// bareMachine is the baseline of the vm driver: the same qemu with the same kernel, without a
// sandbox around it, and with a program in the machine that sends back what it receives.
type bareMachine struct {
	dir     string
	qemu    *qemu.QEMU
	machine monitor.Machine
	ram     *os.File
	state   *os.File

	cmd *exec.Cmd // the running qemu
	vm  monitor.VM
}

var _ monitor.Launcher = (*bareMachine)(nil)

// newBareMachine boots the machine and saves it.
func newBareMachine(options map[string]string) (b *bareMachine, err error) {
	q, err := qemu.Find(options["qemu"])
	if err != nil {
		return nil, err
	}
	if options["accelerator"] != qemu.TCG {
		q = q.With(qemu.KVM)
	}
	b = &bareMachine{qemu: q}
	if b.dir, err = os.MkdirTemp("", "bench-vm-"); err != nil {
		return nil, err
	}
	if err := b.boot(options["cache"]); err != nil {
		return nil, errors.Join(err, b.end(), b.close())
	}
	return b, b.end()
}

// boot boots the machine and saves it.
func (b *bareMachine) boot(cache string) error {
	program := filepath.Join(b.dir, "vmguest")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "./bench/vmguest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	first, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	kernel, err := guest.OpenKernel(cache)
	if err != nil {
		return err
	}
	initramfs, _, err := guest.BuildInitramfs(b.dir, kernel, first)
	if err != nil {
		return err
	}
	const memory = 336 << 20 // that of the driver's machine
	boot := monitor.Boot{Cmdline: guest.Cmdline(guest.Boot{})}
	for _, f := range []struct {
		name string
		file **os.File
		size int64
	}{{"memory", &b.ram, memory}, {"state", &b.state, 0}, {"disk", &b.machine.Root, 1 << 20}} {
		if *f.file, err = os.Create(filepath.Join(b.dir, f.name)); err == nil {
			err = (*f.file).Truncate(f.size)
		}
		if err != nil {
			return err
		}
	}
	for path, file := range map[string]**os.File{kernel.Vmlinux: &boot.Kernel, initramfs: &boot.Initramfs} {
		if *file, err = os.Open(path); err != nil {
			return err
		}
		defer (*file).Close()
	}
	b.machine.Name, b.machine.Memory, b.machine.Processors = "bench", memory, 1
	boot.Machine, boot.RAM, boot.State = b.machine, b.ram, b.state
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if b.vm, err = b.qemu.Boot(ctx, b, boot); err != nil {
		return err
	}
	if err := b.expect("ready\n"); err != nil {
		return err
	}
	return b.vm.Save(ctx)
}

// restore restores the machine, and returns after its first answer.
func (b *bareMachine) restore() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if b.vm, err = b.qemu.Restore(ctx, b, b.machine, monitor.Snapshot{RAM: b.ram, State: b.state}); err != nil {
		return err
	}
	if _, err := b.vm.Agent().Write([]byte("ping\n")); err != nil {
		return err
	}
	return b.expect("ping\n")
}

// expect reads an answer.
func (b *bareMachine) expect(want string) error {
	got := make([]byte, len(want))
	b.vm.Agent().SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadFull(b.vm.Agent(), got); err != nil || string(got) != want {
		return fmt.Errorf("the machine answers %q, want %q: %w", got, want, err)
	}
	return nil
}

// Launch starts qemu.
func (b *bareMachine) Launch(_ context.Context, p monitor.Program) error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	b.cmd = exec.Command(p.Path, p.Args[1:]...)
	b.cmd.Env, b.cmd.Stderr = p.Env, p.Stderr
	for len(b.cmd.ExtraFiles) < monitor.FirstFile-3 {
		b.cmd.ExtraFiles = append(b.cmd.ExtraFiles, null)
	}
	b.cmd.ExtraFiles = append(b.cmd.ExtraFiles, p.Files...)
	return b.cmd.Start()
}

// end kills qemu.
func (b *bareMachine) end() (err error) {
	if b.cmd != nil && b.cmd.Process != nil {
		_ = b.cmd.Process.Kill() // it may have ended
		_ = b.cmd.Wait()         // "signal: killed"
	}
	if b.vm != nil {
		err = b.vm.Close()
	}
	b.cmd, b.vm = nil, nil
	return err
}

// close removes the files.
func (b *bareMachine) close() error {
	for _, f := range []*os.File{b.ram, b.state, b.machine.Root} {
		if f != nil {
			f.Close()
		}
	}
	return os.RemoveAll(b.dir)
}
