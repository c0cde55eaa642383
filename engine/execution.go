package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// Execution is one admitted job. It has a position in the queue, then a sandbox, then a result.
type Execution struct {
	e         *Engine
	id        sandbar.ID // of the sandbox, set before the sandbox exists
	plan      plan
	job       sandbar.Job   // as the caller passed it, for Config.Record
	ready     *readySandbox // nil: no prestarted sandbox. withdraw discards it, launch uses it
	stdin     sandbar.Input
	ticket    *ticket
	canceller *canceller
	admitted  time.Time
	trace     *callTrace // nil if the execution is not traced

	queued, setup time.Duration // for the Observation; written by run

	mu      sync.Mutex
	state   stage
	refusal error // the error of a withdrawn execution
}

// stage is the progress of an Execution.
type stage int

const (
	admitted  stage = iota // Run has not been called
	waiting                // Run waits for a slot
	hasSlot                // Run has a slot; only the canceller ends it
	withdrawn              // cancelled before it had a slot
)

// Admit checks a job and takes a slot or a position in the queue. It starts nothing. Errors:
// Invalid, TooLarge (code, environment), Unsupported (language, a limit that cannot be enforced),
// Exhausted (queue full), Unavailable (shutting down), Denied (the client may read only). The
// caller must end the Execution by Run or Cancel.
func (e *Engine) Admit(job sandbar.Job) (*Execution, error) {
	trace := e.trace(job.Spec.Client, DidExecute)
	x, err := e.admit(job, trace)
	if err != nil { // otherwise its end is recorded
		e.called(call{client: job.Spec.Client, verb: DidExecute, err: err})
		trace.step(StepAdmission)
		trace.end("", "", err)
	}
	return x, err
}

// admit implements Admit.
func (e *Engine) admit(job sandbar.Job, trace *callTrace) (*Execution, error) {
	if err := mayAct(job.Spec.Client, DidExecute); err != nil {
		return nil, err
	}
	p, err := e.plan(job)
	if err != nil {
		return nil, err
	}
	if err := e.allow(p.spec.Client); err != nil {
		return nil, err
	}
	if err := e.checkInterpreter(&p); err != nil {
		return nil, err
	}
	d, err := e.hold(context.Background(), p.spec.Client, claimOf(p.spec))
	if err != nil {
		return nil, err
	}
	x := &Execution{e: e, id: sandbar.NewID(), plan: p, job: job, stdin: job.Stdin, canceller: newCanceller(), admitted: time.Now(), trace: trace}
	if !e.prefersOneShot(&p) {
		languages := []string{p.language.Name, ""}
		if p.language.Name == "" || e.oneShotter(&p) != nil {
			languages = languages[:1] // a sandbox for one program costs less than a ready one without its interpreter
		}
		x.ready = e.takeReady(p.spec, languages...)
	}
	if err := x.enter(d); err != nil {
		return nil, err
	}
	e.makeRoom(x.ticket)
	return x, nil
}

// enter takes a slot or a position in the queue, and registers the execution.
func (x *Execution) enter(d claim) (err error) {
	e := x.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if x.ticket, x.ready, err = e.enter(oneShot, x.plan.spec.Client, d, x.ready); err != nil {
		return err
	}
	e.executions[x] = struct{}{}
	e.running.add(1)
	e.work.add(1)
	return nil
}

// Run is Admit and Execution.Run. The end of ctx cancels the execution.
func (e *Engine) Run(ctx context.Context, job sandbar.Job, sink Sink) (sandbar.Result, error) {
	if ctx.Err() != nil {
		return sandbar.Result{}, sandbar.Errorf(sandbar.Canceled, "cancelled before it was admitted: %w", context.Cause(ctx))
	}
	x, err := e.Admit(job)
	if err != nil {
		return sandbar.Result{}, err
	}
	defer context.AfterFunc(ctx, x.Cancel)()
	return x.Run(sink)
}

// Run waits for a slot, makes the sandbox, runs the program and returns its result. Call it once.
// The sandbox is destroyed after Run returns. Its slot is free only when nothing is left of it, and
// Shutdown waits for that. A result means that the program started. An error means that it did not
// start, or that the platform failed: Canceled (before the start), Timeout (waited too long),
// Unsupported, Exhausted, Internal, Unavailable.
//
// The time limit also applies while a Sink blocks: the program is killed when its time is up. Run
// returns after the Sink's last call has returned.
func (x *Execution) Run(sink Sink) (sandbar.Result, error) {
	if err := x.begin(); err != nil {
		return sandbar.Result{}, err
	}
	if sink == nil {
		sink = Discard
	}
	sink, done := x.record(sink)
	r, err := x.run(sink)
	x.ticket.uncount()
	x.end(r, err)
	done(r, err)
	return r, err
}

