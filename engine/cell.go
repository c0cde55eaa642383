package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/warm/kernel"
)

// Run runs one cell. Cells of a context run one after another; others wait, 64 at most (Exhausted).
// At the time limit, at the output limit and at the end of ctx the engine interrupts the cell, and
// after the grace period it kills the interpreter.
//
// An error is a failure of the platform, or the code was not run: Invalid, TooLarge, Denied,
// Exhausted, Canceled, or NotFound for a removed context. Everything that the code does is a
// CellResult.
func (c *Context) Run(ctx context.Context, cell Cell, sink CellSink) (r CellResult, err error) {
	s := c.s
	began := false
	trace := s.trace(ctx, DidRunCell)
	trace.about(s.spec.Driver, c.spec.Language)
	defer func() {
		c := callOf(ctx, DidRunCell, s.id, r.Outcome.String(), err)
		c.began = began
		s.e.called(c)
		trace.end(s.id, r.Outcome.String(), err)
	}()
	if err := s.permit(ctx, DidRunCell); err != nil {
		return CellResult{}, err
	}
	cell, err = c.checkCell(cell)
	if err != nil {
		return CellResult{}, err
	}
	if err := s.e.beginExec(); err != nil {
		return CellResult{}, err
	}
	defer s.e.running.add(-1)
	release, err := s.hold(ctx, DidRunCell)
	if err != nil {
		return CellResult{}, err
	}
	defer release()
	admitted := time.Now()
	leave, err := c.enter(ctx)
	if err != nil {
		return CellResult{}, err
	}
	defer leave()
	trace.step(StepAdmission)
	if err := c.vet(ctx, cell.Code); err != nil {
		return CellResult{}, err
	}
	k, err := c.interpreter(ctx)
	trace.step(StepStart)
	if err != nil {
		return CellResult{}, err
	}
	setup := time.Since(admitted)
	began = true
	s.happened(Event{Type: EventCellStarted, Client: Client(ctx).Name, Context: c.id})
	r, err = c.runCell(ctx, k, cell, sink)
	trace.step(StepRun)
	v := Event{Type: EventCellEnded, Context: c.id}.ended(sandbar.Result{Outcome: r.Outcome}, err)
	v.ExitCode, v.Failed = -1, r.Failed // a cell has no exit code
	s.happened(v)
	s.e.observe(s.id, Observation{Client: Client(ctx), Driver: s.spec.Driver, Language: c.spec.Language, Err: err, Setup: setup, Total: time.Since(admitted),
		Result: sandbar.Result{Outcome: r.Outcome, Duration: r.Duration, StdoutBytes: r.StdoutBytes, StderrBytes: r.StderrBytes}})
	return r, err
}

// checkCell checks a cell and sets its limits.
func (c *Context) checkCell(cell Cell) (Cell, error) {
	e := c.s.e
	if size := int64(len(cell.Code)); size > e.cfg.MaxCode {
		return cell, tooLarge("code", "the code", size, e.cfg.MaxCode)
	}
	if err := e.checkEnv(c.command.Env, cell.Env); err != nil {
		return cell, err
	}
	lo, hi, def := e.cfg.Min, e.cfg.Max, c.s.spec.Limits
	var err error
	if cell.Timeout, err = inRange("timeout", time.Duration.String, cell.Timeout, def.Timeout, lo.Timeout, hi.Timeout); err != nil {
		return cell, err
	}
	cell.Output, err = inRange("output", showBytes, cell.Output, def.Output, lo.Output, hi.Output)
	cell.Env = maps.Clone(cell.Env)
	return cell, err
}

// vet has Config.Vet check the code.
func (c *Context) vet(ctx context.Context, code string) error {
	e := c.s.e
	if e.cfg.Vet == nil {
		return nil
	}
	l, err := e.cfg.Languages.Find(c.lang.Program)
	if err != nil {
		return err
	}
	_, err = bounded(setupTimeout, ctx.Done(), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, e.cfg.Vet(ctx, c.s.inner, l, code)
	}, func(struct{}) {})
	return err
}

