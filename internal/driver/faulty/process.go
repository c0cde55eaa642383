package faulty

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// chunk is the most bytes in one slot of a pipe; a pipe has slots of them.
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

	stopped chan struct{} // closed when something from outside ends it
	trap    chan struct{} // holds a token when a trapped signal came
	hung    chan struct{} // closed when it hangs
	ended   chan struct{} // closed at its end
	done    chan struct{} // closed when its output has been delivered too

	mu        sync.Mutex
	cause     sandbar.Result // of stopped, once closed
	isStopped bool
	ignore    bool
	onTerm    []string
	hang      sync.Once // closes hung

	// owned by run until ended is closed
	result    sandbar.Result
	drain     time.Duration
	waitPanic bool
	waitErr   error
}

// pipe carries one output to its receiver.
type pipe struct {
	data   chan []byte
	broken chan struct{} // closed when the receiver has failed
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

// copy delivers what comes until the pipe is closed. After a failure the rest
// is thrown away.
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

// stop ends the program from outside; the first cause counts.
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
		panic("faulty: told to panic")
	}
	return p.result, p.waitErr
}

// The signals whose default is to do nothing, or to stop, which is nothing here.
var harmless = map[int]bool{17: true, 18: true, 19: true, 20: true, 21: true, 22: true, 23: true, 28: true}

// Signal is what the kernel would do.
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

// PID is the number of the program, from 2 on in the order of the starts.
func (p *process) PID() int { return p.pid }

// KillTree ends the program and what it has left behind. A program that hangs
// resists.
func (p *process) KillTree() error {
	if err := p.b.d.hook(context.Background(), p.b.d.OnKillTree); err != nil {
		return err
	}
	p.b.d.event("kill tree")
	p.stop(sandbar.Result{Outcome: sandbar.Signaled, Signal: 9})
	select {
	case <-p.ended:
	case <-p.hung:
		return sandbar.Errorf(sandbar.Internal, "faulty: told to hang")
	}
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	p.b.clear(p)
	return nil
}

// run interprets the script and leaves the result.
func (p *process) run() {
	p.result.Enforced = p.b.d.Capabilities.Enforced
	end := p.runAll(p.script)
	if end == nil {
		end = &ending{sandbar.Result{Outcome: sandbar.Exited}}
	}
	r := &p.result
	r.Outcome, r.ExitCode, r.Signal = end.r.Outcome, end.r.ExitCode, end.r.Signal
	r.OOMKills = end.r.OOMKills
	r.PeakMemory = max(r.PeakMemory, end.r.PeakMemory)
	// Real time never stands still; in a bubble it may, and 0 means "unknown".
	r.Duration = max(time.Since(p.started), 1)
}
