package engine

import (
	"context"
	"slices"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// Tracer records traces of requests. Its methods may be called concurrently and must return
// quickly.
type Tracer interface {
	// Begin begins the span of a request of c, until end is called. parent is the W3C traceparent that
	// the client has sent, "" for none; it need not be valid. Begin returns c with its Trace, if the
	// request is recorded.
	Begin(c sandbar.Client, name, parent string) (_ sandbar.Client, end func())
	// Record records a call whose caller has a Client.Trace. It is called before the call returns, and
	// again when the sandbox of an execution has been removed.
	Record(Trace)
}

// BeginRequest begins the span of a request of c by Config.Tracer, for protocols whose requests are
// not those of HTTP. Without a Tracer it returns c.
func (e *Engine) BeginRequest(c sandbar.Client, name, parent string) (_ sandbar.Client, end func()) {
	if e.cfg.Tracer == nil {
		return c, func() {}
	}
	return e.cfg.Tracer.Begin(c, name, parent)
}

// Trace is what happened in one call of a client: an execution, or a call in a long-lived sandbox.
// It has no code, arguments, environment, paths or output.
type Trace struct {
	// Client is the caller. Its Trace is the parent of Call.
	Client           sandbar.Client
	Sandbox          sandbar.ID // "" if there is none
	Driver, Language string     // "" if unknown, and for no language
	Origin           Origin     // "" for a program in an existing sandbox, and after an early failure
	// Outcome is "ok", the Outcome of a program, or the code of the call's error. Failed says that it
	// is such a code.
	Outcome string
	Failed  bool
	// Call is the whole call. Its name is a Verb, or StepRemoval for the removal of the sandbox of an
	// execution, which follows the result.
	Call Step
}

// Step is a part of a call.
type Step struct {
	Name       string
	Begin, End time.Time
	// Steps are the parts of this one in the order of their beginnings. Those of a call have no gaps:
	// each begins at the end of the one before, the first with the call, and the last ends with it.
	Steps []Step
}

// The names of steps.
const (
	StepAdmission   = "admission"    // checks, and the wait for a slot or for a turn
	StepCreate      = "create"       // the driver makes the sandbox, or a ready one is taken
	StepStart       = "start"        // the agent starts the program
	StepRun         = "run"          // to the end of the program, or of the delivery of its output
	StepFirstOutput = "first_output" // within StepRun: to the first output
	StepOutput      = "output"       // within StepRun: from the first output to the end of its delivery
	StepFinish      = "finish"       // to the result
	StepRemoval     = "removal"      // of the sandbox
)

// Origin is how a call got its sandbox.
type Origin string

// The origins.
const (
	OriginCreated Origin = "created" // the driver made it
	OriginReady   Origin = "ready"   // it was ready
	OriginForked  Origin = "forked"  // it is a copy of a template
)

// callTrace records the steps of a traced call. A nil *callTrace records nothing.
type callTrace struct {
	e     *Engine
	trace Trace
}

// trace begins the trace of a call; nil if it is not traced.
func (e *Engine) trace(c sandbar.Client, verb Verb) *callTrace {
	if e.cfg.Tracer == nil || c.Trace == "" {
		return nil
	}
	now := time.Now()
	return &callTrace{e: e, trace: Trace{Client: c, Call: Step{Name: string(verb), Begin: now, End: now, Steps: make([]Step, 0, 5)}}}
}

// trace is Engine.trace for a call in the sandbox by the caller in ctx.
func (s *Sandbox) trace(ctx context.Context, verb Verb) *callTrace {
	c := s.e.trace(Client(ctx), verb)
	c.about(s.spec.Driver, "")
	return c
}

// about sets the driver and the language.
func (c *callTrace) about(driver, language string) {
	if c != nil {
		c.trace.Driver, c.trace.Language = driver, language
	}
}

func (c *callTrace) from(o Origin) {
	if c != nil {
		c.trace.Origin = o
	}
}

// now is the present, or zero if nothing is recorded.
func (c *callTrace) now() (t time.Time) {
	if c != nil {
		t = time.Now()
	}
	return t
}

// step records that a step has ended now.
func (c *callTrace) step(name string) {
	if c != nil {
		c.stepTo(name, time.Now())
	}
}

// stepTo records a step from the end of the one before.
func (c *callTrace) stepTo(name string, end time.Time) {
	call := &c.trace.Call
	if end.Before(call.End) {
		end = call.End
	}
	call.Steps = append(call.Steps, Step{Name: name, Begin: call.End, End: end})
	call.End = end
}

// launched records the steps of Execution.launch.
func (c *callTrace) launched(x *Execution, l launched) {
	if c == nil {
		return
	}
	c.about(x.plan.spec.Driver, x.plan.language.Name)
	c.from(l.origin)
	if !l.made.IsZero() {
		c.stepTo(StepCreate, l.made)
	}
	if l.made.IsZero() {
		c.step(StepCreate)
		return
	}
	c.step(StepStart)
}

// ran records the steps of a program that has ended.
func (c *callTrace) ran(p *program, r sandbar.Result) {
	if c == nil {
		return
	}
	began, now := c.trace.Call.End, time.Now()
	end := now
	if r.Duration > 0 {
		end = p.began.Add(r.Duration)
	}
	first, last := p.out.times()
	if last.After(end) {
		end = last
	}
	if end.After(now) {
		end = now
	}
	c.stepTo(StepRun, end)
	if first.IsZero() {
		return
	}
	if first.Before(began) {
		first = began
	}
	run := &c.trace.Call.Steps[len(c.trace.Call.Steps)-1]
	run.Steps = []Step{{Name: StepFirstOutput, Begin: began, End: first}, {Name: StepOutput, Begin: first, End: last}}
}

// times returns the times of the first and of the last output; zero for none. It may be called
// after close.
func (o *limitedWriter) times() (first, last time.Time) {
	o.sem <- struct{}{}
	defer func() { <-o.sem }()
	return o.first, o.last
}

// end ends the call now and reports it.
func (c *callTrace) end(id sandbar.ID, outcome string, err error) {
	if c == nil {
		return
	}
	if err != nil {
		outcome = string(sandbar.CodeOf(err))
	}
	c.trace.Sandbox, c.trace.Outcome, c.trace.Failed = id, outcome, err != nil
	switch steps := c.trace.Call.Steps; {
	case len(steps) == 0: // it was refused
		c.step(StepAdmission)
	case steps[len(steps)-1].Name == StepRun:
		c.step(StepFinish)
	default: // the step that failed, or nothing but the return
		now := time.Now()
		steps[len(steps)-1].End, c.trace.Call.End = now, now
	}
	t := c.trace
	t.Call.Steps = slices.Clone(t.Call.Steps)
	c.report(t)
}

func (c *callTrace) report(t Trace) { c.e.guard("the tracer", func() { c.e.cfg.Tracer.Record(t) }) }

// removal returns a sandbox whose removal is reported too.
func (c *callTrace) removal(id sandbar.ID, sb removable) removable {
	if c == nil || sb == nil {
		return sb
	}
	return &tracedRemoval{removable: sb, c: c,
		trace: Trace{Client: c.trace.Client, Sandbox: id, Driver: c.trace.Driver, Language: c.trace.Language, Origin: c.trace.Origin}}
}

// tracedRemoval is the sandbox of a traced execution.
type tracedRemoval struct {
	removable
	c     *callTrace
	trace Trace
}

// Destroy implements removable.
func (r *tracedRemoval) Destroy(ctx context.Context) error {
	t := r.trace
	t.Call = Step{Name: StepRemoval, Begin: time.Now()}
	err := r.removable.Destroy(ctx)
	t.Call.End, t.Outcome = time.Now(), outcomeOK
	if t.Failed = err != nil; t.Failed {
		t.Outcome = string(sandbar.CodeOf(err))
	}
	r.c.report(t)
	return err
}
