package engine

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// Exec runs one program in the sandbox to its end. lim may set only Timeout and Output; zero is the
// sandbox's own. The end of ctx cancels the program.
//
// A program that ends by itself leaves its background processes running. If the engine ends the
// program (time, output limit, cancellation), the engine ends all processes that the program
// started too, and returns the result when these are gone.
func (s *Sandbox) Exec(ctx context.Context, c sandbar.Cmd, stdin sandbar.Input, lim sandbar.Limits, sink Sink) (r sandbar.Result, err error) {
	began := false
	trace := s.trace(ctx, DidRun)
	defer func() {
		c := callOf(ctx, DidRun, s.id, r.Outcome.String(), err)
		c.began = began
		s.e.called(c)
		trace.end(s.id, r.Outcome.String(), err)
	}()
	if err := s.permit(ctx, DidRun); err != nil {
		return sandbar.Result{}, err
	}
	if ctx.Err() != nil {
		return sandbar.Result{}, sandbar.Errorf(sandbar.Canceled, "cancelled before it started: %w", context.Cause(ctx))
	}
	c, lim, err = s.check(c, lim, s.spec.Limits)
	if err != nil {
		return sandbar.Result{}, err
	}
	if err := s.e.beginExec(); err != nil {
		return sandbar.Result{}, err
	}
	defer s.e.running.add(-1)
	admitted := time.Now()
	b := newCanceller()
	defer context.AfterFunc(ctx, b.cancel)()
	if err := s.begin(b, false); err != nil {
		return sandbar.Result{}, err
	}
	defer s.finish(b, nil, sandbar.Result{}, nil)
	if sink == nil {
		sink = Discard
	}
	trace.step(StepAdmission)
	p, err := s.start(ctx, c, stdin, lim, sink, b, trace != nil)
	setup := time.Since(admitted)
	trace.step(StepStart)
	if began = err == nil; began {
		r, err = s.await(p, Client(ctx).Name)
		trace.ran(p, r)
	}
	s.e.observe(s.id, Observation{Client: Client(ctx), Driver: s.spec.Driver, Result: r, Err: err, Setup: setup, Total: time.Since(admitted)})
	return r, err
}

// beginExec counts a call of Exec among the work that Shutdown lets end by itself.
func (e *Engine) beginExec() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return unavailable()
	}
	e.running.add(1)
	return nil
}

// await supervises a program whose caller waits for it.
func (s *Sandbox) await(p *program, client string) (sandbar.Result, error) {
	s.mu.Lock()
	s.awaited++
	v := Event{Type: EventProgramStarted, Client: client, Program: "x" + strconv.Itoa(s.awaited)}
	s.mu.Unlock()
	s.happened(v)
	r, err := s.pausedError(p.supervise())
	if err == nil {
		s.e.fillEnforced(s.spec, &r)
	}
	s.happened(Event{Type: EventProgramEnded, Program: v.Program}.ended(r, err))
	return r, err
}

// check checks the arguments of Exec and Start. It takes an unset Timeout or Output from def.
func (s *Sandbox) check(c sandbar.Cmd, lim, def sandbar.Limits) (sandbar.Cmd, sandbar.Limits, error) {
	if rest := (sandbar.Limits{Timeout: lim.Timeout, Output: lim.Output}); rest != lim {
		return c, lim, &sandbar.Error{Code: sandbar.Invalid, Field: "limits",
			Message: "a program in an existing sandbox can have only limits.timeout and limits.output; the other limits are the sandbox's"}
	}
	lo, hi := s.e.cfg.Min, s.e.cfg.Max
	var err error
	if lim.Timeout, err = inRange("timeout", time.Duration.String, lim.Timeout, def.Timeout, lo.Timeout, hi.Timeout); err != nil {
		return c, lim, err
	}
	if lim.Output, err = inRange("output", showBytes, lim.Output, def.Output, lo.Output, hi.Output); err != nil {
		return c, lim, err
	}
	if err := s.e.checkEnv(s.spec.Env, c.Env); err != nil {
		return c, lim, err
	}
	c, err = s.e.checkCmd(s.spec, c)
	return c, lim, err
}

// start starts a program of the caller in ctx that b ends. The caller must call supervise on it.
func (s *Sandbox) start(ctx context.Context, c sandbar.Cmd, stdin sandbar.Input, lim sandbar.Limits, sink Sink, b *canceller, timed bool) (*program, error) {
	out := newLimitedWriter(sink, lim.Output)
	out.timed = timed
	c.Env = mergeEnv(s.env, c.Env)
	proc, err := bounded(s.e.setupTimeout(s.spec.Driver), b.soft, func(ctx context.Context) (driver.Process, error) {
		proc, err := s.inner.Start(ctx, c, driver.Stdio{Stdin: stdin,
			Stdout: out.writer(sandbar.Stdout), Stderr: out.writer(sandbar.Stderr)})
		if err != nil {
			return nil, err
		}
		return proc, nil
	}, dropProcess)
	if err != nil {
		out.close()
		if s.wasPaused() {
			return nil, isPaused(s.id)
		}
		if !s.live() {
			return nil, sandbar.Errorf(sandbar.Gone, "sandbox %s was stopped before the program started", s.id)
		}
		return nil, explain(err, s.e.force)
	}
	return &program{proc: proc, out: out, canceller: b, timeout: lim.Timeout, grace: s.e.cfg.Grace,
		began: time.Now(), dead: deadChan(s.inner), log: s.e.log.With(callerIn(ctx), "sandbox", s.id)}, nil
}

