package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/warm/kernel"
)

const (
	// maxContexts bounds the contexts of one sandbox.
	maxContexts = 16
	// maxWaitingCells bounds the cells that wait for the running cell of one context.
	maxWaitingCells = 64
)

// ContextSpec describes a context.
type ContextSpec struct {
	// Language is a name of kernel.Languages, such as "python". Default: "python".
	Language string
	// Dir is the working directory of the interpreter. Default: sandbar.DefaultDir.
	Dir string
	// Env extends and overrides the sandbox's environment.
	Env map[string]string
}

// ContextInfo describes the state of a context.
type ContextInfo struct {
	ID       string
	Language string
	Dir      string
	Created  time.Time
	Count    int  // cells that the present interpreter has begun
	Busy     bool // a cell runs or waits
}

// Cell is code to run in a context.
type Cell struct {
	Code string
	// Env is set for this cell only.
	Env map[string]string
	// Timeout is the wall-clock time of the cell, without the time that it waits for other cells.
	// Output bounds its outputs and results together, in bytes. Zero is the sandbox's own limit.
	Timeout time.Duration
	Output  int64
}

// CellSink receives the events of a cell in order, from one goroutine at a time. A CellSink that
// blocks also blocks the cell. After an error it gets no further event, and the cell is cancelled.
type CellSink interface {
	// Started is called first, with the number of the execution.
	Started(count int) error
	// Output is called for each piece of output. The chunk's Data is valid only during the call.
	Output(c sandbar.Chunk) error
	// Display is called for each result.
	Display(d sandbar.Display) error
	// Error is called at most once for each error that the code raised, and for an interpreter that
	// ended.
	Error(e sandbar.CellError) error
}

// CellResult is the end of a cell.
type CellResult struct {
	Count int
	// Outcome is Exited for a cell that ended by itself, also with an error. TimedOut, OutputLimit
	// and Cancelled are ends by the engine. If the interpreter ended, it is the interpreter's own
	// outcome.
	Outcome sandbar.Outcome
	// Failed: the sink got an error.
	Failed bool
	// Lost: the interpreter has ended, and all variables with it. The next cell starts a new one.
	Lost     bool
	Duration time.Duration
	// StdoutBytes, StderrBytes and ResultBytes are delivered bytes; results are counted in their
	// encoding.
	StdoutBytes, StderrBytes, ResultBytes int64
}

// Context is an interpreter that stays in a sandbox and runs one cell after another. The state of
// the interpreter is kept between cells. If the interpreter ends, the next cell starts a new one.
//
// A context does not count as activity of its sandbox, a running cell does. Pausing a sandbox ends
// its contexts, and forks have none.
type Context struct {
	s       *Sandbox
	id      string
	spec    ContextSpec
	lang    kernel.Language
	command sandbar.Cmd
	created time.Time
	turn    chan struct{} // holds an element while a cell runs
	removed chan struct{} // closed by Remove

	mu      sync.Mutex
	waiting int // cells that run or wait
	gone    bool
	kernel  *interpreter // the last one; nil: none was started yet
}

// interpreter is one process of a context.
type interpreter struct {
	conn  *kernel.Conn
	p     *Process
	count int // cells begun
}

// CreateContext starts an interpreter. Unsupported: there are no contexts of the language, or the
// sandbox has no such interpreter. Exhausted: the sandbox has 16 contexts. Invalid: the directory
// or the environment.
func (s *Sandbox) CreateContext(ctx context.Context, spec ContextSpec) (_ *Context, err error) {
	defer func() { s.called(ctx, DidCreateContext, err) }()
	if err := s.permit(ctx, DidCreateContext); err != nil {
		return nil, err
	}
	if spec.Language == "" {
		spec.Language = "python"
	}
	l, err := kernel.Find(spec.Language)
	if err != nil {
		return nil, err
	}
	if s.e.capsOf(s.spec).Boundary == driver.BoundaryWasm {
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Field: "language", Message: "the driver " + sandbar.Quote(s.spec.Driver, 40) + " has no contexts: its programs have neither pipes nor signals",
			Fix: "create the sandbox with another driver: native, oci, docker or vm"}
	}
	known, err := s.e.cfg.Languages.Find(l.Program)
	if err != nil {
		return nil, err
	}
	spec.Language, spec.Env = l.Name, maps.Clone(spec.Env)
	c := &Context{s: s, spec: spec, lang: l, created: time.Now(), turn: make(chan struct{}, 1), removed: make(chan struct{})}
	c.command = l.Command(known.Interpreter())
	c.command.Dir, c.command.Env = spec.Dir, mergeEnv(c.command.Env, spec.Env)
	checked, _, err := s.check(c.command, sandbar.Limits{}, s.spec.Limits)
	if err != nil {
		return nil, err
	}
	c.command, c.spec.Dir = checked, checked.Dir
	if err := s.addContext(c); err != nil {
		return nil, err
	}
	if err := c.restart(ctx); err != nil {
		s.dropContext(c)
		return nil, err
	}
	return c, nil
}

