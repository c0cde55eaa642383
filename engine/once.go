package engine

import (
	"context"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/warm/prestart"
)

// oneShotter returns the driver of a plan if it makes sandboxes for single programs and takes this
// one, else nil.
func (e *Engine) oneShotter(p *plan) driver.OneShotter {
	b, err := e.backend(p.spec.Driver)
	if err != nil {
		return nil
	}
	o, ok := driver.As[driver.OneShotter](b.driver)
	if !ok || p.spec.Cold || e.cfg.Vet != nil && p.file() != "" || !o.TakesOneShots(p.spec) {
		return nil
	}
	return o
}

// prefersOneShot reports whether an execution uses no ready sandbox, because making the sandbox for
// its one program takes little more time and far less of the processor.
func (e *Engine) prefersOneShot(p *plan) bool {
	return (p.language.Name == "" || prestart.StartsFast(p.language.Name)) && e.oneShotter(p) != nil
}

// runOnce makes a sandbox for the one program, if the driver has a faster way for that, and starts
// it. done is false if it has done nothing.
func (x *Execution) runOnce(ctx context.Context, l *launched, out *limitedWriter) (done bool, err error) {
	o := x.e.oneShotter(&x.plan)
	if o == nil {
		return false, nil
	}
	program := driver.OneShot{Cmd: x.plan.cmd, File: x.plan.file(), Code: x.plan.code}
	sb, proc, err := o.RunOnce(ctx, x.id, x.plan.spec, program, driver.Stdio{Stdin: x.stdin,
		Stdout: out.writer(sandbar.Stdout), Stderr: out.writer(sandbar.Stderr)})
	if sandbar.CodeOf(err) == sandbar.Unsupported {
		return false, nil // the cold path starts it, or says why not
	}
	if err != nil {
		return true, x.startError(err)
	}
	l.id, l.sb, l.single, l.proc, l.began, l.origin = x.id, sb, true, proc, time.Now(), OriginCreated
	return true, nil
}
