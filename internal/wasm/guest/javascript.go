package guest

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"
)

// javascript is the compiled interpreter of JavaScript.
type javascript struct {
	runtime wazero.Runtime
	module  wazero.CompiledModule
	saved   *savedVM
}

// savedVM is a snapshot of a virtual machine that has evaluated only the prelude: its linear
// memory, and the addresses of the prelude's functions.
type savedVM struct {
	memory []byte
	entry  entry
}

// preludeFiles are what makes QuickJS look like Node.js.
//
//go:embed js
var preludeFiles embed.FS

// prelude returns all of them as one function of the runner's host function.
func prelude() (string, error) {
	names, err := fs.Glob(preludeFiles, "js/*.js")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("(function (host) { 'use strict';\n")
	for _, name := range names { // sorted
		text, err := preludeFiles.ReadFile(name)
		if err != nil {
			return "", err
		}
		b.Write(text)
	}
	b.WriteString("})")
	return b.String(), nil
}

func newJavaScript(ctx context.Context, cache string, module []byte) (engine, error) {
	rt, err := newRuntime(ctx, cache)
	if err != nil {
		return nil, err
	}
	if err := exportWASI(ctx, rt); err != nil {
		return nil, err
	}
	if err := exportHost(ctx, rt); err != nil {
		return nil, err
	}
	compiled, err := rt.CompileModule(ctx, module)
	if err != nil {
		return nil, err
	}
	j := &javascript{runtime: rt, module: compiled}
	return j, j.prepare()
}

// prepare creates the snapshot from which programs start.
func (j *javascript) prepare() (err error) {
	text, err := prelude()
	if err != nil {
		return err
	}
	m := &machine{began: time.Now()}
	m.memory.limit, m.memory.grant = templateMemory, func(int64) bool { return true }
	defer m.memory.Free()
	v, err := j.instance(m.context(), m)
	if err != nil {
		return err
	}
	defer v.mod.Close(v.ctx)
	defer v.stopped(&err)
	v.load(text)
	image, _ := v.mem.Read(0, v.mem.Size())
	j.saved = &savedVM{slices.Clone(image), v.entry}
	return nil
}

// templateMemory is the memory for creating the snapshot, in bytes, far more than it needs.
const templateMemory = 64 << 20

// instance creates a new virtual machine.
func (j *javascript) instance(ctx context.Context, m *machine) (*vm, error) {
	v := &vm{m: m, rejections: map[uint64]rejection{}}
	v.ctx = context.WithValue(ctx, vmKey{}, v)
	var err error
	if v.mod, err = j.runtime.InstantiateModule(v.ctx, j.module, wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize")); err != nil {
		return nil, err
	}
	v.mem = v.mod.Memory()
	return v, nil
}

// vmKey is the context key of the vm.
type vmKey struct{}

func (j *javascript) run(ctx context.Context, m *machine) (code uint8, err error) {
	if !m.need(j.module) {
		return 0, errMemory
	}
	v, err := j.instance(ctx, m)
	if err != nil {
		return 0, err
	}
	defer v.mod.Close(ctx)
	if !v.restore(j.saved) {
		return 0, errMemory
	}
	defer func() {
		if err != nil {
			code, err = verdict(m, err)
		}
	}()
	defer v.stopped(&err)
	return v.program(), nil
}

// restore sets the machine to a snapshot.
func (v *vm) restore(s *savedVM) bool {
	if more := len(s.memory) - int(v.mem.Size()); more > 0 {
		if _, ok := v.mem.Grow(uint32(more / pageSize)); !ok {
			return false
		}
	}
	v.entry = s.entry
	return v.mem.Write(0, s.memory)
}

// stopped converts the panic that ended a machine to an error.
func (v *vm) stopped(err *error) {
	if p := recover(); p != nil {
		h, ok := p.(halt)
		if !ok {
			panic(p)
		}
		*err = h.err
	}
}

// halt is the panic that ends a virtual machine: the program has exited, or failed in a way that
// JavaScript cannot catch.
type halt struct{ err error }

// verdict returns the exit code for the error that ended a machine.
func verdict(m *machine, err error) (uint8, error) {
	if exit, ok := errors.AsType[*sys.ExitError](err); ok {
		return uint8(exit.ExitCode()), nil
	}
	if m.memory.denied {
		m.stderr("node: out of memory\n")
		return abortCode, nil
	}
	return 0, err
}

// abortCode is the exit code of an aborted program.
const abortCode = 134