// dropProcess kills a program that started after its caller had stopped waiting. Errors are
// ignored: the end of the sandbox ends the program in any case.
func dropProcess(p driver.Process) {
	if p != nil {
		_ = catchPanic(func() error { return killTreeOf(p) })
	}
}

// Start starts a program in the background. It keeps up to Config.ReplayBytes of each output stream
// for replay, whether or not a follower reads it. lim may set only Timeout and Output; their
// default is no limit. Exhausted: 256 programs run in the sandbox.
func (s *Sandbox) Start(ctx context.Context, c sandbar.Cmd, stdin sandbar.Input, lim sandbar.Limits) (*Process, error) {
	output := newReplay(s.e.cfg.ReplayBytes)
	p, err := s.launch(ctx, c, stdin, lim, output, output)
	s.called(ctx, DidStart, err)
	return p, err
}

// StartSink is Start with a sink for all output. A sink that blocks stops the program's output. No
// output is kept for replay: Follow delivers nothing. sink is called as Exec's is; its failure
// cancels the program. Nil is Discard.
func (s *Sandbox) StartSink(ctx context.Context, c sandbar.Cmd, stdin sandbar.Input, lim sandbar.Limits, sink Sink) (*Process, error) {
	if sink == nil {
		sink = Discard
	}
	p, err := s.launch(ctx, c, stdin, lim, sink, newReplay(0))
	s.called(ctx, DidStart, err)
	return p, err
}

// launch starts a program with followers; its output goes to sink.
func (s *Sandbox) launch(ctx context.Context, c sandbar.Cmd, stdin sandbar.Input, lim sandbar.Limits, sink Sink, output *replay) (_ *Process, err error) {
	trace := s.trace(ctx, DidStart)
	defer func() { trace.end(s.id, outcomeOK, err) }()
	if err := s.permit(ctx, DidStart); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, sandbar.Errorf(sandbar.Canceled, "cancelled before it started: %w", context.Cause(ctx))
	}
	c, lim, err = s.check(c, lim, sandbar.Limits{Timeout: sandbar.Unlimited, Output: sandbar.Unlimited})
	if err != nil {
		return nil, err
	}
	if s.e.isClosing() {
		return nil, unavailable()
	}
	began := time.Now()
	b := newCanceller()
	if err := s.begin(b, true); err != nil {
		return nil, err
	}
	p := &Process{sandbox: s, cmd: c, canceller: b, replay: output, done: make(chan struct{})}
	// ctx bounds the start only. If it ends just after the start, the process exists and ends as
	// Cancelled.
	release := context.AfterFunc(ctx, b.cancel)
	trace.step(StepAdmission)
	run, err := s.start(ctx, c, stdin, lim, sink, b, false)
	trace.step(StepStart)
	release()
	if err != nil {
		s.finish(b, p, sandbar.Result{}, err)
		return nil, err
	}
	p.proc, p.started = run.proc, run.began
	s.register(p)
	s.happened(Event{Type: EventProgramStarted, Client: Client(ctx).Name, Program: p.id})
	go s.follow(p, run, time.Since(began), Client(ctx))
	return p, nil
}

// killLeftovers kills, in the background, the processes that a finished program left behind. If the
// sandbox is being stopped, its removal kills them.
func (s *Sandbox) killLeftovers(p *Process) {
	release, err := s.keep()
	if err != nil {
		return
	}
	go func() {
		defer release()
		if err := catchPanic(func() error { return killTreeOf(p.proc) }); err != nil {
			s.e.log.Warn("processes that a program left behind were not all killed", ownerOf(s.spec), "sandbox", s.id, "process", p.id, "error", err)
		}
	}()
}

// register sets a process's id and adds it to the list.
func (s *Sandbox) register(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started++
	p.id = "p" + strconv.Itoa(s.started)
	s.procs = append(s.procs, p)
}

// follow supervises a program with followers to its end.
func (s *Sandbox) follow(p *Process, run *program, setup time.Duration, c sandbar.Client) {
	r, err := s.pausedError(run.supervise())
	if err == nil {
		s.e.fillEnforced(s.spec, &r)
	}
	s.e.observe(s.id, Observation{Client: c, Driver: s.spec.Driver, Result: r, Err: err, Setup: setup, Total: setup + time.Since(p.started)})
	s.happened(Event{Type: EventProgramEnded, Program: p.id}.ended(r, err))
	s.finish(p.canceller, p, r, err)
	if p.canceller.killed() && run.treeEnded == nil { // kill was perhaps called after supervise's last look and before Kill could see the end
		s.killLeftovers(p)
	}
}

// dropFinished drops the oldest finished processes beyond Config.KeepFinished. s.mu is held.
func (s *Sandbox) dropFinished() {
	surplus := -s.e.cfg.KeepFinished
	for _, p := range s.procs {
		if !p.running() {
			surplus++
		}
	}
	s.procs = slices.DeleteFunc(s.procs, func(p *Process) bool {
		if surplus <= 0 || p.running() {
			return false
		}
		surplus--
		return true
	})
}

// Process returns a running or kept process of Start or StartSink. NotFound: there is none.
func (s *Sandbox) Process(id string) (*Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.procs {
		if p.id == id {
			return p, nil
		}
	}
	return nil, &sandbar.Error{Code: sandbar.NotFound, Field: "process",
		Message: "there is no process " + sandbar.Quote(id, 40) + " in sandbox " + string(s.id) +
			"; the last " + strconv.Itoa(s.e.cfg.KeepFinished) + " finished processes are kept"}
}

// Processes lists running and kept processes in the order of their start.
func (s *Sandbox) Processes() []*Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.procs)
}
