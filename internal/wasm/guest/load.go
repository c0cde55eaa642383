package guest

import (
	"context"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/sandbar-dev/sandbar/internal/wasm/artefact"
)

// newRuntime returns a runtime that finds compiled modules in a directory. Debugging information is
// off, because it would delay every failing program by seconds for a stack trace.
func newRuntime(ctx context.Context, cache string) (wazero.Runtime, error) {
	cfg := wazero.NewRuntimeConfig().WithDebugInfoEnabled(false)
	if cache != "" {
		c, err := wazero.NewCompilationCacheWithDir(cache)
		if err != nil {
			return nil, fmt.Errorf("opening the compilation cache: %w", err)
		}
		cfg = cfg.WithCompilationCache(c)
	}
	return wazero.NewRuntimeWithConfig(ctx, cfg), nil
}

// compile compiles all modules into a cache.
func compile(ctx context.Context, cache string, set artefact.Set) error {
	ctx = experimental.WithCompilationWorkers(ctx, 2)
	for _, module := range [][]byte{set.Python, set.JavaScript} {
		rt, err := newRuntime(ctx, cache)
		if err != nil {
			return err
		}
		if _, err := rt.CompileModule(ctx, module); err != nil {
			return fmt.Errorf("compiling: %w", err)
		}
		if err := rt.Close(ctx); err != nil {
			return err
		}
	}
	return nil
}
