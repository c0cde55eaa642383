package worker

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// Signals, numbered as in Linux (signal(7)).
const (
	sigKill = 9
	maxSig  = 64
)

// process is a program that the host started, together with all programs that it starts.
type process struct {
	w       *worker
	id      uint32
	tag     uint64
	streams *streams
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{} // closed when all its programs have ended
	account account
	signals chan int // for the program's shell

	mu     sync.Mutex
	signal uint8 // signal that ended it; 0: none
	oom    bool
}

// account is the resource use of a program and all programs that it started.
type account struct {
	mu     sync.Mutex
	cpu    time.Duration
	denied bool // whether one of them was refused memory
}

func (a *account) add(cpu time.Duration, denied bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cpu += cpu
	a.denied = a.denied || denied
}

// accountKey is the key of the account in a program's context.
type accountKey struct{}

// onStart starts a program. The reply is sent before the program can end.
func (w *worker) onStart(f wire.Frame) error {
	var s wire.Start
	if err := s.Decode(f.Payload); err != nil || len(s.Args) == 0 {
		return errProtocol
	}
	if s.Terminal.Rows > 0 {
		w.reply(f.ID, wire.FailTerminal, syscall.ENXIO, nil)
		return nil
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
	started := wire.Started{PID: uint32(firstPID(p.tag)), Tag: p.tag}
	w.reply(f.ID, wire.OK, nil, started.Append(nil))
	go p.run(c)
	return nil
}

// full reports whether the limit of processes is reached.
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

// newProcess registers a program. It returns nil if the id is in use.
func (w *worker) newProcess(id uint32) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byID[id] != nil {
		return nil
	}
	w.last++
	p := &process{w: w, id: id, tag: w.last, streams: newStreams(w.link, id), done: make(chan struct{}),
		signals: make(chan int, 16)}
	p.ctx, p.cancel = context.WithCancel(context.WithValue(context.Background(), accountKey{}, &p.account))
	w.byID[id], w.byTag[p.tag], w.channels[id] = p, p, p.streams
	w.mem.watch(p)
	return p
}

// run runs the program until it ends and reports the result.
func (p *process) run(c *program.Context) {
	before := cpuTime()
	code := p.exec(p.ctx, c)
	p.cancel()
	// The program may have exceeded the memory limit and failed between two checks.
	p.account.add(cpuTime()-before, code != 0 && p.w.mem.exceeded())
	p.w.mem.unwatch(p)
	p.streams.finish()
	w := p.w
	w.mu.Lock()
	delete(w.byID, p.id)
	delete(w.byTag, p.tag)
	delete(w.channels, p.id)
	w.mu.Unlock()
	e := p.exited(code)
	close(p.done)
	_ = w.link.write(wire.Frame{Type: wire.TypeExited, ID: p.id, Payload: e.Append(nil)})
}

// exited returns the result of the program. A program that was refused memory and then failed is
// reported as ended for memory.
func (p *process) exited(code int) wire.Exited {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account.mu.Lock()
	defer p.account.mu.Unlock()
	e := wire.Exited{Code: uint8(code), Signal: p.signal, CPU: uint64(p.account.cpu.Microseconds()),
		MaxRSS: uint64(p.w.mem.peak())}
	e.OutOfMemory = p.oom || p.account.denied && (code != 0 || p.signal != 0)
	return e
}

// killedBy records the signal that ended the program. Only the first one counts.
func (p *process) killedBy(sig int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.signal == 0 && p.ctx.Err() == nil {
		p.signal = uint8(sig)
	}
}

// kill ends the program and all programs that it started.
func (p *process) kill() {
	p.killedBy(sigKill)
	p.cancel()
	p.streams.end()
}

// killForMemory kills the program because the sandbox exceeds its memory limit.
func (p *process) killForMemory() {
	p.mu.Lock()
	p.oom = true
	p.mu.Unlock()
	p.kill()
}

// endTimeout bounds the time that a killed program takes to end.
const endTimeout = 5 * time.Second

// ended waits until all programs of a killed process have ended; false after endTimeout.
func (p *process) ended() bool {
	t := time.NewTimer(endTimeout)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
		return false
	}
}

// onSignal sends a signal to a program.
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
		default: // pending signals are merged, as in signal(7)
		}
	}
	return nil
}

// onKill ends a program and all programs that it started.
func (w *worker) onKill(f wire.Frame) error {
	var k wire.Kill
	if err := k.Decode(f.Payload); err != nil {
		return errProtocol
	}
	w.mu.Lock()
	p := w.byTag[k.Tag]
	w.mu.Unlock()
	if p == nil { // a program ends together with all that it started
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