// record passes the execution's job and sink to Config.Record, if that is set. It returns the sink
// to use and the function to call with the result.
func (x *Execution) record(sink Sink) (Sink, func(sandbar.Result, error)) {
	done := func(sandbar.Result, error) {}
	if x.e.cfg.Record == nil || x.job.Unrecorded {
		return sink, done
	}
	job := x.job
	job.Spec, job.Stdin = x.plan.spec, nil
	recorded, onEnd := x.e.cfg.Record(job, sink)
	if onEnd != nil {
		done = onEnd
	}
	return recorded, done
}

func (x *Execution) begin() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch x.state {
	case admitted:
		x.state = waiting
		return nil
	case withdrawn:
		return x.refusal
	}
	return sandbar.Errorf(sandbar.Conflict, "Run was called twice on one execution")
}

// end completes an execution. It is called once: by Run, or by the call that withdrew an execution
// before Run.
func (x *Execution) end(r sandbar.Result, err error) {
	x.e.called(call{client: x.plan.spec.Client, verb: DidExecute, sandbox: x.id, outcome: r.Outcome.String(), err: err, began: true})
	x.e.happened(Event{Type: EventExecutionEnded, Sandbox: x.id, Tenant: x.plan.spec.Client.Tenant, Client: x.plan.spec.Client.Name}.ended(r, err))
	x.trace.end(x.id, r.Outcome.String(), err)
	x.e.observe(x.id, Observation{Client: x.plan.spec.Client, Driver: x.plan.spec.Driver, Language: x.plan.language.Name, Result: r, Err: err,
		Queued: x.queued, Setup: x.setup, Total: time.Since(x.admitted)})
	x.e.mu.Lock()
	delete(x.e.executions, x)
	x.e.mu.Unlock()
	x.e.running.add(-1)
	x.e.work.add(-1)
}

// Limits returns the limits of the execution, with no field unset.
func (x *Execution) Limits() sandbar.Limits { return x.plan.spec.Limits }

// Cancel ends the execution at any stage. A running program gets TERM and, after the grace period,
// KILL. Cancel does not wait, and may be called at any time.
func (x *Execution) Cancel() {
	x.canceller.cancel()
	x.withdraw(sandbar.Errorf(sandbar.Canceled, "cancelled before it started"))
}

// Kill is Cancel without the grace period.
func (x *Execution) Kill() {
	x.canceller.kill()
	x.withdraw(sandbar.Errorf(sandbar.Canceled, "cancelled before it started"))
}

// withdraw removes an execution without a slot from the queue at once. It does not wait for the
// goroutine in Run. It also ends an execution for which Run was never called.
func (x *Execution) withdraw(why error) {
	x.mu.Lock()
	was := x.state
	if was == admitted || was == waiting {
		x.state, x.refusal = withdrawn, why
		if x.ready != nil {
			x.ready.discard(x.e)
		} else {
			x.ticket.leave()
		}
	}
	x.mu.Unlock()
	if was == admitted {
		x.end(sandbar.Result{}, why)
	}
}