// rejection is a rejected promise without a handler.
type rejection struct{ promise, reason value }

// value is a JavaScript value: an address in linear memory, 0 for none.
type value = uint64

// vm is one virtual machine.
type vm struct {
	m   *machine
	ctx context.Context
	mod api.Module
	mem api.Memory

	depth      int // nesting of host functions
	functions  []map[string]api.Function
	order      []uint64 // keys of rejections in order
	rejections map[uint64]rejection

	entry
}

// entry has the functions of the prelude.
type entry struct{ begin, tick, step, failed, rejected, normalizeImport, importText value }

// call calls an exported function of QuickJS. A nested call uses another function instance, since
// an instance has one stack.
func (v *vm) call(name string, args ...uint64) uint64 {
	for len(v.functions) <= v.depth {
		v.functions = append(v.functions, map[string]api.Function{})
	}
	f := v.functions[v.depth][name]
	if f == nil {
		if f = v.mod.ExportedFunction(name); f == nil {
			panic(halt{fmt.Errorf("the module has no function %s", name)})
		}
		v.functions[v.depth][name] = f
		v.m.used += 16 << 10
	}
	results, err := f.Call(v.ctx, args...)
	if err != nil {
		panic(halt{err})
	}
	if len(results) == 0 {
		return 0
	}
	return results[0]
}

// errQuickJS: QuickJS failed at a basic operation.
var errQuickJS = errors.New("the JavaScript interpreter has failed")

// alloc allocates n bytes of linear memory.
func (v *vm) alloc(n int) uint32 {
	p := uint32(v.call("wasm_malloc", uint64(max(n, 1))))
	if p == 0 {
		panic(halt{errQuickJS})
	}
	return p
}

// bytes copies b to linear memory, with a trailing NUL.
func (v *vm) bytes(b []byte) (ptr, n uint64) {
	p := v.alloc(len(b) + 1)
	v.mem.Write(p, b)
	v.mem.WriteByte(p+uint32(len(b)), 0)
	return uint64(p), uint64(len(b))
}

func (v *vm) release(ptr uint64) { v.call("wasm_free", ptr) }
func (v *vm) drop(x value)       { v.call("qjs_free_value", x) }

// text returns the text of a value.
func (v *vm) text(x value) string {
	size := v.alloc(4)
	defer v.release(uint64(size))
	p := uint32(v.call("qjs_get_string_len", x, uint64(size)))
	if p == 0 {
		return ""
	}
	n, _ := v.mem.ReadUint32Le(size)
	b, _ := v.mem.Read(p, n)
	s := string(b)
	v.m.used += len(s)
	v.call("qjs_free_cstring", uint64(p))
	return s
}

func (v *vm) number(x value) float64 { return api.DecodeF64(v.call("qjs_get_float64", x)) }

func (v *vm) newNumber(n float64) value { return v.call("qjs_new_number", api.EncodeF64(n)) }

func (v *vm) newText(s string) value {
	p, n := v.bytes([]byte(s))
	defer v.release(p)
	return v.call("qjs_new_string", p, n)
}

func (v *vm) newBytes(b []byte) value {
	p, n := v.bytes(b)
	defer v.release(p)
	return v.call("qjs_new_uint8_array", p, n)
}

func (v *vm) undefined() value { return v.call("qjs_get_undefined") }

// array returns a view of the bytes of a Uint8Array, false for any other value.
func (v *vm) array(x value) ([]byte, bool) {
	at := v.alloc(16)
	defer v.release(uint64(at))
	buffer := v.call("qjs_get_typed_array_buffer", x, uint64(at), uint64(at+4), uint64(at+8))
	defer v.drop(buffer)
	if v.isException(buffer) {
		v.drop(v.call("qjs_get_exception"))
		return nil, false
	}
	data := uint32(v.call("qjs_get_array_buffer", buffer, uint64(at+12)))
	offset, _ := v.mem.ReadUint32Le(at)
	n, _ := v.mem.ReadUint32Le(at + 4)
	if data == 0 {
		return nil, n == 0
	}
	return v.mem.Read(data+offset, n)
}

func (v *vm) isException(x value) bool { return uint32(v.call("qjs_is_exception", x)) != 0 }
func (v *vm) isString(x value) bool    { return uint32(v.call("qjs_is_string", x)) != 0 }

// eval evaluates a text.
func (v *vm) eval(text, file string, flags uint64) value {
	code, n := v.bytes([]byte(text))
	defer v.release(code)
	name, _ := v.bytes([]byte(file))
	defer v.release(name)
	return v.call("qjs_eval", code, n, name, flags)
}

