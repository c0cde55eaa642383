package engine

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// useReady starts the program in the prestarted sandbox r. done is true if the execution must not
// continue in a fresh sandbox: the program runs, Config.Vet refused it, the execution was stopped,
// or the driver has read some of its input.
//
// If done is false, no part of the program has run. useReady has counted the failure and removed
// the sandbox, and the execution continues in a fresh one. The cold path reports its own errors.
func (x *Execution) useReady(ctx context.Context, r *readySandbox, l *launched, out *limitedWriter) (done bool, err error) {
	l.id, l.sb, l.made = r.id, r.sb, x.trace.now()
	if l.origin = OriginReady; r != x.ready {
		l.origin = OriginForked
	}
	in := &trackedInput{from: x.stdin}
	err = catchPanic(func() (err error) {
		l.proc, err = x.startReady(ctx, r.sb, driver.Stdio{Stdin: in.reader(),
			Stdout: out.writer(sandbar.Stdout), Stderr: out.writer(sandbar.Stderr)})
		return err
	})
	l.began = time.Now()
	if _, final := errors.AsType[*vetRefusal](err); final || err == nil || ctx.Err() != nil || in.wasRead.Load() {
		return true, err
	}
	x.e.pools.failed(r.p)
	x.e.log.Warn("a prestarted sandbox failed; the execution continues in a fresh one", slog.Any("", x.plan.spec.Client), "sandbox", r.id,
		"template", r.p.name, "code", string(sandbar.CodeOf(err)))
	l.sb, l.proc = nil, nil
	x.e.removeNow(r.id, r.sb)
	return false, nil
}

// forkNow makes a sandbox for an execution if no prestarted one is ready and the driver can copy a
// running interpreter, which takes less time than starting one. It returns nil if the driver
// cannot, or if the copy fails; it counts failures.
func (a *pools) forkNow(ctx context.Context, x *Execution) *readySandbox {
	if a == nil || x.plan.spec.Cold || x.plan.language.Name == "" {
		return nil
	}
	p, t := a.forkableTemplate(keyOf(x.plan.language.Name, x.plan.spec))
	if t == nil {
		return nil
	}
	r := &readySandbox{p: p, id: sandbar.NewID(), ticket: x.ticket}
	err := catchPanic(func() (err error) { r.sb, err = t.Fork(ctx, r.id); return err })
	if err == nil && r.sb != nil {
		return r
	}
	if ctx.Err() == nil {
		a.mu.Lock()
		p.stats.Failed++
		a.mu.Unlock()
		a.e.log.Warn("a template could not be forked; the execution continues in a fresh sandbox", slog.Any("", x.plan.spec.Client), "sandbox", x.id, "template", p.name, "code", string(sandbar.CodeOf(err)), "error", err)
	}
	return nil
}

// forkableTemplate returns the pool of a key and its template; nil unless the template copies a
// running interpreter.
func (a *pools) forkableTemplate(key poolKey) (*pool, *preparedTemplate) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.byKey[key]
	if p == nil || p.template == nil || !p.template.forksInterpreter || isClosed(p.template.Dead()) {
		return nil, nil
	}
	return p, p.template
}

// startReady starts the program in a prestarted sandbox: in its interpreter, if it has one.
func (x *Execution) startReady(ctx context.Context, sb driver.Sandbox, std driver.Stdio) (driver.Process, error) {
	if err := wake(ctx, sb); err != nil {
		return nil, err
	}
	p := &x.plan
	env := mergeEnv(p.spec.Env, p.cmd.Env)
	evaluation := driver.Evaluation{Path: p.language.File, Code: p.code, Args: p.args, Env: env, Dir: p.cmd.Dir}
	if v, ok := driver.As[driver.Evaluator](sb); ok {
		if err := x.vet(ctx, sb); err != nil {
			return nil, err
		}
		return v.Eval(ctx, evaluation, std)
	}
	if err := x.putCode(ctx, sb); err != nil {
		return nil, err
	}
	cmd := p.cmd
	cmd.Env = env
	return sb.Start(ctx, cmd, std)
}

// trackedInput records whether the driver has read any of the program's input.
type trackedInput struct {
	from    io.Reader
	wasRead atomic.Bool
}

func (i *trackedInput) Read(p []byte) (int, error) {
	i.wasRead.Store(true)
	return i.from.Read(p)
}

// reader returns the reader for the driver; nil if there is no input.
func (i *trackedInput) reader() io.Reader {
	if i.from == nil {
		return nil
	}
	if w, ok := i.from.(driver.Sized); ok {
		return sizedInput{i, w}
	}
	return i
}

// sizedInput is a trackedInput that implements driver.Sized.
type sizedInput struct {
	*trackedInput
	sized driver.Sized
}

func (w sizedInput) Len() int { return w.sized.Len() }

// removeNow removes a sandbox before a fresh one takes its slot. It waits for one attempt and
// continues in the background, so that both sandboxes exist at once only if that attempt fails.
func (e *Engine) removeNow(id sandbar.ID, sb removable) {
	if destroyer(sb)() == nil {
		return
	}
	e.work.add(1)
	go func() {
		defer e.work.add(-1)
		e.remove(id, sb, func() {})
	}()
}
