package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dop251/goja"
	"github.com/tetratelabs/wazero"
)

// Program is the emulator and the firmware, as published.
type Program struct {
	Script []byte // libv86.js
	Core   []byte // v86.wasm
	BIOS   []byte // SeaBIOS
	VGA    []byte // its part for the display
}

// Config says which machine is made. Of Disk, CD, Kernel and State one is set.
type Config struct {
	Program Program
	// Memory of the guest, in bytes.
	Memory int64
	// Cache keeps the compiled core. Nil: it is compiled anew.
	Cache wazero.CompilationCache

	Disk []byte // a raw disk; it is written to
	CD   []byte // an ISO image
	// Kernel is a bzImage, Initrd its initial file system (may be empty), and
	// CommandLine what it is told.
	Kernel, Initrd []byte
	CommandLine    string
	// State is a machine that was saved; a Snapshot's, or the emulator's own.
	State []byte
	// Clock is the machine's time when State was saved; of a machine that is
	// new it is 0.
	Clock time.Duration
}

// Machine is a PC.
type Machine struct {
	// Console is COM1 and Channel COM2.
	Console, Channel *Port

	ctx      context.Context
	clock    clock
	script   *script
	core     *core
	emulator *goja.Object
}

// ownMemory is what the emulator needs of its linear memory beside the guest's,
// in bytes: its own, and the display's.
const ownMemory = 512 << 20

// displayMemory is the display's, in bytes.
const displayMemory = 2 << 20

// The I/O ports and interrupt lines of the serial ports.
const (
	com1, irq1 = 0x3f8, 4
	com2, irq2 = 0x2f8, 3
)

// New makes a machine, which stands still. ctx bounds its making only.
func New(ctx context.Context, cfg Config) (*Machine, error) {
	m := &Machine{ctx: context.WithoutCancel(ctx)}
	m.clock.set(cfg.Clock)
	m.Console = newPort(com1, func(raise bool) { m.core.irq(m.ctx, irq1, raise) })
	m.Channel = newPort(com2, func(raise bool) { m.core.irq(m.ctx, irq2, raise) })
	var err error
	if m.script, err = newScript(m.clock.now); err != nil {
		return nil, err
	}
	m.core, err = newCore(m.ctx, m, m.script, cfg.Program.Core, cfg.Cache, cfg.Memory+ownMemory)
	if err != nil {
		return nil, err
	}
	m.core.jit = newJIT(m.ctx, m.core)
	if err := m.build(ctx, cfg); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Close ends the machine and gives everything back.
func (m *Machine) Close() { m.core.close(m.ctx) }

// port is the serial port that has an I/O port, nil if none has.
func (m *Machine) port(number uint32) *Port {
	switch {
	case m.Channel.owns(number):
		return m.Channel
	case m.Console.owns(number):
		return m.Console
	}
	return nil
}

// build runs the emulator's JavaScript until the machine is complete.
func (m *Machine) build(ctx context.Context, cfg Config) error {
	text, err := patch(string(cfg.Program.Script))
	if err != nil {
		return err
	}
	vm := m.script.vm
	if _, err := vm.RunScript("libv86.js", text); err != nil {
		return fmt.Errorf("the emulator: %w", err)
	}
	loaded := false
	if err := vm.Set("__loaded", func() { loaded = true }); err != nil {
		return err
	}
	if err := vm.Set("__options", m.options(cfg)); err != nil {
		return err
	}
	v, err := vm.RunString(`var __e = new module.exports.V86(__options); __options = undefined; __e.add_listener("emulator-loaded", () => __loaded()); __e`)
	if err != nil {
		return fmt.Errorf("the emulator: %w", err)
	}
	m.emulator = v.ToObject(vm)
	for !loaded {
		if err := m.script.run(); err != nil {
			return err
		}
		wait, ok := m.script.next()
		switch {
		case loaded:
		case !ok:
			return errors.New("the emulator does not start")
		case ctx.Err() != nil:
			return ctx.Err()
		case wait > 0:
			m.clock.advance(wait) // nothing runs, so nobody is waited for
		}
	}
	return nil
}

// options are those of the emulator.
func (m *Machine) options(cfg Config) map[string]any {
	vm := m.script.vm
	file := func(b []byte) map[string]any { return map[string]any{"buffer": vm.NewArrayBuffer(b)} }
	o := map[string]any{
		"wasm_fn": func(c goja.FunctionCall) goja.Value {
			p, resolve, reject := vm.NewPromise()
			exports, err := m.core.instantiate(m.ctx, c.Argument(0).ToObject(vm))
			if err != nil {
				_ = reject(vm.NewGoError(err))
			} else {
				_ = resolve(exports)
			}
			return vm.ToValue(p)
		},
		"memory_size": cfg.Memory, "vga_memory_size": displayMemory, "autostart": false,
		"disable_speaker": true, "disable_mouse": true, "disable_keyboard": true,
	}
	if cfg.State != nil {
		o["initial_state"] = file(cfg.State)
	} else {
		o["bios"], o["vga_bios"] = file(cfg.Program.BIOS), file(cfg.Program.VGA)
	}
	switch {
	case cfg.Disk != nil:
		o["hda"] = file(cfg.Disk)
	case cfg.CD != nil:
		o["cdrom"] = file(cfg.CD)
	case cfg.Kernel != nil:
		o["bzimage"], o["cmdline"] = file(cfg.Kernel), cfg.CommandLine
		if len(cfg.Initrd) > 0 {
			o["initrd"] = file(cfg.Initrd)
		}
	}
	return o
}

// Run starts the machine's clock, Pause stops it.
func (m *Machine) Run() { m.clock.run() }

// Pause stops the machine's clock.
func (m *Machine) Pause() { m.clock.pause() }

// Clock is the machine's time: how long it has run, in all its lives.
func (m *Machine) Clock() time.Duration { return m.clock.duration() }

// Step runs the machine for about a millisecond. It returns how long the guest
// has nothing to do then, unless a port gets something. After an error there
// is nothing more to be done with the machine.
func (m *Machine) Step() (time.Duration, error) {
	if err := m.core.jit.install(); err != nil {
		return 0, err
	}
	m.Console.step()
	m.Channel.step()
	idle, err := m.core.loop(m.ctx)
	if err == nil {
		err = m.script.run()
	}
	if err != nil {
		return 0, err
	}
	wait := time.Duration(max(idle, 0) * float64(time.Millisecond))
	if next, ok := m.script.next(); ok {
		wait = min(wait, next)
	}
	if m.Channel.ready() || m.Console.ready() || m.Channel.stalled() || m.Console.stalled() {
		wait = 0
	}
	return wait, nil
}

// Compiled is how many modules have been made of the guest's code, and how many
// bytes those had. They are kept for as long as the machine is.
func (m *Machine) Compiled() (modules, bytes int) { return m.core.jit.modules, m.core.jit.bytes }