// invoke calls a JavaScript function. The result may be an exception.
func (v *vm) invoke(f value, args ...value) value {
	list := v.alloc(4 * len(args))
	defer v.release(uint64(list))
	for i, a := range args {
		v.mem.WriteUint32Le(list+uint32(4*i), uint32(a))
	}
	self := v.undefined()
	defer v.drop(self)
	return v.call("qjs_call", f, self, uint64(len(args)), uint64(list))
}

// property returns a property of an object.
func (v *vm) property(object value, name string) value {
	p, _ := v.bytes([]byte(name))
	defer v.release(p)
	return v.call("qjs_get_prop_string", object, p)
}

// jsStack is the stack size at which QuickJS throws an exception, in bytes.
const jsStack = 768 << 10

// program runs the program and returns its exit code.
func (v *vm) program() uint8 {
	v.guard(v.begin)
	for {
		v.settle()
		switch wait := v.guard(v.step); {
		case wait == -2:
		case wait < 0:
			return v.exitCode()
		default:
			sleep(wait)
		}
	}
}

// load evaluates the prelude and stores the functions that it returns.
func (v *vm) load(prelude string) {
	if v.call("qjs_init") != 0 {
		panic(halt{errQuickJS})
	}
	v.call("qjs_set_max_stack_size", jsStack)
	v.call("qjs_set_promise_rejection_handler", 1)
	v.call("qjs_set_module_loader", 1)
	must := func(x value) value {
		if v.isException(x) {
			e := v.call("qjs_get_exception")
			panic(halt{fmt.Errorf("%w: %s", errQuickJS, v.text(e))})
		}
		return x
	}
	f := must(v.eval(prelude, "node", 0))
	name, n := v.bytes([]byte("host"))
	defer v.release(name)
	host := v.call("qjs_new_host_function", name, n, 0)
	api := must(v.invoke(f, host))
	for name, at := range map[string]*value{"begin": &v.begin, "tick": &v.tick, "step": &v.step, "failed": &v.failed,
		"rejected": &v.rejected, "normalizeImport": &v.normalizeImport, "importText": &v.importText} {
		*at = v.property(api, name)
	}
}

// guard calls a function of the prelude and returns its number. An exception counts as uncaught by
// the program.
func (v *vm) guard(f value) float64 {
	result := v.invoke(f)
	if v.isException(result) {
		v.uncaught(v.call("qjs_get_exception"))
		return -2
	}
	defer v.drop(result)
	return v.number(result)
}

// uncaught reports an error to the prelude, and ends the program unless the prelude wants to
// continue.
func (v *vm) uncaught(e value) {
	origin := v.newText("uncaughtException")
	v.decide(v.invoke(v.failed, e, origin))
	v.drop(origin)
	v.drop(e)
}

// decide ends the program unless the prelude's answer is 1.
func (v *vm) decide(goesOn value) {
	if v.isException(goesOn) {
		// the report failed too, for lack of memory
		panic(halt{errQuickJS})
	}
	defer v.drop(goesOn)
	if v.number(goesOn) != 1 {
		panic(halt{sys.NewExitError(uint32(v.exitCode()))})
	}
}

// settle runs deferred work: nextTick, then promise jobs, until none is left, and then reports
// unhandled rejections.
func (v *vm) settle() {
	for {
		n := v.guard(v.tick)
		jobs := 0
		for v.call("qjs_is_job_pending") != 0 {
			if int32(v.call("qjs_execute_pending_job")) < 0 {
				v.uncaught(v.call("qjs_get_exception"))
			}
			jobs++
		}
		if n == 0 && jobs == 0 {
			if len(v.rejections) == 0 {
				return
			}
			v.reject()
		}
	}
}

// reject reports the first unhandled rejection to the prelude.
func (v *vm) reject() {
	for len(v.order) > 0 {
		key := v.order[0]
		v.order = v.order[1:]
		if r, ok := v.rejections[key]; ok {
			delete(v.rejections, key)
			v.decide(v.invoke(v.rejected, r.promise, r.reason))
			v.drop(r.promise)
			v.drop(r.reason)
			return
		}
	}
}

// exitCode returns process.exitCode.
func (v *vm) exitCode() uint8 {
	x := v.eval("process.exitCode === undefined || process.exitCode === null ? 0 : Number(process.exitCode) & 255", "node", 0)
	if v.isException(x) {
		return 1
	}
	return uint8(int64(v.number(x)))
}
