package machine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/dop251/goja"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// The names under which the modules know each other.
const (
	hostName      = "host" // the functions of this file
	envName       = "env"  // the same and the table, as the core imports them
	coreName      = "core"
	generatedName = "e" // the core's functions, as generated modules import them
	tableName     = "__indirect_function_table"
)

// The table of functions: the core's own, then a slot for each generated module.
const (
	tableCore      = 1024
	tableGenerated = 900
)

// core is the emulator's WebAssembly, instantiated, and its JavaScript's view.
type core struct {
	m      *Machine
	script *script
	rt     wazero.Runtime
	memory *memory

	compiled wazero.CompiledModule
	module   api.Module
	exports  *goja.Object

	mainLoop, raise, lower, finished api.Function
	loopStack                        [1]uint64
	jit                              *jit
}

// newCore makes a runtime for the core.
func newCore(ctx context.Context, e *Emulator, m *Machine, s *script, limit int64) (*core, error) {
	c := &core{m: m, script: s, rt: e.runtime(ctx), memory: &memory{limit: limit}}
	var err error
	if c.compiled, err = c.rt.CompileModule(ctx, e.program.Core); err != nil { // done before
		_ = c.rt.Close(ctx)
		return nil, fmt.Errorf("compiling the emulator: %w", err)
	}
	c.jit = newJIT(ctx, c)
	return c, nil
}

// close gives everything back.
func (c *core) close(ctx context.Context) {
	c.jit.close()
	_ = c.rt.Close(ctx) // nothing of it is used any more
	c.jit.forget()
	_ = c.compiled.Close(ctx)
}

// instantiate is what the emulator's JavaScript calls with the functions it has
// for the core, and which gives it the core's.
func (c *core) instantiate(ctx context.Context, imports *goja.Object) (*goja.Object, error) {
	env, ok := imports.Get(envName).(*goja.Object)
	if !ok || c.module != nil {
		return nil, errors.New("the emulator asks for something else")
	}
	host := c.rt.NewHostModuleBuilder(hostName)
	relayed := relay{from: hostName, table: tableCore + tableGenerated, tableName: tableName}
	for _, d := range c.compiled.ImportedFunctions() {
		_, name, _ := d.Import()
		f, err := c.hostFunction(name, d, env)
		if err != nil {
			return nil, err
		}
		host.NewFunctionBuilder().WithGoModuleFunction(f, d.ParamTypes(), d.ResultTypes()).Export(name)
		relayed.functions = append(relayed.functions, function{name, d.ParamTypes(), d.ResultTypes()})
	}
	if _, err := host.Instantiate(ctx); err != nil {
		return nil, err
	}
	if err := c.add(ctx, relayed.bytes(), envName); err != nil {
		return nil, err
	}
	var err error
	c.module, err = c.rt.InstantiateModule(experimental.WithMemoryAllocator(ctx, c.memory), c.compiled, named(coreName))
	if err != nil {
		return nil, err
	}
	for name, f := range map[string]*api.Function{"main_loop": &c.mainLoop, "device_raise_irq": &c.raise,
		"device_lower_irq": &c.lower, "codegen_finalize_finished": &c.finished} {
		if *f = c.module.ExportedFunction(name); *f == nil {
			return nil, fmt.Errorf("the emulator has no function %s", name)
		}
	}
	return c.exports, c.export(ctx)
}

func named(name string) wazero.ModuleConfig {
	return wazero.NewModuleConfig().WithName(name).WithStartFunctions()
}

// export makes the core's functions known: to JavaScript those it can call, and
// to generated modules those that the emulator gives them.
func (c *core) export(ctx context.Context) error {
	c.exports = c.script.vm.NewObject()
	forGenerated := relay{from: coreName, memory: "memory", memoryAs: "m"}
	for name, d := range c.compiled.ExportedFunctions() {
		if !strings.HasPrefix(name, "_") && !strings.HasPrefix(name, "zstd") && !strings.HasSuffix(name, "_js") {
			forGenerated.functions = append(forGenerated.functions, function{name, d.ParamTypes(), d.ResultTypes()})
		}
		if !plain(d.ParamTypes()) || !plain(d.ResultTypes()) {
			continue
		}
		if err := c.exports.Set(name, c.scriptFunction(ctx, name, d)); err != nil {
			return err
		}
	}
	if err := c.exports.Set("memory", c.memoryObject()); err != nil {
		return err
	}
	return c.add(ctx, forGenerated.bytes(), generatedName)
}

// add instantiates a module that was written here.
func (c *core) add(ctx context.Context, module []byte, name string) error {
	m, err := compile(ctx, c.rt, module)
	if err == nil {
		c.jit.keep(m)
		_, err = c.rt.InstantiateModule(ctx, m.CompiledModule, named(name))
	}
	return err
}

// plain reports whether JavaScript has all of these types as numbers.
func plain(types []api.ValueType) bool {
	for _, t := range types {
		if t != api.ValueTypeI32 && t != api.ValueTypeF64 && t != api.ValueTypeF32 {
			return false
		}
	}
	return true
}

// toScript and fromScript turn numbers into JavaScript's and back.
func (c *core) toScript(v uint64, t api.ValueType) goja.Value {
	switch t {
	case api.ValueTypeF64:
		return c.script.vm.ToValue(math.Float64frombits(v))
	case api.ValueTypeF32:
		return c.script.vm.ToValue(api.DecodeF32(v))
	}
	return c.script.vm.ToValue(int32(uint32(v)))
}

