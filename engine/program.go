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
	proc  driver.Process
	out   *outlet
	brake *brake
	// timeout runs from began; negative is none. grace lies between TERM and
	// KILL; not positive is none.
	timeout, grace time.Duration
	began          time.Time
	// dead tells of the sandbox's own death; nil if the driver cannot.
	dead <-chan struct{}
	// destroy, if set, begins to destroy the sandbox around the program: the
	// KILL that nothing can escape. It must not block.
	destroy func()
	log     *slog.Logger

	marks    marks
	killed   bool
	grc      <-chan time.Time // the end of the grace
	settle   <-chan time.Time // when to destroy
	patience <-chan time.Time // when to give up on the driver
	seen     int64            // the outlet's calls when patience began
}

// never marks something that has not happened.
const never time.Duration = -1

// marks are the moments, counted from the program's start, at which the engine
// decided to end it; never where it did not.
type marks struct {
	cancelled, timedOut time.Duration
	over                bool // more was written than is allowed
}

// decide is the precedence of outcomes: Cancelled, TimedOut, OutputLimit, then
// what the driver saw. A program that had already ended by itself when the
// engine decided keeps its own end: its Duration, measured by the driver up to
// the end proper and not to the last byte's delivery, lies before the mark.
// That proves it because the driver's clock starts before Start returns, and
// the engine's, by which marks are set, after. A Duration of 0 is unknown and
// proves nothing.
func decide(r sandbar.Result, m marks) sandbar.Outcome {
	after := func(mark time.Duration) bool {
		return mark != never && (r.Duration <= 0 || r.Duration >= mark)
	}
	switch {
	case after(m.cancelled):
		return sandbar.Cancelled
	case after(m.timedOut):
		return sandbar.TimedOut
	case m.over:
		return sandbar.OutputLimit
	}
	return r.Outcome
}

// ended is what driver.Process.Wait returned.
type ended struct {
	result sandbar.Result
	err    error
}

// supervise sees the program to its end. All decisions are taken here, in one
// goroutine, so there is one verdict; nothing here waits for the sink or the
// driver, so the clocks hold whatever those two do. Only the last step waits
// for a call of the sink that is still under way.
func (p *program) supervise() (sandbar.Result, error) {
	p.marks = marks{cancelled: never, timedOut: never}
	wait := p.wait()
	go p.out.start()
	var timeout <-chan time.Time
	if p.timeout >= 0 {
		t := time.NewTimer(p.timeout - time.Since(p.began))
		defer t.Stop()
		timeout = t.C
	}
	soft, hard, over, stuck, dead := p.brake.soft, p.brake.hard, p.out.over, p.out.stuck, p.dead
	for {
		select {
		case e := <-wait:
			return p.conclude(e)
		case <-timeout:
			p.marks.timedOut = time.Since(p.began)
			p.terminate()
		case <-soft:
			soft = nil
			p.cancelled()
			p.terminate()
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
		case <-p.grc:
			p.kill()
		case <-p.settle:
			p.settle = nil
			if p.destroy != nil {
				p.destroy()
			}
		case <-dead:
			dead = nil
			p.await()
		case <-p.patience:
			if p.moved() {
				p.await()
				continue
			}
			return p.abandon()
		}
	}
}

// wait calls the driver's Wait in a goroutine of its own.
func (p *program) wait() <-chan ended {
	c := make(chan ended, 1)
	go func() {
		var e ended
		e.err = guarded(func() (err error) { e.result, err = p.proc.Wait(); return err })
		c <- e
	}()
	return c
}

func (p *program) cancelled() {
	if p.marks.cancelled == never {
		p.marks.cancelled = time.Since(p.began)
	}
}

// terminate asks the program to end and begins its grace.
func (p *program) terminate() {
	if p.killed || p.grc != nil {
		return
	}
	if p.grace <= 0 {
		p.kill()
		return
	}
	p.signal(syscall.SIGTERM)
	p.grc = time.After(p.grace)
}

// kill ends the program, and with it, after killSettle, a one-shot sandbox.
func (p *program) kill() {
	if p.killed {
		return
	}
	p.killed = true
	p.grc = nil
	p.signal(syscall.SIGKILL)
	p.settle = time.After(killSettle)
	p.await()
}

// signal does not wait: a driver that is stuck in Signal must not stop the
// clocks.
func (p *program) signal(sig syscall.Signal) {
	go func() {
		if err := guarded(func() error { return p.proc.Signal(int(sig)) }); err != nil {
			p.log.Warn("a signal could not be sent", "signal", int(sig), "error", err)
		}
	}()
}

// await begins the time in which the driver's Wait has to return.
func (p *program) await() {
	p.seen = p.out.calls.Load()
	p.patience = time.After(patience)
}

// moved reports whether the sink is at fault and not the driver: it is in a
// call, or has been since await.
func (p *program) moved() bool {
	n := p.out.calls.Load()
	return n != p.seen || n%2 == 1
}

// conclude makes the result of what the driver said.
func (p *program) conclude(e ended) (sandbar.Result, error) {
	<-p.out.open // Started comes before the result, however short the program
	c := p.out.close()
	if e.err == nil && (e.result.Outcome < sandbar.Exited || e.result.Outcome > sandbar.Lost) {
		e.err = sandbar.Errorf(sandbar.Internal, "the driver reported the unknown outcome %d", int(e.result.Outcome))
	}
	if e.err != nil && p.killed {
		// The engine has ended the program and knows why; a driver that
		// stumbles over the corpse takes nothing from that.
		p.log.Warn("the driver could not tell the end of a program that was killed", "error", e.err)
		e = ended{result: sandbar.Result{Outcome: sandbar.Lost}}
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
			"the program was killed but the driver did not report its end within %v", patience)
	}
}

// finish fills in what the engine knows better than the driver.
func (p *program) finish(r sandbar.Result, c counts) sandbar.Result {
	p.marks.over = c.dropped > 0
	r.Outcome = decide(r, p.marks)
	if r.Outcome != sandbar.Exited {
		r.ExitCode = 0
	}
	r.StdoutBytes, r.StderrBytes, r.DroppedBytes = c.stdout, c.stderr, c.dropped
	return r
}