func (s *Sandbox) addContext(c *Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.pausing {
		return s.refusal()
	}
	if len(s.contexts) >= maxContexts {
		return &sandbar.Error{Code: sandbar.Exhausted, Message: fmt.Sprintf("sandbox %s has %d contexts, which is the limit", s.id, maxContexts), Fix: "remove one"}
	}
	s.contextsMade++
	c.id = "c" + strconv.Itoa(s.contextsMade)
	s.contexts = append(s.contexts, c)
	return nil
}

func (s *Sandbox) dropContext(c *Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contexts = slices.DeleteFunc(s.contexts, func(x *Context) bool { return x == c })
}

// Context returns a context. NotFound: there is none with this id.
func (s *Sandbox) Context(id string) (*Context, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.contexts {
		if c.id == id {
			return c, nil
		}
	}
	return nil, &sandbar.Error{Code: sandbar.NotFound, Field: "context",
		Message: "there is no context " + sandbar.Quote(id, 40) + " in sandbox " + string(s.id), Fix: "list the contexts, or create one"}
}

// Contexts lists the contexts in the order of their creation.
func (s *Sandbox) Contexts() []*Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.contexts)
}

// ID identifies the context in its sandbox: "c1", "c2", in the order of creation.
func (c *Context) ID() string { return c.id }

// Info describes the current state.
func (c *Context) Info() ContextInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := ContextInfo{ID: c.id, Language: c.spec.Language, Dir: c.spec.Dir, Created: c.created, Busy: c.waiting > 0}
	if c.kernel != nil {
		i.Count = c.kernel.count
	}
	return i
}

// enter waits until no cell runs. leave lets the next one run.
func (c *Context) enter(ctx context.Context) (leave func(), err error) {
	c.mu.Lock()
	if c.waiting > maxWaitingCells {
		c.mu.Unlock()
		return nil, sandbar.Errorf(sandbar.Exhausted, "%d cells wait in context %s, which is the limit", maxWaitingCells, c.id)
	}
	c.waiting++
	c.mu.Unlock()
	quit := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiting--
	}
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		err = sandbar.Errorf(sandbar.CodeOfContext(ctx), "cancelled while waiting for another cell: %w", context.Cause(ctx))
	case <-c.removed:
	case <-c.s.ending:
	}
	c.mu.Lock()
	gone := c.gone
	c.mu.Unlock()
	leave = func() { <-c.turn; quit() }
	switch {
	case err != nil:
	case gone:
		err = c.refusal()
	case !c.s.live():
		c.s.mu.Lock()
		err = c.s.refusal()
		c.s.mu.Unlock()
	default:
		return leave, nil
	}
	quit()
	return nil, err
}

func (c *Context) refusal() error {
	return &sandbar.Error{Code: sandbar.NotFound, Field: "context", Message: "context " + c.id + " was removed", Fix: "create another one"}
}

// interpreter returns the running interpreter, after it has started one if there is none. The
// caller has the turn.
func (c *Context) interpreter(ctx context.Context) (*interpreter, error) {
	c.mu.Lock()
	k := c.kernel
	c.mu.Unlock()
	if k != nil && k.p.running() {
		return k, nil
	}
	k, err := c.start(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		k.p.Kill()
		return nil, c.refusal()
	}
	c.kernel = k
	return k, nil
}

// start starts an interpreter and waits until it can run cells.
func (c *Context) start(ctx context.Context) (*interpreter, error) {
	conn := c.lang.NewConn()
	p, err := c.s.startKernel(ctx, c.command, conn)
	if err != nil {
		conn.Close()
		if e := sandbar.AsError(err); e.Code == sandbar.NotFound && !c.dirMissing(ctx) {
			return nil, &sandbar.Error{Code: sandbar.Unsupported, Field: "language", Message: "the sandbox has no interpreter " + sandbar.Quote(c.command.Args[0], 40) + " for contexts of " + c.lang.Name,
				Fix: "use an image that has it", Err: err}
		}
		return nil, err
	}
	limit := time.NewTimer(setupTimeout)
	defer limit.Stop()
	select {
	case <-conn.Ready():
		return &interpreter{conn: conn, p: p}, nil
	case <-p.Done():
		_, err := p.Wait(context.Background())
		if err == nil && !c.s.live() {
			c.s.mu.Lock()
			err = c.s.refusal()
			c.s.mu.Unlock()
		}
		if err != nil {
			return nil, err
		}
		message := "the interpreter " + sandbar.Quote(c.command.Args[0], 40) + " cannot run contexts of " + c.lang.Name
		if said := conn.Early(); said != "" {
			message += ": " + sandbar.Quote(said[strings.LastIndexByte(said, '\n')+1:], 300)
		}
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Field: "language", Message: message, Fix: "see the versions that docs/contexts.md lists"}
	case <-ctx.Done():
		err = sandbar.Errorf(sandbar.CodeOfContext(ctx), "cancelled while the interpreter started: %w", context.Cause(ctx))
	case <-limit.C:
		err = sandbar.Errorf(sandbar.Timeout, "the interpreter was not ready after %v", setupTimeout)
	}
	p.Kill()
	<-p.Done()
	return nil, err
}

