package prestart

import (
	"context"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

func now() time.Time { return time.Now() }

// waiting is a sandbox with an interpreter that waits for what comes in its input.
type pausedInterpreter struct {
	*prestarted
	process driver.Process
	started time.Time // when Start had returned
}

var _ driver.Evaluator = (*pausedInterpreter)(nil)

// Eval lets the interpreter go on. See driver.Evaluator.
func (w *pausedInterpreter) Eval(ctx context.Context, e driver.Evaluation, std driver.Stdio) (driver.Process, error) {
	if err := w.use(ctx, e); err != nil {
		return nil, err
	}
	if err := driver.WriteFile(ctx, w.FS(), w.t.spec.File, []byte(e.Code)); err != nil {
		return nil, err
	}
	p := &process{Process: w.process, std: w.std, waited: now().Sub(w.started)}
	w.std.connect(w.t.kind.payload(e, std.Stdin), std)
	return p, nil
}

// process is an interpreter from the moment at which it got its program.
type process struct {
	driver.Process
	std    *deferredStdio
	waited time.Duration
}

// Unwrap shows the abilities of the process itself.
func (p *process) Unwrap() any { return p.Process }

// Wait returns the result. Its Duration leaves out the waiting, and is never
// shorter than the program's: what Start itself took counts as the program's. Its
// StdoutBytes leave out the mark.
func (p *process) Wait() (sandbar.Result, error) {
	r, err := p.Process.Wait()
	p.std.out.flushing.Wait()
	p.std.err.flushing.Wait()
	if r.Duration > 0 {
		r.Duration = max(r.Duration-p.waited, 1)
	}
	r.StdoutBytes = max(r.StdoutBytes-int64(p.std.marker), 0)
	return r, err
}