// runCell runs a cell in an interpreter. The caller has the turn.
func (c *Context) runCell(ctx context.Context, k *interpreter, cell Cell, sink CellSink) (CellResult, error) {
	c.mu.Lock()
	k.count++
	count := k.count
	c.mu.Unlock()
	h := newCellHandler(sink, cell.Output)
	began := time.Now()
	h.call(func() error { return sink.Started(count) })
	ended, err := k.conn.Run(kernel.Cell{Count: count, Code: cell.Code, Env: cell.Env, Strict: c.s.e.cfg.Vet != nil}, h)
	if err != nil {
		return CellResult{}, sandbar.Errorf(sandbar.Internal, "the cell could not be sent: %w", err)
	}
	w := &cellWatch{c: c, k: k, h: h, began: began, decided: decisions{cancelled: never, timedOut: never}}
	lost := w.watch(ctx, ended, cell.Timeout)
	r := CellResult{Count: count, Outcome: sandbar.Exited, Lost: lost, Duration: time.Since(began)}
	var died sandbar.Result
	if lost {
		if died, err = k.p.Wait(context.Background()); err != nil {
			return CellResult{}, err
		}
		r.Outcome = died.Outcome
		h.Error(sandbar.CellError{Name: sandbar.InterpreterEnded, Value: w.obituary(died)})
	}
	if h.panicked() {
		return CellResult{}, sandbar.Errorf(sandbar.Internal, "the receiver of the events failed: %w", errPanic)
	}
	switch {
	case lost && k.conn.Broken() != nil:
		r.Outcome = sandbar.Lost
	case w.decided.cancelled != never:
		r.Outcome = sandbar.Cancelled
	case w.decided.timedOut != never:
		r.Outcome = sandbar.TimedOut
	case w.decided.outputExceeded:
		r.Outcome = sandbar.OutputLimit
	}
	r.Failed = h.failed
	r.StdoutBytes, r.StderrBytes, r.ResultBytes = h.sent[sandbar.Stdout], h.sent[sandbar.Stderr], h.results
	return r, nil
}

// cellWatch supervises one cell.
type cellWatch struct {
	c       *Context
	k       *interpreter
	h       *cellHandler
	began   time.Time
	decided decisions

	interrupted chan struct{}   // closed when the interrupt has arrived; nil: none was sent
	arrived     <-chan struct{} // the same, until watch has seen it
	graceEnd    <-chan time.Time
}

// watch returns at the cell's end. It reports whether the interpreter has ended.
func (w *cellWatch) watch(ctx context.Context, ended <-chan struct{}, timeout time.Duration) (lost bool) {
	var expired <-chan time.Time
	if timeout >= 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		expired = t.C
	}
	cancelled, over, failed := ctx.Done(), w.h.exceeded, w.h.broken
	for {
		select {
		case <-ended:
			w.awaitInterrupt()
			return false
		case <-w.k.p.Done():
			select {
			case <-ended: // just before the interpreter's own end
				return false
			default:
				return true
			}
		case <-expired:
			w.decided.timedOut = time.Since(w.began)
			w.interrupt()
		case <-cancelled:
			cancelled = nil
			w.decided.cancelled = time.Since(w.began)
			w.interrupt()
		case <-failed:
			failed = nil
			w.decided.cancelled = time.Since(w.began)
			w.interrupt()
		case <-over:
			over = nil
			w.decided.outputExceeded = true
			w.interrupt()
		case <-w.arrived:
			w.arrived = nil
			w.graceEnd = time.After(w.c.s.e.cfg.Grace)
		case <-w.graceEnd:
			w.graceEnd = nil
			w.k.p.Kill()
		}
	}
}

