package faulty

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// A pipe has slots of at most chunk bytes each.
const (
	chunk = 32 << 10
	slots = 2
)

// process is a running script.
type process struct {
	b       *sandbox
	cmd     sandbar.Cmd
	args    []string // the program's own arguments
	pid     int
	script  [][]string // commands as words
	std     driver.Stdio
	out     [3]*pipe // by sandbar.Stream
	started time.Time

	stopped chan struct{} // closed by stop
	trap    chan struct{} // holds a token when a trapped signal is pending
	hung    chan struct{} // closed by the verb hang
	ended   chan struct{} // closed when the script has ended
	done    chan struct{} // closed when its output has been delivered too

	mu        sync.Mutex
	cause     sandbar.Result // the result after stop
	isStopped bool
	ignore    bool
	onTerm    []string
	hang      sync.Once // closes hung

	// written only by run, before ended is closed
	result    sandbar.Result
	drain     time.Duration
	waitPanic bool
	waitErr   error
}

// pipe carries one output to its receiver.
type pipe struct {
	data   chan []byte
	broken chan struct{} // closed when a Write of the receiver has failed
}

func newProcess(b *sandbox, c sandbar.Cmd, std driver.Stdio) (*process, error) {
	p := &process{b: b, cmd: c, std: std,
		stopped: make(chan struct{}), trap: make(chan struct{}, 1), hung: make(chan struct{}),
		ended: make(chan struct{}), done: make(chan struct{})}
	var err error
	p.script, p.args, err = b.load(c)
	return p, err
}

func (p *process) start() {
	p.started = time.Now()
	var copies sync.WaitGroup
	for s, w := range map[sandbar.Stream]io.Writer{sandbar.Stdout: p.std.Stdout, sandbar.Stderr: p.std.Stderr} {
		if w == nil {
			w = io.Discard
		}
		out := &pipe{data: make(chan []byte, slots), broken: make(chan struct{})}
		p.out[s] = out
		copies.Go(func() { out.copy(w) })
	}
	go func() {
		p.run()
		p.b.forget(p)
		close(p.ended)
		close(p.out[sandbar.Stdout].data)
		close(p.out[sandbar.Stderr].data)
		copies.Wait()
		time.Sleep(p.drain)
		close(p.done)
	}()
}

// copy writes the pipe's content to w until the pipe is closed. After an error it discards the
// rest.
func (o *pipe) copy(w io.Writer) {
	failed := false
	for b := range o.data {
		if failed {
			continue
		}
		if _, err := w.Write(b); err != nil {
			failed = true
			close(o.broken)
		}
	}
}

// stop ends the program with a result. Later calls have no effect.
func (p *process) stop(cause sandbar.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isStopped {
		p.isStopped = true
		p.cause = cause
		close(p.stopped)
	}
}

// Wait returns when the program has ended and its output is delivered.
func (p *process) Wait() (sandbar.Result, error) {
	<-p.done
	if p.waitPanic {
		panic("faulty: requested panic")
	}
	return p.result, p.waitErr
}

// harmless has the signals whose default action is to ignore, stop or continue (signal(7)). They
// have no effect here.
var harmless = map[int]bool{17: true, 18: true, 19: true, 20: true, 21: true, 22: true, 23: true, 28: true}

// Signal sends a signal with the default actions of signal(7).
func (p *process) Signal(sig int) error {
	select {
	case <-p.ended:
		return nil
	default:
	}
	p.b.d.event("signal %d", sig)
	p.mu.Lock()
	ignored := harmless[sig] || (sig == 15 && p.ignore)
	trapped := sig == 15 && !p.ignore && p.onTerm != nil
	p.mu.Unlock()
	switch {
	case trapped:
		select {
		case p.trap <- struct{}{}:
		default:
		}
	case !ignored:
		p.stop(sandbar.Result{Outcome: sandbar.Signaled, Signal: sig})
	}
	return nil
}

// PID returns the number of the program in its sandbox: 2 for the first that was started.
func (p *process) PID() int { return p.pid }

// KillTree ends the program and its leftovers. Internal: the program hangs.
func (p *process) KillTree() error {
	if err := p.b.d.hook(context.Background(), p.b.d.OnKillTree); err != nil {
		return err
	}
	p.b.d.event("kill tree")
	p.stop(sandbar.Result{Outcome: sandbar.Signaled, Signal: 9})
	select {
	case <-p.ended:
	case <-p.hung:
		return sandbar.Errorf(sandbar.Internal, "faulty: the program hangs")
	}
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	p.b.clear(p)
	return nil
}

// run interprets the script and sets the result.
func (p *process) run() {
	p.result.Enforced = p.b.d.Capabilities.Enforced
	end := p.runAll(p.script)
	if end == nil {
		end = &scriptResult{sandbar.Result{Outcome: sandbar.Exited}}
	}
	r := &p.result
	r.Outcome, r.ExitCode, r.Signal = end.r.Outcome, end.r.ExitCode, end.r.Signal
	r.OOMKills = end.r.OOMKills
	r.PeakMemory = max(r.PeakMemory, end.r.PeakMemory)
	// In a synctest bubble no time may have passed, and 0 means "unknown".
	r.Duration = max(time.Since(p.started), 1)
}
