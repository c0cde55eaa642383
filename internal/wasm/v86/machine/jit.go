package machine

import (
	"context"
	"fmt"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// jit compiles the WebAssembly modules that the core generates from the guest's code. A goroutine
// compiles them; until then, the core interprets that code.
type jit struct {
	core *core
	ctx  context.Context

	work chan generated
	done chan generated
	end  sync.WaitGroup

	// All compiled modules, which are kept until the core is closed: an entry of the function table
	// refers to its module, and cannot be removed.
	kept    []compiled
	modules int
	bytes   int
	closed  bool
}

// generated is a module that is being compiled.
type generated struct {
	slot, start, flags uint32
	code               []byte
	module             compiled
	err                error
}

// backlog is larger than the number of modules that the core has in progress at once.
const backlog = 64

func newJIT(ctx context.Context, c *core) *jit {
	j := &jit{core: c, ctx: ctx, work: make(chan generated, backlog), done: make(chan generated, backlog)}
	j.end.Go(func() {
		for g := range j.work {
			g.module, g.err = compile(ctx, c.rt, g.code)
			j.done <- g
		}
	})
	return j
}

// compiled is a module and the number of references that the runtime's cache holds on it.
type compiled struct {
	wazero.CompiledModule
	count int
}

// compile compiles a module. A runtime with a cache on disk writes every compiled module to it. A
// confined process must not, so the first call fails, but only after the result is in the cache in
// memory, where the second call finds it. Thus a confined process never writes the guest's code to
// disk.
func compile(ctx context.Context, rt wazero.Runtime, code []byte) (compiled, error) {
	m, err := rt.CompileModule(ctx, code)
	if err == nil {
		return compiled{m, 1}, nil
	}
	m, err = rt.CompileModule(ctx, code)
	return compiled{m, 2}, err
}

// keep keeps a module until the core is closed.
func (j *jit) keep(m compiled) { j.kept = append(j.kept, m) }

// free frees all kept modules. Closing a runtime does not, if it shares its cache with others.
func (j *jit) free() {
	for _, m := range j.kept {
		for range m.count {
			_ = m.Close(j.ctx)
		}
	}
	j.kept = nil
}

// compile queues a module that the core has generated.
func (j *jit) compile(mod api.Module, st []uint64) {
	g := generated{slot: uint32(st[0]), start: uint32(st[1]), flags: uint32(st[2])}
	code, ok := mod.Memory().Read(uint32(st[3]), uint32(st[4]))
	if !ok || g.slot >= tableGenerated {
		panic("the emulator generated an invalid module")
	}
	g.code, g.err = withElement(code, envName, tableName, tableCore+g.slot)
	if g.err != nil {
		panic(g.err)
	}
	select {
	case j.work <- g:
	default:
		panic("the emulator generated more than 64 modules at once")
	}
}

// install instantiates all modules that have been compiled, so that the core can call them.
func (j *jit) install() error {
	for {
		select {
		case g := <-j.done:
			if err := j.put(g); err != nil {
				return fmt.Errorf("compiling the guest's code: %w", err)
			}
		default:
			return nil
		}
	}
}

func (j *jit) put(g generated) error {
	if g.err != nil {
		return g.err
	}
	j.keep(g.module)
	if _, err := j.core.rt.InstantiateModule(j.ctx, g.module.CompiledModule, named("")); err != nil {
		return err
	}
	j.modules++
	j.bytes += len(g.code)
	_, err := j.core.finished.Call(j.ctx, uint64(g.slot), uint64(g.start), uint64(g.flags))
	return err
}

// close waits until no module is being compiled.
func (j *jit) close() {
	if j.closed {
		return
	}
	j.closed = true
	close(j.work)
	go func() {
		j.end.Wait()
		close(j.done)
	}()
	for g := range j.done {
		if g.err == nil {
			j.keep(g.module)
		}
	}
}
