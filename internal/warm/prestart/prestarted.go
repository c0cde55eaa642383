package prestart

import (
	"context"
	"sync/atomic"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// prestarted is a sandbox with an interpreter that has been started without a program.
type prestarted struct {
	driver.Sandbox
	t     *template
	std   *deferredStdio
	ended chan struct{} // closed when the interpreter has ended
	used  atomic.Bool
}

var _ driver.Unwrapper = (*prestarted)(nil)

// Unwrap returns the driver's sandbox, for driver.As.
func (a *prestarted) Unwrap() any { return a.Sandbox }

// Destroy destroys the sandbox. If no program was evaluated, it ends the pending reads of its
// input.
func (a *prestarted) Destroy(ctx context.Context) error {
	a.std.abandon()
	return a.Sandbox.Destroy(ctx)
}

// follow closes ended when the interpreter has ended.
func (a *prestarted) follow(p driver.Process) {
	go func() {
		_, _ = p.Wait() // the caller of Eval, if there is one, waits for the result itself
		close(a.ended)
	}()
}

// use reserves the interpreter for a program. It succeeds at most once.
func (a *prestarted) use(ctx context.Context, e driver.Evaluation) error {
	if a.used.Swap(true) {
		return sandbar.Errorf(sandbar.Conflict, "the interpreter of this sandbox has been used")
	}
	if err := ctx.Err(); err != nil {
		return sandbar.Errorf(sandbar.Canceled, "cancelled before the program started: %w", err)
	}
	if err := a.t.refuse(e); err != nil {
		return err
	}
	select {
	case <-a.std.abandoned:
		return sandbar.Errorf(sandbar.Gone, "the sandbox has been destroyed")
	case <-a.ended:
		return sandbar.Errorf(sandbar.Gone, "the interpreter has ended before there was a program")
	default:
	}
	if p, ok := driver.As[driver.Prober](a.Sandbox); ok && p.Ended() {
		return sandbar.Errorf(sandbar.Gone, "the interpreter has just ended, before there was a program")
	}
	return nil
}
