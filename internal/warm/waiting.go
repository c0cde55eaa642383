package warm

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

func now() time.Time { return time.Now() }

// waiting is a sandbox with an interpreter that waits.
type waiting struct {
	driver.Sandbox
	t       *template
	std     *late
	process driver.Process
	started time.Time     // when Start had returned
	ended   chan struct{} // closed when the interpreter has ended
	used    atomic.Bool
}

var (
	_ driver.Evaluator = (*waiting)(nil)
	_ driver.Unwrapper = (*waiting)(nil)
)

// Unwrap shows the abilities of the sandbox itself.
func (w *waiting) Unwrap() any { return w.Sandbox }

// Destroy destroys the sandbox. Its outputs, if nobody has taken them, end.
func (w *waiting) Destroy(ctx context.Context) error {
	w.std.abandon()
	return w.Sandbox.Destroy(ctx)
}

// Eval lets the interpreter go on. See driver.Evaluator.
func (w *waiting) Eval(ctx context.Context, e driver.Evaluation, std driver.Stdio) (driver.Process, error) {
	if w.used.Swap(true) {
		return nil, sandbar.Errorf(sandbar.Conflict, "the interpreter of this sandbox has been used")
	}
	if err := ctx.Err(); err != nil {
		return nil, sandbar.Errorf(sandbar.Canceled, "cancelled before the program started: %w", err)
	}
	if err := w.t.refuse(e); err != nil {
		return nil, err
	}
	select {
	case <-w.ended:
		return nil, sandbar.Errorf(sandbar.Gone, "the interpreter has ended while it waited")
	default:
	}
	p := &process{Process: w.process, std: w.std, waited: now().Sub(w.started)}
	w.std.give(w.t.kind.payload(e, std.Stdin == nil), std)
	return p, nil
}

// process is an interpreter from the moment at which it got its program.
type process struct {
	driver.Process
	std    *late
	waited time.Duration
}

// Unwrap shows the abilities of the process itself.
func (p *process) Unwrap() any { return p.Process }

// Wait returns the result. Its Duration leaves out the waiting, and is never
// shorter than the program's: what Start itself took counts as the program's.
func (p *process) Wait() (sandbar.Result, error) {
	r, err := p.Process.Wait()
	p.std.out.first.Wait()
	p.std.err.first.Wait()
	if r.Duration > 0 {
		r.Duration = max(r.Duration-p.waited, 1)
	}
	return r, err
}