// interrupt interrupts the cell. It does not wait for the driver. The grace period begins when the
// interrupt has arrived; without an arrival the interpreter is killed after driverGrace.
func (w *cellWatch) interrupt() {
	if w.interrupted != nil {
		return
	}
	sent := make(chan struct{})
	w.interrupted = sent
	if w.c.s.e.cfg.Grace <= 0 {
		close(sent)
		w.k.p.Kill()
		return
	}
	w.arrived, w.graceEnd = sent, time.After(driverGrace)
	go func() {
		defer close(sent)
		if err := w.k.interrupt(); err != nil {
			w.c.s.e.log.Warn("a cell could not be interrupted", ownerOf(w.c.s.spec), "sandbox", w.c.s.id, "context", w.c.id, "error", err)
		}
	}()
}

// awaitInterrupt waits until a sent interrupt has arrived, so that it does not hit the next cell.
func (w *cellWatch) awaitInterrupt() {
	if w.interrupted == nil {
		return
	}
	select {
	case <-w.interrupted:
	case <-time.After(driverGrace):
		w.k.p.Kill()
	}
}

// obituary says how the interpreter ended.
func (w *cellWatch) obituary(r sandbar.Result) string {
	how := "ended"
	switch {
	case w.k.conn.Broken() != nil:
		how = "was ended, because " + w.k.conn.Broken().Error()
	case w.decided.cancelled != never || w.decided.timedOut != never || w.decided.outputExceeded:
		how = "was ended, because the cell did not react to an interrupt"
	case r.Outcome == sandbar.Exited:
		how = fmt.Sprintf("exited with %d", r.ExitCode)
	case r.Outcome == sandbar.Signaled:
		how = fmt.Sprintf("was ended by signal %d", r.Signal)
	case r.Outcome == sandbar.OutOfMemory:
		how = "was ended at the memory limit"
	case r.Outcome == sandbar.Cancelled:
		how = "was restarted or removed"
	}
	return "the interpreter " + how + "; its variables are lost, and the next cell starts a new one"
}

// cellHandler passes the events of a cell to its sink, up to the output limit. It is called from
// one goroutine at a time: the decoder's, and after the interpreter's end that of Run.
type cellHandler struct {
	sink  CellSink
	limit int64 // negative: none

	sent     [3]int64
	results  int64
	failed   bool
	failure  error
	full     bool
	exceeded chan struct{} // closed at the first byte beyond the limit
	broken   chan struct{} // closed when the sink has failed
}

func newCellHandler(sink CellSink, limit int64) *cellHandler {
	return &cellHandler{sink: sink, limit: limit, exceeded: make(chan struct{}), broken: make(chan struct{})}
}

// call calls the sink unless it has failed.
func (h *cellHandler) call(f func() error) {
	if h.failure != nil {
		return
	}
	if h.failure = catchPanic(f); h.failure != nil {
		close(h.broken)
	}
}

func (h *cellHandler) panicked() bool { return errors.Is(h.failure, errPanic) }

func (h *cellHandler) exceed() {
	if !h.full {
		h.full = true
		close(h.exceeded)
	}
}

// room returns how many bytes may still be delivered.
func (h *cellHandler) room() int64 {
	return h.limit - h.sent[sandbar.Stdout] - h.sent[sandbar.Stderr] - h.results
}

// Output implements kernel.Handler. It cuts the output exactly at the limit.
func (h *cellHandler) Output(s sandbar.Stream, p []byte) {
	if h.full {
		return
	}
	over := h.limit >= 0 && int64(len(p)) > h.room()
	if over {
		p = p[:h.room()]
	}
	if len(p) > 0 {
		h.call(func() error { return h.sink.Output(sandbar.Chunk{Stream: s, Offset: h.sent[s], Data: p}) })
		h.sent[s] += int64(len(p))
	}
	if over {
		h.exceed()
	}
}

// Display implements kernel.Handler. A result that exceeds the limit is not delivered.
func (h *cellHandler) Display(d sandbar.Display, size int) {
	switch {
	case h.full:
	case h.limit >= 0 && int64(size) > h.room():
		h.exceed()
	default:
		h.results += int64(size)
		h.call(func() error { return h.sink.Display(d) })
	}
}

// Error implements kernel.Handler.
func (h *cellHandler) Error(e sandbar.CellError) {
	h.failed = true
	h.call(func() error { return h.sink.Error(e) })
}
