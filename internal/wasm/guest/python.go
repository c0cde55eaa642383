package guest

import (
	"context"
	"errors"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"
)

// python is the compiled interpreter of Python.
type python struct {
	runtime wazero.Runtime
	module  wazero.CompiledModule
}

func newPython(ctx context.Context, cache string, module []byte) (engine, error) {
	rt, err := newRuntime(ctx, cache)
	if err != nil {
		return nil, err
	}
	if err := exportWASI(ctx, rt); err != nil {
		return nil, err
	}
	compiled, err := rt.CompileModule(ctx, module)
	if err != nil {
		return nil, err
	}
	return &python{rt, compiled}, nil
}

// errMemory is the error of a program whose memory limit is below the interpreter's initial memory.
var errMemory = errors.New("the memory limit is smaller than what the interpreter needs to start")

func (p *python) run(ctx context.Context, m *machine) (uint8, error) {
	if !m.need(p.module) {
		return 0, errMemory
	}
	instance, err := p.runtime.InstantiateModule(ctx, p.module, wazero.NewModuleConfig().WithName(""))
	if instance != nil {
		defer instance.Close(ctx)
	}
	if exit, ok := errors.AsType[*sys.ExitError](err); ok {
		return uint8(exit.ExitCode()), nil
	}
	return 0, err
}
