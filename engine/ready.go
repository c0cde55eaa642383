package engine

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// useReady starts the program in the sandbox that was ready for it. done tells
// that there is nothing to go on with: the program runs or may not run, the
// execution was stopped, or what the program was to read has been read.
//
// Otherwise nothing of the program has run: the sandbox is removed, the failure
// counted, and the execution goes on in a fresh sandbox. Its caller sees only
// that it takes longer, and is told from there of what fails there too.
func (x *Execution) useReady(ctx context.Context, r *readySandbox, l *launched, out *limitedWriter) (done bool, err error) {
	l.id, l.sb = r.id, r.sb
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
	x.e.log.Warn("a ready sandbox was of no use; the execution goes on in a fresh one", "sandbox", r.id,
		"template", r.p.name, "code", string(sandbar.CodeOf(err)))
	l.sb, l.proc = nil, nil
	x.e.removeNow(r.id, r.sb)
	return false, nil
}

// forkNow makes a sandbox for an execution that came when none was ready, where
// that takes less than starting an interpreter: where the driver copies one. nil if
// it does not, or if the copying fails, which is counted.
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
		a.e.log.Warn("a template was not copied; the execution goes on in a fresh sandbox", "template", p.name, "code", string(sandbar.CodeOf(err)), "error", err)
	}
	return nil
}

// copying returns the pool of a key and its template; nil unless the template copies an
// interpreter.
func (a *pools) forkableTemplate(key poolKey) (*pool, *preparedTemplate) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.byKey[key]
	if p == nil || p.template == nil || !p.template.forksInterpreter || isClosed(p.template.Dead()) {
		return nil, nil
	}
	return p, p.template
}

// startReady starts the program in a ready sandbox: in its interpreter, if it has one.
func (x *Execution) startReady(ctx context.Context, sb driver.Sandbox, std driver.Stdio) (driver.Process, error) {
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

// input notes whether a program's input has been read.
type trackedInput struct {
	from    io.Reader
	wasRead atomic.Bool
}

func (i *trackedInput) Read(p []byte) (int, error) {
	i.wasRead.Store(true)
	return i.from.Read(p)
}

// reader is what a driver gets: nil if there is no input.
func (i *trackedInput) reader() io.Reader {
	if i.from == nil {
		return nil
	}
	if w, ok := i.from.(driver.Sized); ok {
		return sizedInput{i, w}
	}
	return i
}

// wholeInput is an input that is driver.Sized.
type sizedInput struct {
	*trackedInput
	sized driver.Sized
}

func (w sizedInput) Len() int { return w.sized.Len() }

// removeBeside removes a sandbox whose place another is about to take. It waits
// for one attempt, so that both are there at once only if that fails.
func (e *Engine) removeNow(id sandbar.ID, sb driver.Sandbox) {
	if destroyer(sb)() == nil {
		return
	}
	e.work.add(1)
	go func() {
		defer e.work.add(-1)
		e.remove(id, sb, func() {})
	}()
}
