package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// Process is a program of Sandbox.Start. It remains usable after its end, for as long as the caller
// keeps it.
type Process struct {
	sandbox   *Sandbox
	id        string
	cmd       sandbar.Cmd
	started   time.Time
	proc      driver.Process
	canceller *canceller
	replay    *replay

	done chan struct{}
	// written before done is closed
	result sandbar.Result
	err    error
}

// ID identifies the process in its sandbox: "p1", "p2", in the order of start.
func (p *Process) ID() string { return p.id }

// Cmd returns a copy of the command.
func (p *Process) Cmd() sandbar.Cmd {
	c := p.cmd
	c.Args, c.Env = slices.Clone(c.Args), maps.Clone(c.Env)
	return c
}

// Started returns the time of the start.
func (p *Process) Started() time.Time { return p.started }

// Follow delivers output from the given offsets until the program's end: first the kept output,
// then new output. If output is no longer kept, the next chunk has an Offset beyond the expected
// one. Followers are independent: a slow one does not block the program or other followers, and may
// miss output. Canceled: ctx ended. Invalid: an offset is negative. An error of fn is returned as
// it is.
func (p *Process) Follow(ctx context.Context, from Offsets, fn func(sandbar.Chunk) error) error {
	if from.Stdout < 0 || from.Stderr < 0 {
		return &sandbar.Error{Code: sandbar.Invalid, Field: "offset",
			Message: "an offset into the output is negative; the first byte is at 0"}
	}
	return p.replay.follow(ctx, from, fn)
}

// Signal sends a signal, 1 to 64, to the program's process group. After the program's end it does
// nothing.
func (p *Process) Signal(sig int) error {
	if sig < 1 || sig > 64 {
		return &sandbar.Error{Code: sandbar.Invalid, Field: "signal",
			Message: "signal " + showNumber(int64(sig)) + " is out of range; allowed: 1 to 64"}
	}
	select {
	case <-p.done:
		return nil
	default:
		return catchPanic(func() error { return p.proc.Signal(sig) })
	}
}

// PID returns the program's process id inside the sandbox; 0 if the driver cannot determine it.
// After the program's end the kernel may reuse the number.
func (p *Process) PID() int {
	pid := 0
	_ = catchPanic(func() error { pid = p.proc.PID(); return nil })
	return pid
}

// Cancel ends the program: TERM to its process group and, after the grace period, KILL to all
// processes that it started. It does not wait. The outcome is Cancelled. After the program's end it
// does nothing.
func (p *Process) Cancel() { p.canceller.cancel() }

// Kill kills the program and all processes that it started. It does not wait. The outcome is
// Cancelled. After the program's own end it kills the processes that the program left behind, and
// the result stays as it is.
func (p *Process) Kill() {
	p.canceller.kill()
	if !p.running() {
		p.sandbox.killLeftovers(p)
	}
}

// Done is closed at the program's end. All output can then be followed, and Wait returns the
// result.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the program's end and returns its result. Canceled: ctx ended first.
func (p *Process) Wait(ctx context.Context) (sandbar.Result, error) {
	select {
	case <-p.done:
		return p.result, p.err
	default:
	}
	select {
	case <-p.done:
		return p.result, p.err
	case <-ctx.Done():
		return sandbar.Result{}, sandbar.Errorf(sandbar.Canceled, "waiting for process %s was cancelled: %w", p.id, context.Cause(ctx))
	}
}

func (p *Process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// end publishes the result. The replay ends first, so that a receiver from Done can read every
// byte.
func (p *Process) end(r sandbar.Result, err error) {
	p.result, p.err = r, err
	p.replay.end()
	close(p.done)
}
