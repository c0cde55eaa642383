package prestart

import (
	"context"
	"maps"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// holding is a sandbox with an interpreter that waits where it opens its program
// (driver.Holder), with nothing of ours in it.
type holding struct {
	*ahead
	held driver.Held
}

var _ driver.CodeEvaluator = (*holding)(nil)

// start starts the interpreter. It has its whole command and environment already,
// without arguments.
func (h *holding) start(ctx context.Context) error {
	holder, ok := driver.As[driver.Holder](h.Sandbox)
	if !ok {
		return sandbar.Errorf(sandbar.Unsupported, "this driver cannot have a program wait for its file")
	}
	std := h.std.stdio()
	std.Stdin = nil
	held, err := holder.Hold(ctx, h.t.command(driver.Evaluation{Env: h.t.spec.Env, Dir: sandbar.DefaultDir}), h.t.spec.File, std)
	if err != nil {
		return err
	}
	h.held = held
	h.follow(held)
	return nil
}

// fits reports whether the interpreter was started as a program needs it.
func (h *holding) fits(e driver.Evaluation, std driver.Stdio) bool {
	return len(e.Args) == 0 && std.Stdin == nil && (e.Dir == "" || e.Dir == sandbar.DefaultDir) && maps.Equal(e.Env, h.t.spec.Env)
}

// Eval lets the interpreter go on. See driver.Evaluator.
func (h *holding) Eval(ctx context.Context, e driver.Evaluation, std driver.Stdio) (driver.Process, error) {
	return h.eval(ctx, e, nil, std)
}

// TakesCode reports whether a program of n bytes can be given with EvalCode.
func (h *holding) TakesCode(n int) bool { return n <= sandbar.MaxPut }

// EvalCode has the program appear and lets the interpreter go on.
func (h *holding) EvalCode(ctx context.Context, e driver.Evaluation, code string, std driver.Stdio) (driver.Process, error) {
	return h.eval(ctx, e, &code, std)
}

// eval is Eval, of a program that is in its file already if code is nil. What was
// started otherwise than it needs is started again, in the same sandbox.
func (h *holding) eval(ctx context.Context, e driver.Evaluation, code *string, std driver.Stdio) (driver.Process, error) {
	if err := h.use(ctx, e); err != nil {
		return nil, err
	}
	if !h.fits(e, std) {
		return h.again(ctx, e, code, std)
	}
	h.std.give("", std)
	if err := h.held.Release(ctx, code); err != nil {
		return nil, err
	}
	return &process{Process: h.held, std: h.std}, nil
}

// again starts the interpreter as a cold start does, in place of the one that waits.
func (h *holding) again(ctx context.Context, e driver.Evaluation, code *string, std driver.Stdio) (driver.Process, error) {
	h.std.abandon()
	if err := h.held.Abandon(ctx); err != nil {
		return nil, err
	}
	if code != nil {
		if err := h.put(ctx, h.t.spec.File, []byte(*code), sandbar.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	return h.Sandbox.Start(ctx, h.t.command(e), std)
}
