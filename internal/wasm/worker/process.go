package worker

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// Signals, numbered as Linux does.
const (
	sigKill = 9
	maxSig  = 64
)

// process is a program that the host started, with all that it starts.
type process struct {
	w       *worker
	id      uint32
	mark    uint64
	streams *streams
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{} // closed when nothing of it runs
	account account
	signals chan int // to what runs

	mu     sync.Mutex
	signal uint8 // that ended it
	oom    bool
}

// account is what a program and all that it started have used.
type account struct {
	mu     sync.Mutex
	cpu    time.Duration
	denied bool // memory was refused to one of them
}

func (a *account) add(cpu time.Duration, denied bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cpu += cpu
	a.denied = a.denied || denied
}

// accountKey finds the account in the context of a program.
type accountKey struct{}

// onStart starts a program. The reply that it runs is sent before it can end.
func (w *worker) onStart(f wire.Frame) error {
	var s wire.Start
	if err := s.Decode(f.Payload); err != nil || len(s.Args) == 0 {
		return errProtocol
	}
	dir, err := w.workDir(s.Dir)
	if err != nil {
		w.reply(f.ID, wire.FailDir, err, nil)
		return nil
	}
	env := append(w.plan.env[:len(w.plan.env):len(w.plan.env)], s.Env...)
	err = w.progs.check(s.Args, env, dir)
	if err == nil && w.full() {
		err = syscall.EAGAIN
	}
	if err != nil {
		w.reply(f.ID, wire.FailExec, err, nil)
		return nil
	}
	p := w.newProcess(f.ID)
	if p == nil {
		return errProtocol
	}
	c := &program.Context{Args: s.Args, Env: env, Dir: dir, FS: w.fs,
		Stdin: input{p.streams}, Stdout: output{p.streams, channelOut}, Stderr: output{p.streams, channelErr}}
	started := wire.Started{PID: uint32(firstPID(p.mark)), Tag: p.mark}
	w.reply(f.ID, wire.OK, nil, started.Append(nil))
	go p.run(c)
	return nil
}

// full reports whether no further program may be started.
func (w *worker) full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.plan.pids > 0 && int64(len(w.byID)) >= w.plan.pids
}

// workDir makes dir absolute and checks that it is a directory.
func (w *worker) workDir(dir string) (string, error) {
	if dir == "" {
		dir = "."
	}
	path, err := w.fs.Realpath(w.plan.dir, dir)
	if err != nil {
		return "", err
	}
	info, err := w.fs.Stat("/", path)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	return path, err
}

// newProcess registers a program, nil if there is one of this id.
func (w *worker) newProcess(id uint32) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byID[id] != nil {
		return nil
	}
	w.last++
	p := &process{w: w, id: id, mark: w.last, streams: newStreams(w.link, id), done: make(chan struct{}),
		signals: make(chan int, 16)}
	p.ctx, p.cancel = context.WithCancel(context.WithValue(context.Background(), accountKey{}, &p.account))
	w.byID[id], w.byMark[p.mark], w.channels[id] = p, p, p.streams
	w.mem.watch(p)
	return p
}

// run runs the program to its end and reports it.
func (p *process) run(c *program.Context) {
	before := cpuTime()
	code := p.exec(p.ctx, c)
	p.cancel()
	// It may have grown and failed between two looks at the memory.
	p.account.add(cpuTime()-before, code != 0 && p.w.mem.exceeded())
	p.w.mem.unwatch(p)
	p.streams.finish()
	w := p.w
	w.mu.Lock()
	delete(w.byID, p.id)
	delete(w.byMark, p.mark)
	delete(w.channels, p.id)
	w.mu.Unlock()
	e := p.exited(code)
	close(p.done)
	_ = w.link.write(wire.Frame{Type: wire.TypeExited, ID: p.id, Payload: e.Append(nil)})
}

// exited says how the program ended. One that was refused memory and failed has
// failed for memory.
func (p *process) exited(code int) wire.Exited {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account.mu.Lock()
	defer p.account.mu.Unlock()
	e := wire.Exited{Code: uint8(code), Signal: p.signal, CPU: uint64(p.account.cpu.Microseconds()),
		MaxRSS: uint64(p.w.mem.peak())}
	e.Watchdog = p.oom || p.account.denied && (code != 0 || p.signal != 0)
	return e
}

// killedBy notes that a signal has ended the program. The first one counts.
func (p *process) killedBy(sig int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.signal == 0 && p.ctx.Err() == nil {
		p.signal = uint8(sig)
	}
}

// kill ends the program, and all that it started, whatever they do.
func (p *process) kill() {
	p.killedBy(sigKill)
	p.cancel()
	p.streams.end()
}

// killForMemory ends the program since the sandbox has too much.
func (p *process) killForMemory() {
	p.mu.Lock()
	p.oom = true
	p.mu.Unlock()
	p.kill()
}

// endTime is how long a program may take to end that was told to.
const endTime = 5 * time.Second

// ended waits until nothing of a program that was killed runs; false if it
// takes too long.
func (p *process) ended() bool {
	t := time.NewTimer(endTime)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
		return false
	}
}

// onSignal signals a program.
func (w *worker) onSignal(f wire.Frame) error {
	var s wire.Signal
	if err := s.Decode(f.Payload); err != nil {
		return errProtocol
	}
	w.mu.Lock()
	p := w.byID[f.ID]
	w.mu.Unlock()
	switch {
	case p == nil || s.Number == 0 || s.Number > maxSig:
	case s.Number == sigKill:
		p.kill()
	default:
		select {
		case p.signals <- int(s.Number):
		default: // as with a kernel, signals of which many wait are one
		}
	}
	return nil
}

// onKill ends a program and all that it started.
func (w *worker) onKill(f wire.Frame) error {
	var k wire.Kill
	if err := k.Decode(f.Payload); err != nil {
		return errProtocol
	}
	w.mu.Lock()
	p := w.byMark[k.Tag]
	w.mu.Unlock()
	if p == nil { // what it started has ended before it, or with it
		w.reply(f.ID, wire.OK, nil, nil)
		return nil
	}
	p.kill()
	go func() {
		if p.ended() {
			w.reply(f.ID, wire.OK, nil, nil)
		} else {
			w.reply(f.ID, wire.FailKill, syscall.EBUSY, nil)
		}
	}()
	return nil
}
