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

// The names of the modules in the runtime.
const (
	hostName      = "host" // the functions of this file
	envName       = "env"  // the same and the table, as the core imports them
	coreName      = "core"
	generatedName = "e" // the core's functions, as generated modules import them
	tableName     = "__indirect_function_table"
)

// Sizes of the table of functions: the core's own, followed by a slot for each generated module.
const (
	tableCore      = 1024
	tableGenerated = 900
)

// core is the instantiated WebAssembly of the emulator and its interface to JavaScript.
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

// newCore creates a runtime for the core, with that many bytes of linear memory at most.
func newCore(ctx context.Context, e *Emulator, m *Machine, s *script, limit int64) (*core, error) {
	c := &core{m: m, script: s, rt: e.runtime(ctx), memory: &memory{limit: limit}}
	var err error
	if c.compiled, err = c.rt.CompileModule(ctx, e.program.Core); err != nil { // returns the code that Load has compiled
		_ = c.rt.Close(ctx)
		return nil, fmt.Errorf("compiling the emulator: %w", err)
	}
	c.jit = newJIT(ctx, c)
	return c, nil
}

// close frees the core and every module.
func (c *core) close(ctx context.Context) {
	c.jit.close()
	_ = c.rt.Close(ctx) // nothing uses it any more
	c.jit.free()
	_ = c.compiled.Close(ctx)
}

// instantiate implements WebAssembly.instantiate for the emulator's JavaScript: imports are the
// functions that the core imports, and the result has those that it exports.
func (c *core) instantiate(ctx context.Context, imports *goja.Object) (*goja.Object, error) {
	env, ok := imports.Get(envName).(*goja.Object)
	if !ok || c.module != nil {
		return nil, errors.New("the emulator instantiates a second module or has no imports")
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

// export makes the core's functions callable: by JavaScript if all their types are numbers there,
// and by generated modules if the emulator exports them for that.
func (c *core) export(ctx context.Context) error {
	c.exports = c.script.vm.NewObject()
	forGenerated := relay{from: coreName, memory: "memory", memoryAs: "m"}
	for name, d := range c.compiled.ExportedFunctions() {
		if !strings.HasPrefix(name, "_") && !strings.HasPrefix(name, "zstd") && !strings.HasSuffix(name, "_js") {
			forGenerated.functions = append(forGenerated.functions, function{name, d.ParamTypes(), d.ResultTypes()})
		}
		if !numeric(d.ParamTypes()) || !numeric(d.ResultTypes()) {
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

// add instantiates a module that this package has assembled.
func (c *core) add(ctx context.Context, module []byte, name string) error {
	m, err := compile(ctx, c.rt, module)
	if err == nil {
		c.jit.keep(m)
		_, err = c.rt.InstantiateModule(ctx, m.CompiledModule, named(name))
	}
	return err
}

// numeric reports whether all of these types are JavaScript numbers.
func numeric(types []api.ValueType) bool {
	for _, t := range types {
		if t != api.ValueTypeI32 && t != api.ValueTypeF64 && t != api.ValueTypeF32 {
			return false
		}
	}
	return true
}

// toScript and fromScript convert WebAssembly's numbers to JavaScript's and back.
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

// hostFunction returns a function that the core imports: an implementation in Go, or the one of the
// emulator's JavaScript.
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
		// The caller of Step decides when the machine runs, and the core never calls a cleared
		// slot.
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

// inScript returns a function that calls a JavaScript function. An exception ends the core's call
// with an error.
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

// scriptFunction returns one of the core's functions for JavaScript. Calls can be nested, and an
// api.Function is not reentrant, so each active call has its own.
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

// memoryObject returns the core's memory for JavaScript, without a copy. The memory never moves,
// but it can grow.
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
	_ = o.DefineAccessorProperty("buffer", get, nil, goja.FLAG_FALSE, goja.FLAG_TRUE) // cannot fail for a new object
	return o
}

// loop runs the processor for about a millisecond and returns how long it will be idle, in
// milliseconds.
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
		return // the core is not instantiated yet
	}
	if _, err := f.Call(ctx, line); err != nil {
		c.script.fail(fmt.Errorf("the emulator: %w", err))
	}
}
