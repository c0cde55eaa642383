package machine

import (
	"container/heap"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dop251/goja"
)

// environment is the global scope of the emulator's JavaScript. Interfaces for a screen, a page, a
// network or files are absent, and the emulator tests for them.
const environment = `
var module = { exports: {} }, process = {}, globalThis = this, global = this;
var performance = { now: __now };
var console = { log() {}, warn() {}, error() {}, trace() {}, assert(ok, text) { if (!ok) throw new Error("assertion failed: " + text); } };
var crypto = { getRandomValues(a) { new Uint8Array(a.buffer, a.byteOffset, a.byteLength).set(new Uint8Array(__random(a.byteLength))); return a; } };
function TextEncoder() {}
TextEncoder.prototype.encode = s => new Uint8Array(__encode(s));
function TextDecoder() {}
TextDecoder.prototype.decode = v => v === undefined ? "" : v instanceof ArrayBuffer ? __decode(v, 0, v.byteLength) : __decode(v.buffer, v.byteOffset, v.byteLength);
function AbortController() {
	this.signal = { aborted: false, addEventListener() {}, removeEventListener() {}, throwIfAborted() {} };
	this.abort = () => { this.signal.aborted = true; };
}
var WebAssembly = { Table: function () { this.set = () => {}; this.get = () => null; } };
`

// patches are the changes to the emulator's JavaScript. If a process object exists, it imports
// modules of Node, which a script cannot do. And it loads an initial file system at 64 MiB, beyond
// the end of a small machine's memory. Each text must occur exactly count times.
var patches = [...]struct {
	old, new string
	count    int
}{
	{`import("node:`, `__missing("node:`, 2},
	{`c&&(h=67108864,e=c.byteLength`, `c&&(h=__initrd(a.length,c.byteLength),e=c.byteLength`, 1},
	{`a.initrd?67108864:1048576`, `1048576`, 1},
}

// patch returns the emulator's JavaScript with all patches.
func patch(script string) (string, error) {
	for _, p := range patches {
		if strings.Count(script, p.old) != p.count {
			return "", fmt.Errorf("the emulator's script is of another version: it does not contain %q as expected", p.old)
		}
		script = strings.ReplaceAll(script, p.old, p.new)
	}
	return script, nil
}

// script is the emulator's JavaScript and its event loop.
type script struct {
	vm     *goja.Runtime
	now    func() float64 // milliseconds of the machine's time
	timers timers
	last   int
	err    error // the first uncaught error
}

// newScript creates the environment.
func newScript(now func() float64) (*script, error) {
	s := &script{vm: goja.New(), now: now}
	s.vm.SetMaxCallStackSize(4000)
	s.vm.SetPromiseRejectionTracker(func(p *goja.Promise, op goja.PromiseRejectionOperation) {
		if op == goja.PromiseRejectionReject {
			s.fail(fmt.Errorf("the emulator: %v", p.Result()))
		}
	})
	for name, value := range map[string]any{
		"__now":    now,
		"__random": s.random,
		"__encode": func(text string) goja.ArrayBuffer { return s.vm.NewArrayBuffer([]byte(text)) },
		"__decode": func(b goja.ArrayBuffer, from, n int) string {
			return strings.ToValidUTF8(string(b.Bytes()[from:from+n]), "\uFFFD")
		},
		"__initrd":     initrdAddress,
		"__missing":    func() *goja.Object { panic(s.vm.NewTypeError("modules are not supported")) },
		"setTimeout":   s.setTimeout,
		"clearTimeout": s.clearTimeout,
		"setImmediate": s.setTimeout,
		// Only features that are not used here repeat a call.
		"setInterval":   func(goja.FunctionCall) goja.Value { return s.vm.ToValue(0) },
		"clearInterval": func(goja.FunctionCall) goja.Value { return goja.Undefined() },
	} {
		if err := s.vm.Set(name, value); err != nil {
			return nil, err
		}
	}
	_, err := s.vm.RunScript("environment", environment)
	return s, err
}

// initrdAddress returns the address of an initial file system: page-aligned, at the end of memory,
// and below the highest address that every kernel accepts (initrd_addr_max,
// Documentation/arch/x86/boot.rst).
func initrdAddress(memory, size int64) int64 {
	const highest = 0x37ffffff
	return max((min(memory, highest)-size)&^0xfff, 0)
}

func (s *script) random(n int) goja.ArrayBuffer {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return s.vm.NewArrayBuffer(b)
}

// fail records an uncaught error.
func (s *script) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// timer is a function and the time of its call.
type timer struct {
	at   float64
	id   int
	call func() error
}

// timers is a heap with the earliest timer first.
type timers []*timer

func (h timers) Len() int { return len(h) }
func (h timers) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].id < h[j].id
}
func (h timers) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *timers) Push(x any) { *h = append(*h, x.(*timer)) }

// Pop implements heap.Interface.
func (h *timers) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

func (s *script) setTimeout(c goja.FunctionCall) goja.Value {
	f, ok := goja.AssertFunction(c.Argument(0))
	if !ok {
		panic(s.vm.NewTypeError("not a function"))
	}
	var args []goja.Value // copy, because goja reuses c.Arguments
	if len(c.Arguments) > 2 {
		args = append(args, c.Arguments[2:]...)
	}
	delay := 0.0
	if len(c.Arguments) > 1 {
		delay = max(c.Argument(1).ToFloat(), 0) // NaN stays NaN and is due at once
	}
	s.last++
	heap.Push(&s.timers, &timer{s.now() + delay, s.last, func() error {
		_, err := f(goja.Undefined(), args...)
		return err
	}})
	return s.vm.ToValue(s.last)
}

func (s *script) clearTimeout(c goja.FunctionCall) goja.Value {
	id := int(c.Argument(0).ToInteger())
	for i, t := range s.timers {
		if t.id == id {
			heap.Remove(&s.timers, i)
			break
		}
	}
	return goja.Undefined()
}

// run calls all timers that are due. It returns the first uncaught error.
func (s *script) run() error {
	for len(s.timers) > 0 && !(s.timers[0].at > s.now()) && s.err == nil {
		t := heap.Pop(&s.timers).(*timer)
		if err := t.call(); err != nil {
			s.fail(fmt.Errorf("the emulator: %w", err))
		}
	}
	return s.err
}

// next returns the time until the next timer; false if there is none.
func (s *script) next() (time.Duration, bool) {
	if len(s.timers) == 0 {
		return 0, false
	}
	return time.Duration(max(s.timers[0].at-s.now(), 0) * float64(time.Millisecond)), true
}

// promiseResult returns the result of a promise, which must be settled.
func promiseResult(v goja.Value) (goja.Value, error) {
	p, ok := v.Export().(*goja.Promise)
	if !ok {
		return v, nil
	}
	switch p.State() {
	case goja.PromiseStateFulfilled:
		return p.Result(), nil
	case goja.PromiseStateRejected:
		return nil, fmt.Errorf("the emulator: %v", p.Result())
	}
	return nil, errors.New("the emulator's promise is still pending")
}