// awaitSlot waits for the slot.
func (x *Execution) awaitSlot() error {
	err := x.e.awaitSlot(x.ticket, x.canceller.soft, x.admitted)
	x.queued = time.Since(x.admitted)
	x.trace.step(StepAdmission)
	if err != nil {
		x.withdraw(err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.state == withdrawn {
		return x.refusal
	}
	x.state = hasSlot
	return nil
}

func (x *Execution) run(sink Sink) (sandbar.Result, error) {
	if err := x.awaitSlot(); err != nil {
		return sandbar.Result{}, err
	}
	began := time.Now()
	out := newLimitedWriter(sink, x.plan.spec.Limits.Output)
	out.timed = x.trace != nil
	l, err := x.launch(out)
	x.setup = time.Since(began)
	x.trace.launched(x, l)
	if err != nil {
		out.close()
		return sandbar.Result{}, err
	}
	x.id = l.id
	x.e.happened(Event{Type: EventExecutionStarted, Sandbox: x.id, Tenant: x.plan.spec.Client.Tenant, Client: x.plan.spec.Client.Name})
	var once sync.Once
	dead := deadChan(l.sb)
	l.sb = x.trace.removal(l.id, l.sb)
	discard := func() { once.Do(func() { x.e.discard(l.id, l.sb, x.ticket) }) }
	defer discard()
	p := &program{proc: l.proc, out: out, canceller: x.canceller, timeout: x.plan.spec.Limits.Timeout, grace: x.e.cfg.Grace,
		began: l.began, dead: dead, destroy: discard, log: x.e.log.With(slog.Any("", x.plan.spec.Client), "sandbox", x.id)}
	r, err := p.supervise()
	x.trace.ran(p, r)
	if err != nil {
		return r, err
	}
	x.e.fillEnforced(x.plan.spec, &r)
	if r.Outcome == sandbar.Exited && !l.single {
		x.e.removeLater(&once, l, x.ticket)
	}
	return r, nil
}

// launched is a sandbox and the program that runs in it.
type launched struct {
	id sandbar.ID
	sb removable
	// single: sb is a driver.Single, whose removal is cheap and makes the next one cheap.
	single bool
	proc   driver.Process
	began  time.Time
	// made is the time at which there was a sandbox, if the execution is traced; it is zero if the
	// driver made it together with the program. origin is where it came from.
	made   time.Time
	origin Origin
}

// launch makes the sandbox and starts the program. On error it discards the sandbox, if there is
// one.
func (x *Execution) launch(out *limitedWriter) (launched, error) {
	l, err := bounded(x.e.setupTimeout(x.plan.spec.Driver), x.canceller.soft, func(ctx context.Context) (l launched, err error) {
		// After a panic the sandbox in l must still be removed.
		err = catchPanic(func() error { return x.build(ctx, &l, out) })
		return l, err
	}, func(l launched) { x.e.discard(l.id, l.sb, x.ticket) })
	if err != nil {
		return l, explain(err, x.e.force)
	}
	return l, nil
}

// build does the work of launch. It stores each part in l as soon as the part exists.
func (x *Execution) build(ctx context.Context, l *launched, out *limitedWriter) error {
	r := x.ready
	if r == nil {
		r = x.e.pools.forkNow(ctx, x)
	}
	if r != nil {
		if done, err := x.useReady(ctx, r, l, out); done {
			return err
		}
	} else if done, err := x.runOnce(ctx, l, out); done {
		return err
	}
	return x.buildCold(ctx, l, out)
}

// buildCold makes a new sandbox for this execution and starts the program in it.
func (x *Execution) buildCold(ctx context.Context, l *launched, out *limitedWriter) (err error) {
	l.id = x.id
	sb, err := x.e.create(ctx, x.id, x.plan.spec)
	if err != nil {
		return err
	}
	l.sb, l.origin, l.made = sb, OriginCreated, x.trace.now()
	if err := x.putCode(ctx, sb); err != nil {
		return err
	}
	l.proc, err = sb.Start(ctx, x.plan.cmd, driver.Stdio{Stdin: x.stdin,
		Stdout: out.writer(sandbar.Stdout), Stderr: out.writer(sandbar.Stderr)})
	l.began = time.Now()
	return x.startError(err)
}

// startError returns the error of a program that was not started from its own point of view: what
// is missing may be the interpreter.
func (x *Execution) startError(err error) error {
	if sandbar.CodeOf(err) == sandbar.NotFound && x.plan.language.Name != "" {
		if _, own := x.plan.spec.Env["PATH"]; !own {
			x.e.interpreters.note(interpreterKeyOf(x.plan.spec, x.plan.language), false)
		}
		return x.e.missingInterpreter(&x.plan, err)
	}
	return err
}

// putCode has Config.Vet check the code, if there is any, and writes it to its file in the sandbox.
func (x *Execution) putCode(ctx context.Context, sb driver.Sandbox) error {
	file := x.plan.file()
	if file == "" {
		return nil
	}
	if err := x.vet(ctx, sb); err != nil {
		return err
	}
	return driver.WriteFile(ctx, sb.FS(), file, []byte(x.plan.code))
}

// vet calls Config.Vet with the code. A *vetRefusal is final: the execution must not try the code
// in another sandbox.
func (x *Execution) vet(ctx context.Context, sb driver.Sandbox) error {
	if x.e.cfg.Vet == nil {
		return nil
	}
	err := x.e.cfg.Vet(ctx, sb, x.plan.language, x.plan.code)
	if sandbar.CodeOf(err) == sandbar.Denied {
		return &vetRefusal{err}
	}
	return err
}

// vetRefusal is the error with which Config.Vet refused the code.
type vetRefusal struct{ error }

func (r *vetRefusal) Unwrap() error { return r.error }