// dirMissing reports whether the context's directory does not exist.
func (c *Context) dirMissing(ctx context.Context) bool {
	_, err := c.s.inner.FS().Stat(ctx, c.command.Dir)
	return sandbar.CodeOf(err) == sandbar.NotFound
}

// startKernel starts an interpreter. It is no activity of the sandbox and not in Processes.
func (s *Sandbox) startKernel(ctx context.Context, cmd sandbar.Cmd, conn *kernel.Conn) (*Process, error) {
	b := newCanceller()
	if err := s.beginKernel(b); err != nil {
		return nil, err
	}
	lim := sandbar.Limits{Timeout: sandbar.Unlimited, Output: sandbar.Unlimited}
	p := &Process{sandbox: s, cmd: cmd, canceller: b, replay: newReplay(0), done: make(chan struct{})}
	release := context.AfterFunc(ctx, b.cancel)
	run, err := s.start(context.Background(), cmd, conn.Stdin(), lim, kernelSink{conn}, b, false)
	release()
	if err != nil {
		s.endKernel(b)
		return nil, err
	}
	p.proc, p.started = run.proc, run.began
	go func() {
		r, err := s.pausedError(run.supervise())
		conn.Close()
		if err == nil {
			s.e.fillEnforced(s.spec, &r)
		}
		if run.treeEnded == nil { // the interpreter ended by itself; nothing of it stays
			s.killLeftovers(p)
		}
		p.end(r, err)
		s.endKernel(b)
	}()
	return p, nil
}

// beginKernel counts an interpreter. endKernel ends it.
func (s *Sandbox) beginKernel(b *canceller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.pausing {
		return s.refusal()
	}
	s.cancellers[b] = struct{}{}
	s.programs.add(1)
	s.e.work.add(1)
	return nil
}

func (s *Sandbox) endKernel(b *canceller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.cancellers, b)
	s.programs.add(-1)
	s.e.work.add(-1)
}

// kernelSink passes an interpreter's output to its connection.
type kernelSink struct{ conn *kernel.Conn }

func (kernelSink) Started() {}

func (k kernelSink) Output(c sandbar.Chunk) error {
	w := k.conn.Stdout()
	if c.Stream == sandbar.Stderr {
		w = k.conn.Stderr()
	}
	_, err := w.Write(c.Data)
	return err
}

// Interrupt interrupts the running cell, as Ctrl-C does. The interpreter and its variables stay. If
// no cell runs, it does nothing. A cell can ignore it.
func (c *Context) Interrupt() error {
	c.mu.Lock()
	k, busy := c.kernel, c.waiting > 0
	c.mu.Unlock()
	if k == nil || !busy {
		return nil
	}
	return k.interrupt()
}

// interrupt sends SIGINT and returns when it has arrived, so that it does not hit a later cell. A
// driver may return from Signal before. Agents handle what they get in order, so the answer to a
// file operation comes after the signal.
func (k *interpreter) interrupt() error {
	const sigint = 2
	if err := k.p.Signal(sigint); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), driverGrace)
	defer cancel()
	return catchPanic(func() error {
		_, err := k.p.sandbox.inner.FS().Stat(ctx, sandbar.DefaultDir)
		if code := sandbar.CodeOf(err); code == sandbar.Timeout || code == sandbar.Canceled {
			return err
		}
		return nil
	})
}

// Restart ends the interpreter, with a running cell, and starts a new one. The counter of
// executions begins again.
func (c *Context) Restart(ctx context.Context) error {
	err := c.restart(ctx)
	c.s.called(ctx, DidRestartContext, err)
	return err
}

// restart implements Restart.
func (c *Context) restart(ctx context.Context) error {
	release, err := c.s.hold(ctx, DidRestartContext)
	if err != nil {
		return err
	}
	defer release()
	c.stop()
	leave, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	c.stop() // a cell that waited may have started one
	_, err = c.interpreter(ctx)
	return err
}

// stop kills the interpreter and waits for its end.
func (c *Context) stop() {
	c.mu.Lock()
	k := c.kernel
	c.mu.Unlock()
	if k != nil {
		k.p.Kill()
		<-k.p.Done()
	}
}

// Remove ends the interpreter and removes the context. Running and waiting cells end. It may be
// called repeatedly.
func (c *Context) Remove() {
	c.mu.Lock()
	first := !c.gone
	c.gone = true
	c.mu.Unlock()
	if first {
		close(c.removed)
		c.s.dropContext(c)
	}
	c.stop()
}

// ContextLanguages returns the languages of contexts.
func ContextLanguages() []ContextLanguage {
	var all []ContextLanguage
	for _, l := range kernel.Languages() {
		all = append(all, ContextLanguage{Name: l.Name, Aliases: l.Aliases})
	}
	return all
}