func fromScript(v goja.Value, t api.ValueType) uint64 {
	switch t {
	case api.ValueTypeF64:
		return math.Float64bits(v.ToFloat())
	case api.ValueTypeF32:
		return api.EncodeF32(float32(v.ToFloat()))
	}
	return uint64(uint32(v.ToInteger()))
}

// hostFunction is a function that the core imports: one of ours, or the one
// that the emulator's JavaScript has for it.
func (c *core) hostFunction(name string, d api.FunctionDefinition, env *goja.Object) (api.GoModuleFunc, error) {
	m := c.m
	switch name {
	case "microtick":
		return func(_ context.Context, _ api.Module, st []uint64) { st[0] = math.Float64bits(m.clock.now()) }, nil
	case "get_rand_int":
		return func(_ context.Context, _ api.Module, st []uint64) { st[0] = uint64(rand.Uint32()) }, nil
	case "cpu_event_halt":
		return func(context.Context, api.Module, []uint64) { m.script.fail(ErrHalted) }, nil
	case "stop_idling", "console_log_from_wasm", "jit_clear_func":
		// Whoever calls Step knows when to; a cleared slot is never called.
		return func(context.Context, api.Module, []uint64) {}, nil
	case "codegen_finalize":
		return func(_ context.Context, mod api.Module, st []uint64) { c.jit.compile(mod, st) }, nil
	}
	f, ok := goja.AssertFunction(env.Get(name))
	if !ok {
		return nil, fmt.Errorf("the emulator has no function %s for its core", name)
	}
	call := c.inScript(f, d)
	switch name {
	case "io_port_read8":
		return func(ctx context.Context, mod api.Module, st []uint64) {
			if p := m.port(uint32(st[0])); p != nil {
				st[0] = uint64(p.read(uint32(st[0])))
				return
			}
			call(ctx, mod, st)
		}, nil
	case "io_port_write8":
		return func(ctx context.Context, mod api.Module, st []uint64) {
			if p := m.port(uint32(st[0])); p != nil {
				p.write(uint32(st[0]), byte(st[1]))
				return
			}
			call(ctx, mod, st)
		}, nil
	}
	return call, nil
}

// inScript calls a JavaScript function. What it throws is the core's end.
func (c *core) inScript(f goja.Callable, d api.FunctionDefinition) api.GoModuleFunc {
	params, results := d.ParamTypes(), d.ResultTypes()
	return func(_ context.Context, _ api.Module, st []uint64) {
		args := make([]goja.Value, len(params))
		for i, t := range params {
			args[i] = c.toScript(st[i], t)
		}
		v, err := f(goja.Undefined(), args...)
		if err != nil {
			panic(err)
		}
		if len(results) > 0 {
			st[0] = fromScript(v, results[0])
		}
	}
}

// scriptFunction is one of the core's functions for JavaScript. A call can come
// while another is under way, so each has a function of its own.
func (c *core) scriptFunction(ctx context.Context, name string, d api.FunctionDefinition) func(goja.FunctionCall) goja.Value {
	params, results := d.ParamTypes(), d.ResultTypes()
	var idle []api.Function
	return func(call goja.FunctionCall) goja.Value {
		var f api.Function
		if n := len(idle); n > 0 {
			f, idle = idle[n-1], idle[:n-1]
		} else {
			f = c.module.ExportedFunction(name)
		}
		st := make([]uint64, max(len(params), len(results)))
		for i, t := range params {
			st[i] = fromScript(call.Argument(i), t)
		}
		if err := f.CallWithStack(ctx, st); err != nil {
			panic(c.script.vm.NewGoError(err))
		}
		idle = append(idle, f)
		if len(results) > 0 {
			return c.toScript(st[0], results[0])
		}
		return goja.Undefined()
	}
}

// memoryObject is the core's memory for JavaScript, which looks at the very
// bytes. It never moves, but it grows.
func (c *core) memoryObject() *goja.Object {
	var size uint32
	var buffer goja.Value
	o := c.script.vm.NewObject()
	get := c.script.vm.ToValue(func(goja.FunctionCall) goja.Value {
		if now := c.module.Memory().Size(); buffer == nil || now != size {
			b, _ := c.module.Memory().Read(0, now)
			size, buffer = now, c.script.vm.ToValue(c.script.vm.NewArrayBuffer(b))
		}
		return buffer
	})
	_ = o.DefineAccessorProperty("buffer", get, nil, goja.FLAG_FALSE, goja.FLAG_TRUE) // of a new object
	return o
}

// loop runs the processor for a while and returns how long it has nothing to
// do after that, in milliseconds.
func (c *core) loop(ctx context.Context) (float64, error) {
	if err := c.mainLoop.CallWithStack(ctx, c.loopStack[:]); err != nil {
		return 0, fmt.Errorf("the emulator: %w", err)
	}
	return math.Float64frombits(c.loopStack[0]), nil
}

// irq raises or lowers an interrupt line.
func (c *core) irq(ctx context.Context, line uint64, raise bool) {
	f := c.lower
	if raise {
		f = c.raise
	}
	if f == nil {
		return // nothing runs yet
	}
	if _, err := f.Call(ctx, line); err != nil {
		c.script.fail(fmt.Errorf("the emulator: %w", err))
	}
}
