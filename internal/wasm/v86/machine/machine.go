package machine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/dop251/goja"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// Program is the emulator and the firmware as published.
type Program struct {
	Script []byte // libv86.js
	Core   []byte // v86.wasm
	BIOS   []byte // SeaBIOS
	VGA    []byte // SeaBIOS's VGA BIOS
}

// Emulator is the compiled emulator, from which machines are made.
type Emulator struct {
	program Program
	cache   wazero.CompilationCache
	core    wazero.CompiledModule // keeps the compiled code in the cache
	script  *goja.Program
}

// features are the WebAssembly features that the emulator's core uses.
const features = api.CoreFeaturesV2 | experimental.CoreFeaturesTailCall | experimental.CoreFeaturesThreads

// Load compiles the emulator. The directory cache keeps the compiled code for later processes; ""
// means no cache on disk. Load has read everything that machines need from files.
func Load(ctx context.Context, program Program, cache string) (*Emulator, error) {
	e := &Emulator{program: program, cache: wazero.NewCompilationCache()}
	var err error
	if cache != "" {
		if e.cache, err = wazero.NewCompilationCacheWithDir(cache); err != nil {
			return nil, fmt.Errorf("the emulator's cache: %w", err)
		}
	}
	text, err := patch(string(program.Script))
	if err == nil {
		e.script, err = goja.Compile("libv86.js", text, false)
	}
	if err != nil {
		return nil, fmt.Errorf("the emulator's script: %w", err)
	}
	ctx = experimental.WithCompilationWorkers(ctx, runtime.GOMAXPROCS(0))
	if e.core, err = e.runtime(ctx).CompileModule(ctx, program.Core); err != nil {
		return nil, fmt.Errorf("compiling the emulator: %w", err)
	}
	return e, nil
}

// Close frees the emulator. All its machines must have been closed.
func (e *Emulator) Close(ctx context.Context) error { return e.cache.Close(ctx) }

// runtime returns a runtime that shares the compiled code.
func (e *Emulator) runtime(ctx context.Context) wazero.Runtime {
	return wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().
		WithCoreFeatures(features).WithDebugInfoEnabled(false).WithCompilationCache(e.cache))
}

// Config describes a machine. Exactly one of Disk, CD, Kernel and Snapshot is set.
type Config struct {
	// Memory of the guest, in bytes.
	Memory int64
	Disk   []byte // a raw disk; the machine writes to it
	CD     []byte // an ISO image
	// Kernel is a bzImage, Initrd its initial file system (may be empty), and CommandLine its
	// command line.
	Kernel, Initrd []byte
	CommandLine    string
	// Snapshot is a saved machine.
	Snapshot *Snapshot
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

// ErrHalted is the error of a machine whose processor is halted with interrupts disabled: it can
// never continue.
var ErrHalted = errors.New("the machine has halted")

// ownMemory bounds the emulator's linear memory besides the guest's memory, in bytes. The display's
// memory is part of it.
const ownMemory = 512 << 20

// displayMemory is the size of the display's memory, in bytes.
const displayMemory = 2 << 20

// The I/O ports and interrupt lines of the serial ports.
const (
	com1, irq1 = 0x3f8, 4
	com2, irq2 = 0x2f8, 3
)

// New creates a machine that is paused. ctx bounds the creation only.
func (e *Emulator) New(ctx context.Context, cfg Config) (*Machine, error) {
	m := &Machine{ctx: context.WithoutCancel(ctx)}
	if cfg.Snapshot != nil {
		m.clock.set(cfg.Snapshot.Clock)
	}
	m.Console = newPort(com1, func(raise bool) { m.core.irq(m.ctx, irq1, raise) })
	m.Channel = newPort(com2, func(raise bool) { m.core.irq(m.ctx, irq2, raise) })
	var err error
	if m.script, err = newScript(m.clock.now); err != nil {
		return nil, err
	}
	if m.core, err = newCore(m.ctx, e, m, m.script, cfg.Memory+ownMemory); err != nil {
		return nil, err
	}
	if err := m.build(ctx, e, cfg); err != nil {
		m.Close()
		return nil, err
	}
	if cfg.Snapshot != nil {
		m.Console.restore(cfg.Snapshot.Console)
		m.Channel.restore(cfg.Snapshot.Channel)
	}
	return m, nil
}

// Close frees the machine.
func (m *Machine) Close() { m.core.close(m.ctx) }

// port returns the serial port with an I/O port, or nil.
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
func (m *Machine) build(ctx context.Context, e *Emulator, cfg Config) error {
	vm := m.script.vm
	if _, err := vm.RunProgram(e.script); err != nil {
		return fmt.Errorf("the emulator: %w", err)
	}
	loaded := false
	if err := vm.Set("__loaded", func() { loaded = true }); err != nil {
		return err
	}
	if err := vm.Set("__options", m.options(e.program, cfg)); err != nil {
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
			return errors.New("the emulator has no timer left and has not loaded")
		case ctx.Err() != nil:
			return ctx.Err()
		case wait > 0:
			m.clock.advance(wait) // nothing else runs, so the clock jumps to the next timer
		}
	}
	return nil
}

// options returns the options of the emulator's constructor.
func (m *Machine) options(p Program, cfg Config) map[string]any {
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
	if cfg.Snapshot != nil {
		o["initial_state"] = file(cfg.Snapshot.State)
	} else {
		o["bios"], o["vga_bios"] = file(p.BIOS), file(p.VGA)
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

// Run starts the machine's clock.
func (m *Machine) Run() { m.clock.run() }

// Pause stops the machine's clock.
func (m *Machine) Pause() { m.clock.pause() }

// Clock returns the time for which the machine has run, including the time before it was saved.
func (m *Machine) Clock() time.Duration { return m.clock.duration() }

// Step runs the machine for about a millisecond. It returns how long the guest will be idle unless
// a port receives input. After an error the machine must be closed.
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

// Compiled returns the number and the total size of the modules that were generated from the
// guest's code. They are freed when the machine is closed.
func (m *Machine) Compiled() (modules, bytes int) { return m.core.jit.modules, m.core.jit.bytes }
