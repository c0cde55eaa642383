package engine

import (
	"errors"
	"log/slog"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// program is one started program under the engine's clocks.
type program struct {
	proc      driver.Process
	out       *limitedWriter
	canceller *canceller
	// timeout runs from began; negative is none. grace lies between TERM and
	// KILL; not positive is none.
	timeout, grace time.Duration
	began          time.Time
	// dead tells of the sandbox's own death; nil if the driver cannot.
	dead <-chan struct{}
	// destroy begins to destroy the sandbox around the program: the KILL that
	// nothing can escape. It must not block. It is nil in a long-lived sandbox,
	// where KillTree stands for it.
	destroy func()
	log     *slog.Logger

	decided   decisions
	killed    bool
	graceEnd  <-chan time.Time // the end of the grace
	treeEnded <-chan struct{}  // closed when all that the program started has ended
	destroyAt <-chan time.Time // when to destroy
	giveUpAt  <-chan time.Time // when to give up on the driver
	sinkCalls int64            // the outlet's calls when patience began
}

// never marks something that has not happened.
const never time.Duration = -1

// marks are the moments, counted from the program's start, at which the engine
// decided to end it; never where it did not.
type decisions struct {
	cancelled, timedOut time.Duration
	outputExceeded      bool // more was written than is allowed
}

// decide is the precedence of outcomes: Cancelled, TimedOut, OutputLimit, then
// what the driver saw. A program that had already ended by itself when the
// engine decided keeps its own end: its Duration, measured by the driver up to
// the end proper and not to the last byte's delivery, lies before the mark.
// That proves it because the driver's clock starts before Start returns, and
// the engine's, by which marks are set, after. A Duration of 0 is unknown and
// proves nothing.
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

// ended is what driver.Process.Wait returned.
type waitResult struct {
	result sandbar.Result
	err    error
}

// after reports whether the program ended after a mark, which decide explains.
func (e waitResult) after(mark time.Duration) bool {
	return mark != never && (e.result.Duration <= 0 || e.result.Duration >= mark)
}

// supervise sees the program to its end. All decisions are taken here, in one
// goroutine, so there is one verdict; nothing here waits for the sink or the
// driver, so the clocks hold whatever those two do. Only the last step waits
// for a call of the sink that is still under way.
func (p *program) supervise() (sandbar.Result, error) {
	p.decided = decisions{cancelled: never, timedOut: never}
	wait := p.wait()
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
		case e := <-wait:
			if p.endsTree(e) {
				p.awaitTree()
			}
			return p.conclude(e)
		case <-timeout:
			p.decided.timedOut = time.Since(p.began)
			p.terminate()
		case <-soft:
			soft = nil
			p.cancelled()
			if !p.canceller.killed() { // else hard follows: no TERM on the way
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

// wait calls the driver's Wait in a goroutine of its own.
func (p *program) wait() <-chan waitResult {
	c := make(chan waitResult, 1)
	go func() {
		var e waitResult
		e.err = catchPanic(func() (err error) { e.result, err = p.proc.Wait(); return err })
		c <- e
	}()
	return c
}

func (p *program) cancelled() {
	if p.decided.cancelled == never {
		p.decided.cancelled = time.Since(p.began)
	}
}

// terminate asks the program to end and begins its grace.
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

// kill ends the program with all that it started: in a one-shot sandbox by
// destroying that after killSettle.
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

// fell begins to end all that the program started. Like signal it does not
// wait for the driver.
func (p *program) killTree() {
	if p.treeEnded != nil {
		return
	}
	gone := make(chan struct{})
	p.treeEnded = gone
	go func() {
		defer close(gone)
		if err := catchPanic(func() error { return killTreeOf(p.proc) }); err != nil {
			p.log.Warn("what a program started could not all be ended", "error", err)
		}
	}()
}

// killTree ends all that a program started. If the driver fails, it kills at least
// the program's process group.
func killTreeOf(proc driver.Process) error {
	err := proc.KillTree()
	if err != nil {
		err = errors.Join(err, proc.Signal(int(syscall.SIGKILL)))
	}
	return err
}

// endsTree reports whether a program that has ended is to be followed by all
// that it started: in a long-lived sandbox, when it was the engine that ended
// it, also where the program itself obeyed TERM. What a program that came to
// its own end left in the background is left alone, unless somebody cancelled.
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

// awaitTree waits until all that the program started has ended, as long as a
// driver may take.
func (p *program) awaitTree() {
	p.killTree()
	limit := time.NewTimer(driverGrace)
	defer limit.Stop()
	select {
	case <-p.treeEnded:
	case <-limit.C:
		p.log.Warn("the driver takes too long to end what a program started", "waited", driverGrace)
	}
}

// signal does not wait: a driver that is stuck in Signal must not stop the
// clocks.
func (p *program) signal(sig syscall.Signal) {
	go func() {
		if err := catchPanic(func() error { return p.proc.Signal(int(sig)) }); err != nil {
			p.log.Warn("a signal could not be sent", "signal", int(sig), "error", err)
		}
	}()
}

// await begins the time in which the driver's Wait has to return.
func (p *program) await() {
	p.sinkCalls = p.out.calls.Load()
	p.giveUpAt = time.After(driverGrace)
}

// moved reports whether the sink is at fault and not the driver: it is in a
// call, or has been since await.
func (p *program) sinkBusy() bool {
	n := p.out.calls.Load()
	return n != p.sinkCalls || n%2 == 1
}

// conclude makes the result of what the driver said.
func (p *program) conclude(e waitResult) (sandbar.Result, error) {
	<-p.out.started // Started comes before the result, however short the program
	c := p.out.close()
	if e.err == nil && (e.result.Outcome < sandbar.Exited || e.result.Outcome > sandbar.Lost) {
		e.err = sandbar.Errorf(sandbar.Internal, "the driver reported the unknown outcome %d", int(e.result.Outcome))
	}
	if e.err != nil && p.killed {
		// The engine has ended the program and knows why; a driver that
		// stumbles over the corpse takes nothing from that.
		p.log.Warn("the driver could not tell the end of a program that was killed", "error", e.err)
		e = waitResult{result: sandbar.Result{Outcome: sandbar.Lost}}
	}
	if e.err != nil {
		err := *sandbar.AsError(e.err)
		err.Message = "the program was started but its end could not be learned: " + err.Message
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

// abandon is the end when the driver does not report one. If the sandbox is
// known to be dead the program is Lost; otherwise nothing is known, and that
// is a fault of the platform.
func (p *program) abandon() (sandbar.Result, error) {
	c := p.out.close()
	select {
	case <-p.dead: // never ready when nil
		return p.finish(sandbar.Result{Outcome: sandbar.Lost, Duration: time.Since(p.began)}, c), nil
	default:
		return sandbar.Result{}, sandbar.Errorf(sandbar.Internal,
			"the program was killed but the driver did not report its end within %v", driverGrace)
	}
}

// finish fills in what the engine knows better than the driver.
func (p *program) finish(r sandbar.Result, c counts) sandbar.Result {
	p.decided.outputExceeded = c.dropped > 0
	r.Outcome = decide(r, p.decided)
	if r.Outcome != sandbar.Exited {
		r.ExitCode = 0
	}
	r.StdoutBytes, r.StderrBytes, r.DroppedBytes = c.stdout, c.stderr, c.dropped
	return r
}
