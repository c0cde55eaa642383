package engine

import (
	"errors"
	"log/slog"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// program is one started program and the state of its supervision.
type program struct {
	proc      driver.Process
	out       *limitedWriter
	canceller *canceller
	// timeout runs from began; negative: no limit. grace is the time between TERM and KILL; not
	// positive: KILL at once.
	timeout, grace time.Duration
	began          time.Time
	// dead closes when the sandbox dies; nil if the driver cannot report that.
	dead <-chan struct{}
	// destroy begins to destroy the sandbox around the program, which no process can escape. It
	// must not block. It is nil in a long-lived sandbox; there KillTree takes its place.
	destroy func()
	log     *slog.Logger

	decided   decisions
	killed    bool
	graceEnd  <-chan time.Time // the end of the grace period
	treeEnded <-chan struct{}  // closed when all processes that the program started have ended
	destroyAt <-chan time.Time // when to call destroy
	giveUpAt  <-chan time.Time // when to give up on the driver
	sinkCalls int64            // limitedWriter.calls when giveUpAt was set
}

// never is the value of a time that did not occur.
const never time.Duration = -1

// decisions are the times, counted from the program's start, at which the engine decided to end it;
// never if it did not.
type decisions struct {
	cancelled, timedOut time.Duration
	outputExceeded      bool // the program wrote more than the limit
}

// decide returns the outcome by precedence: Cancelled, TimedOut, OutputLimit, then the driver's
// outcome. If the program ended by itself before the engine's decision, its own outcome stays. That
// is so if its Duration is less than the time of the decision: the driver's clock starts before
// Start returns and stops at the program's end, not at the delivery of its last byte, and the
// engine's clock starts after Start returns. A Duration of 0 is unknown and proves nothing.
func decide(r sandbar.Result, m decisions) sandbar.Outcome {
	e := waitResult{result: r}
	switch {
	case e.after(m.cancelled):
		return sandbar.Cancelled
	case e.after(m.timedOut):
		return sandbar.TimedOut
	case m.outputExceeded:
		return sandbar.OutputLimit
	}
	return r.Outcome
}

// waitResult is what driver.Process.Wait returned.
type waitResult struct {
	result sandbar.Result
	err    error
}

// after reports whether the program ended after a decision; see decide.
func (e waitResult) after(mark time.Duration) bool {
	return mark != never && (e.result.Duration <= 0 || e.result.Duration >= mark)
}

// supervise runs the program to its end. This one goroutine takes all decisions, so there is one
// outcome. It does not wait for the sink or the driver before the program's end, so the time limits
// hold if these block. At the end it waits for a running call of the sink.
func (p *program) supervise() (sandbar.Result, error) {
	p.decided = decisions{cancelled: never, timedOut: never}
	ended, wait := p.wait()
	go p.out.start()
	var timeout <-chan time.Time
	if p.timeout >= 0 {
		t := time.NewTimer(p.timeout - time.Since(p.began))
		defer t.Stop()
		timeout = t.C
	}
	soft, hard, over, stuck, dead := p.canceller.soft, p.canceller.hard, p.out.exceeded, p.out.sinkFailed, p.dead
	for {
		select {
		case <-ended:
			return p.ended(p.result())
		case e := <-wait:
			return p.ended(e)
		case <-timeout:
			p.decided.timedOut = time.Since(p.began)
			p.terminate()
		case <-soft:
			soft = nil
			p.cancelled()
			if !p.canceller.killed() { // otherwise hard follows, and no TERM is needed
				p.terminate()
			}
		case <-stuck:
			stuck = nil
			p.cancelled()
			p.terminate()
		case <-hard:
			hard = nil
			p.cancelled()
			p.kill()
		case <-over:
			over = nil
			p.kill()
		case <-p.graceEnd:
			p.kill()
		case <-p.destroyAt:
			p.destroyAt = nil
			if p.destroy != nil {
				p.destroy()
			}
		case <-dead:
			dead = nil
			p.await()
		case <-p.giveUpAt:
			if p.sinkBusy() {
				p.await()
				continue
			}
			return p.abandon()
		}
	}
}

// wait returns a channel that is closed when Wait returns at once, if the driver has one. Otherwise
// it calls Wait in a goroutine and returns a channel for the result.
func (p *program) wait() (ended <-chan struct{}, result <-chan waitResult) {
	if e, ok := p.proc.(driver.Ender); ok {
		return e.Done(), nil
	}
	c := make(chan waitResult, 1)
	go func() { c <- p.result() }()
	return nil, c
}

// result calls the driver's Wait.
func (p *program) result() (e waitResult) {
	e.err = catchPanic(func() (err error) { e.result, err = p.proc.Wait(); return err })
	return e
}

// ended ends the supervision with what Wait returned.
func (p *program) ended(e waitResult) (sandbar.Result, error) {
	if p.endsTree(e) {
		p.awaitTree()
	}
	return p.conclude(e)
}

func (p *program) cancelled() {
	if p.decided.cancelled == never {
		p.decided.cancelled = time.Since(p.began)
	}
}

// terminate sends TERM and starts the grace period.
func (p *program) terminate() {
	if p.killed || p.graceEnd != nil {
		return
	}
	if p.grace <= 0 {
		p.kill()
		return
	}
	p.signal(syscall.SIGTERM)
	p.graceEnd = time.After(p.grace)
}

// kill kills the program and all processes that it started; in a one-shot sandbox by destroying it
// after killSettle.
func (p *program) kill() {
	if p.killed {
		return
	}
	p.killed = true
	p.graceEnd = nil
	p.signal(syscall.SIGKILL)
	if p.destroy != nil {
		p.destroyAt = time.After(killSettle)
	} else {
		p.killTree()
	}
	p.await()
}

// killTree starts to kill all processes that the program started. It does not wait for the driver.
func (p *program) killTree() {
	if p.treeEnded != nil {
		return
	}
	gone := make(chan struct{})
	p.treeEnded = gone
	go func() {
		defer close(gone)
		if err := catchPanic(func() error { return killTreeOf(p.proc) }); err != nil {
			p.log.Warn("processes that a program started were not all killed", "error", err)
		}
	}()
}

// killTreeOf kills all processes that a program started. If the driver fails, it kills at least the
// program's process group.
func killTreeOf(proc driver.Process) error {
	err := proc.KillTree()
	if err != nil {
		err = errors.Join(err, proc.Signal(int(syscall.SIGKILL)))
	}
	return err
}

// endsTree reports whether the engine must kill the processes that an ended program started. That
// applies in a long-lived sandbox if the engine ended the program, even if TERM was enough. If the
// program ended by itself, its background processes continue, unless the caller cancelled.
func (p *program) endsTree(e waitResult) bool {
	if p.destroy != nil {
		return false
	}
	select {
	case <-p.out.exceeded:
		return true
	default:
	}
	return p.treeEnded != nil || p.decided.cancelled != never || e.after(p.decided.timedOut)
}

// awaitTree waits until all processes that the program started have ended, for driverGrace at most.
func (p *program) awaitTree() {
	p.killTree()
	limit := time.NewTimer(driverGrace)
	defer limit.Stop()
	select {
	case <-p.treeEnded:
	case <-limit.C:
		p.log.Warn("the driver takes too long to kill the processes of a program", "waited", driverGrace)
	}
}

// signal does not wait for the driver: Signal may block, and the time limits must hold.
func (p *program) signal(sig syscall.Signal) {
	go func() {
		if err := catchPanic(func() error { return p.proc.Signal(int(sig)) }); err != nil {
			p.log.Warn("a signal could not be sent", "signal", int(sig), "error", err)
		}
	}()
}

// await starts the time within which the driver's Wait must return.
func (p *program) await() {
	p.sinkCalls = p.out.calls.Load()
	p.giveUpAt = time.After(driverGrace)
}

// sinkBusy reports whether the sink was called since await or is in a call. The driver then may be
// blocked by the sink.
func (p *program) sinkBusy() bool {
	n := p.out.calls.Load()
	return n != p.sinkCalls || n%2 == 1
}

// conclude makes the result from what the driver returned.
func (p *program) conclude(e waitResult) (sandbar.Result, error) {
	<-p.out.started // Started must precede the result, also of a very short program
	c := p.out.close()
	if e.err == nil && (e.result.Outcome < sandbar.Exited || e.result.Outcome > sandbar.Lost) {
		e.err = sandbar.Errorf(sandbar.Internal, "the driver reported the unknown outcome %d", int(e.result.Outcome))
	}
	if e.err != nil && p.killed {
		// The engine killed the program and knows the reason, so an error of the driver does not
		// hide the outcome.
		p.log.Warn("the driver did not report the end of a killed program", "error", e.err)
		e = waitResult{result: sandbar.Result{Outcome: sandbar.Lost}}
	}
	if e.err != nil {
		err := *sandbar.AsError(e.err)
		err.Message = "the program started, but its end is unknown: " + err.Message
		return sandbar.Result{}, &err
	}
	if errors.Is(c.failure, errPanic) {
		return sandbar.Result{}, sandbar.Errorf(sandbar.Internal, "the receiver of the output failed: %w", c.failure)
	}
	if e.result.Duration <= 0 {
		e.result.Duration = time.Since(p.began)
	}
	return p.finish(e.result, c), nil
}

// abandon ends the supervision without a report of the driver. If the sandbox is dead the outcome
// is Lost. Otherwise the end is unknown, which is an Internal error.
func (p *program) abandon() (sandbar.Result, error) {
	c := p.out.close()
	select {
	case <-p.dead: // blocks if nil
		return p.finish(sandbar.Result{Outcome: sandbar.Lost, Duration: time.Since(p.began)}, c), nil
	default:
		return sandbar.Result{}, sandbar.Errorf(sandbar.Internal,
			"the program was killed but the driver did not report its end within %v", driverGrace)
	}
}

// finish sets the fields that the engine determines.
func (p *program) finish(r sandbar.Result, c counts) sandbar.Result {
	p.decided.outputExceeded = c.dropped > 0
	r.Outcome = decide(r, p.decided)
	if r.Outcome != sandbar.Exited {
		r.ExitCode = 0
	}
	r.StdoutBytes, r.StderrBytes, r.DroppedBytes = c.stdout, c.stderr, c.dropped
	return r
}
