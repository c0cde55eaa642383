package prestart

import (
	"context"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

func now() time.Time { return time.Now() }

// pausedInterpreter is a sandbox with an interpreter that blocks in reading its standard input. The
// hook in it reads the arguments there.
type pausedInterpreter struct {
	*prestarted
	process driver.Process
	started time.Time // when Start, or the restore of its machine, had returned
}

var _ driver.Evaluator = (*pausedInterpreter)(nil)

// Eval implements driver.Evaluator: it writes the program's file and sends the arguments to the
// hook.
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

// Restore returns a sandbox whose interpreter a template of t has started in a machine before the
// machine was saved. restore makes the sandbox from the saved machine and connects std to the
// interpreter's process. The interpreters of all machines have the same address layout and hash
// seed. Unsupported: the interpreter has random numbers of its own, or cannot wait like this.
func Restore(t driver.TemplateSpec, restore func(std driver.Stdio) (driver.Sandbox, driver.Process, error)) (driver.Sandbox, error) {
	k, err := restorable(t)
	if err != nil {
		return nil, err
	}
	a := &prestarted{t: &template{spec: t, kind: k}, std: newDeferredStdio(""), ended: make(chan struct{})}
	w := &pausedInterpreter{prestarted: a}
	if a.Sandbox, w.process, err = restore(a.std.stdio()); err != nil {
		a.std.abandon()
		return nil, err
	}
	w.started = now() // not before: the driver's clock of the process starts when the machine runs
	w.follow(w.process)
	return w, nil
}

// restorable returns the kind of a template whose interpreter has no state that must differ between
// copies, apart from its hash seed. That of node has: V8 seeds its random numbers when it starts.
func restorable(t driver.TemplateSpec) (kind, error) {
	if t.Language != "python" {
		return kind{}, sandbar.Errorf(sandbar.Unsupported, "the interpreter of %s cannot be restored from a saved machine", t.Language)
	}
	return kinds()[t.Language], nil
}

// Restorable returns Unsupported if Restore does.
func Restorable(t driver.TemplateSpec) error {
	_, err := restorable(t)
	return err
}

// process is an interpreter that has its program.
type process struct {
	driver.Process
	std    *deferredStdio
	waited time.Duration // from the interpreter's start to Eval
}

// Unwrap returns the driver's process, for driver.As.
func (p *process) Unwrap() any { return p.Process }

// Wait returns the result. Its Duration excludes the time before Eval, but includes that of Start:
// so it is never shorter than the program's. Its StdoutBytes exclude the marker.
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
