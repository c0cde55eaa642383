package prestart

import (
	"context"
	"sync/atomic"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// ahead is a sandbox with an interpreter that was started ahead.
type prestarted struct {
	driver.Sandbox
	t     *template
	std   *deferredStdio
	ended chan struct{} // closed when the interpreter has ended
	used  atomic.Bool
}

var _ driver.Unwrapper = (*prestarted)(nil)

// Unwrap shows the abilities of the sandbox itself.
func (a *prestarted) Unwrap() any { return a.Sandbox }

// Destroy destroys the sandbox. Its outputs, if nobody has taken them, end.
func (a *prestarted) Destroy(ctx context.Context) error {
	a.std.abandon()
	return a.Sandbox.Destroy(ctx)
}

// follow has ended tell of the interpreter's end.
func (a *prestarted) follow(p driver.Process) {
	go func() {
		_, _ = p.Wait() // how it ended is asked again, if anybody is there to ask
		close(a.ended)
	}()
}

// use takes the interpreter for a program, once.
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
	case <-a.ended:
		return sandbar.Errorf(sandbar.Gone, "the interpreter has ended while it waited")
	default:
		return nil
	}
}
