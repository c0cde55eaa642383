package machine

import (
	"context"
	"fmt"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// jit makes functions of the WebAssembly that the core generates of the guest's
// code. Compiling is done beside the guest, which goes on slowly meanwhile.
type jit struct {
	core *core
	ctx  context.Context

	work chan generated
	done chan generated
	end  sync.WaitGroup

	// What has been made, which is kept until the core is closed: nothing can
	// be taken back from the table that a module was put into.
	kept    []compiled
	modules int
	bytes   int
	closed  bool
}

// generated is a module on its way.
type generated struct {
	slot, start, flags uint32
	code               []byte
	module             compiled
	err                error
}

// backlog is more than the core has under way at once.
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

// compiled is a module, and how often the runtime counts it.
type compiled struct {
	wazero.CompiledModule
	count int
}

// compile compiles a module. A runtime that has a cache on disk for the core
// wants to put this there too, which a confined process must not, and fails
// after the work is done and kept in memory, where the second call finds it.
// Code of a guest is never written to disk by a process that is confined.
func compile(ctx context.Context, rt wazero.Runtime, code []byte) (compiled, error) {
	m, err := rt.CompileModule(ctx, code)
	if err == nil {
		return compiled{m, 1}, nil
	}
	m, err = rt.CompileModule(ctx, code)
	return compiled{m, 2}, err
}

// keep keeps a module for as long as the core.
func (j *jit) keep(m compiled) { j.kept = append(j.kept, m) }

// forget gives back all that was kept: closing a runtime does not, where it
// shares a cache with others.
func (j *jit) forget() {
	for _, m := range j.kept {
		for range m.count {
			_ = m.Close(j.ctx)
		}
	}
	j.kept = nil
}

// compile takes what the core has generated.
func (j *jit) compile(mod api.Module, st []uint64) {
	g := generated{slot: uint32(st[0]), start: uint32(st[1]), flags: uint32(st[2])}
	code, ok := mod.Memory().Read(uint32(st[3]), uint32(st[4]))
	if !ok || g.slot >= tableGenerated {
		panic("the emulator generated no module")
	}
	g.code, g.err = place(code, envName, tableName, tableCore+g.slot)
	if g.err != nil {
		panic(g.err)
	}
	select {
	case j.work <- g:
	default:
		panic("the emulator generates more than it waits for")
	}
}

// install puts what has been compiled where the core calls it.
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

// close waits until nothing is being compiled.
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
