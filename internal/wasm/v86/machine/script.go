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

// environment is what the emulator's JavaScript finds around it: as little as
// it needs. What it has no use for here (a screen, a page, a network, files) is
// missing, and it asks before it uses them.
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

// patches are the changes to the emulator's JavaScript: it imports modules of
// Node where it finds a process, which a script cannot do, and it puts an
// initial file system behind 64 MiB, which not every machine has. Each must be
// there, this many times.
var patches = [...]struct {
	old, new string
	count    int
}{
	{`import("node:`, `__missing("node:`, 2},
	{`c&&(h=67108864,e=c.byteLength`, `c&&(h=__initrd(a.length,c.byteLength),e=c.byteLength`, 1},
	{`a.initrd?67108864:1048576`, `1048576`, 1},
}

// patch returns the emulator's JavaScript as it can be run here.
func patch(script string) (string, error) {
	for _, p := range patches {
		if strings.Count(script, p.old) != p.count {
			return "", fmt.Errorf("the emulator's script is not the one this was made for: it does not have %q", p.old)
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
	err    error // the first one that nobody caught
}

// newScript makes the environment.
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
		"__missing":    func() *goja.Object { panic(s.vm.NewTypeError("there are no modules")) },
		"setTimeout":   s.setTimeout,
		"clearTimeout": s.clearTimeout,
		"setImmediate": s.setTimeout,
		// Only what is never run here repeats something.
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

// initrdAddress is where an initial file system goes: as high as it can, at the
// border of a page, and where every kernel can reach it.
func initrdAddress(memory, size int64) int64 {
	const highest = 0x37ffffff
	return max((min(memory, highest)-size)&^0xfff, 0)
}

func (s *script) random(n int) goja.ArrayBuffer {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return s.vm.NewArrayBuffer(b)
}

// fail notes an error that nobody caught.
func (s *script) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// timer is a function that is called later.
type timer struct {
	at   float64
	id   int
	call func() error
}

// timers is a heap, the next one first.
type timers []*timer

func (h timers) Len() int { return len(h) }
func (h timers) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].id < h[j].id
}
func (h timers) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is for package heap.
func (h *timers) Push(x any) { *h = append(*h, x.(*timer)) }

// Pop is for package heap.
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
	var args []goja.Value // goja uses its own again
	if len(c.Arguments) > 2 {
		args = append(args, c.Arguments[2:]...)
	}
	delay := 0.0
	if len(c.Arguments) > 1 {
		delay = max(c.Argument(1).ToFloat(), 0) // of NaN: NaN, which is before all
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

// run calls what is due. An error is one that nobody caught, which is the end.
func (s *script) run() error {
	for len(s.timers) > 0 && !(s.timers[0].at > s.now()) && s.err == nil {
		t := heap.Pop(&s.timers).(*timer)
		if err := t.call(); err != nil {
			s.fail(fmt.Errorf("the emulator: %w", err))
		}
	}
	return s.err
}

// next is how long it is until something is due; false if nothing ever is.
func (s *script) next() (time.Duration, bool) {
	if len(s.timers) == 0 {
		return 0, false
	}
	return time.Duration(max(s.timers[0].at-s.now(), 0) * float64(time.Millisecond)), true
}

// settled is the value of a promise, once it has one.
func settled(v goja.Value) (goja.Value, error) {
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
	return nil, errors.New("the emulator did not finish what it was asked")
}
