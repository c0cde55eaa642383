package shell

import (
	"context"
	"io"
	"io/fs"
	"path"
	"sync"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// Limits bound what a script can use at one time. Zero means the default.
type Limits struct {
	Processes   int // subshells, jobs and parts of pipelines; 64
	Descriptors int // of one process; 256
	Depth       int // functions, subshells and commands inside each other; 2000
	Bytes       int // of one value: a variable, the output of $(…), a here-document; 16 MiB
	Words       int // results of one expansion by braces or of paths; 100000
}

func (l Limits) withDefaults() Limits {
	def := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	def(&l.Processes, 64)
	def(&l.Descriptors, 256)
	def(&l.Depth, 2000)
	def(&l.Bytes, 16<<20)
	def(&l.Words, 100_000)
	return l
}

// system is what the processes of one Run share.
type system struct {
	fs       *memfs.FS
	programs map[string]program.Program
	own      map[string]bool // programs that are ended by SIGPIPE
	builtins map[string]builtin
	limits   Limits
	started  time.Time

	mu      sync.Mutex
	nextPID int
	live    map[int]*process
	running sync.WaitGroup
}

// firstPID is the number of the first process of a Run.
const firstPID = 100

// process is a shell, a subshell or a program: something with a number,
// descriptors and an end of its own.
type process struct {
	sys    *system
	pid    int
	parent *process // nil for the first
	ctx    context.Context
	cancel context.CancelCauseFunc
	fds    descs
	done   chan struct{}
	status int // once done is closed

	// Guarded by sys.mu: a process that has ended keeps its context for as
	// long as there are processes that it has started.
	ended bool
	kids  int

	sigMu   sync.Mutex
	handled map[signal]bool // caught or ignored, by a trap
	pending []signal
	poke    chan struct{} // has a value when pending is not empty
	ignored map[signal]bool
}

// killed is the cause with which the context of a process ends, and the value
// of the panic with which its goroutine leaves whatever it was doing.
type killed struct{ sig signal }

func (k killed) Error() string { return "killed by SIG" + k.sig.String() }

// errFork says that the limit of processes is reached.
const errFork = syscall.EAGAIN

// newProcess registers a process that runs until ctx ends at the latest. It
// takes over fds, also when it fails.
func (sys *system) newProcess(ctx context.Context, parent *process, fds descs) (*process, error) {
	sys.mu.Lock()
	defer sys.mu.Unlock()
	if len(sys.live) >= sys.limits.Processes {
		fds.closeAll()
		return nil, errFork
	}
	p := &process{sys: sys, pid: sys.nextPID, parent: parent, fds: fds,
		done: make(chan struct{}), poke: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	if parent != nil {
		parent.kids++
	}
	sys.nextPID++
	sys.live[p.pid] = p
	return p, nil
}

// end closes what the process has open and tells those that wait for it. What
// it has started goes on.
func (p *process) end(status int) {
	p.fds.closeAll()
	p.sys.mu.Lock()
	delete(p.sys.live, p.pid)
	p.ended = true
	for q := p; q != nil && q.ended && q.kids == 0; q = q.parent {
		q.cancel(nil)
		if q.parent != nil {
			q.parent.kids--
		}
	}
	p.sys.mu.Unlock()
	p.status = status
	close(p.done)
}

// find returns a live process.
func (sys *system) find(pid int) *process {
	sys.mu.Lock()
	defer sys.mu.Unlock()
	return sys.live[pid]
}

// check ends the process, by a panic, when it was killed.
func (p *process) check() {
	if p.ctx.Err() != nil {
		panic(p.death())
	}
}

// death is how the process was killed. That whoever called Run withdrew is a
// SIGKILL to all.
func (p *process) death() killed {
	if k, ok := context.Cause(p.ctx).(killed); ok {
		return k
	}
	return killed{sigKILL}
}

// signal delivers a signal: to a trap, or else with its usual effect.
func (p *process) signal(s signal) {
	p.sigMu.Lock()
	defer p.sigMu.Unlock()
	switch {
	case p.ignored[s] && s != sigKILL:
	case p.handled[s] && s != sigKILL:
		p.pending = append(p.pending, s)
		select {
		case p.poke <- struct{}{}:
		default:
		}
	case s.ends():
		p.cancel(killed{s})
	}
}

// takePending returns the signals that wait for a trap.
func (p *process) takePending() []signal {
	p.sigMu.Lock()
	defer p.sigMu.Unlock()
	s := p.pending
	p.pending = nil
	return s
}

// ignores reports whether a signal has no effect on the process.
func (p *process) ignores(s signal) bool {
	p.sigMu.Lock()
	defer p.sigMu.Unlock()
	return p.ignored[s]
}

// stream is a descriptor as a program has it: an io.ReadWriter.
type stream struct {
	p *process
	d *desc
	// gentle: errors are returned to the program, which knows what to do with
	// them. Otherwise it is ended by them, as by a signal.
	gentle bool
}

func (s stream) Read(b []byte) (int, error) {
	s.alive()
	n, err := s.d.read(s.p.ctx, b)
	if err != nil {
		s.alive()
	}
	return n, err
}

func (s stream) Write(b []byte) (int, error) {
	s.alive()
	n, err := s.d.write(s.p.ctx, b)
	if err != nil {
		s.alive()
		if err == syscall.EPIPE && !s.gentle && !s.p.ignores(sigPIPE) {
			panic(killed{sigPIPE})
		}
	}
	return n, err
}

func (s stream) alive() {
	if !s.gentle {
		s.p.check()
	}
}

// Seek moves in a file, so that a program can give back what it read too much.
func (s stream) Seek(offset int64, whence int) (int64, error) {
	if f, ok := s.d.handle.(fileHandle); ok {
		return f.File.Seek(offset, whence)
	}
	return 0, syscall.ESPIPE
}

// Close does nothing; the process closes its descriptors at its end.
func (s stream) Close() error { return nil }

// File returns the open file behind a stream, nil when it is none.
func (s stream) File() *memfs.File {
	if f, ok := s.d.handle.(fileHandle); ok {
		return f.File
	}
	return nil
}

// stream returns descriptor n, or one that fails.
func (p *process) stream(n int) stream {
	d := p.fds[n]
	if d == nil {
		d = newDesc(closedHandle{})
	}
	return stream{p: p, d: d}
}

// closedHandle is a descriptor that is not open.
type closedHandle struct{}

func (closedHandle) read(context.Context, []byte) (int, error)  { return 0, syscall.EBADF }
func (closedHandle) write(context.Context, []byte) (int, error) { return 0, syscall.EBADF }
func (closedHandle) close()                                     {}

// open opens a path for the process whose working directory is dir.
func (p *process) open(dir, name string, flag int, perm fs.FileMode) (*desc, error) {
	if n, ok := program.StreamNumber(dir, name); ok {
		d := p.fds[n]
		if d == nil {
			return nil, syscall.ENOENT
		}
		return d.dup(), nil
	}
	f, err := p.sys.fs.OpenFile(dir, name, flag, perm)
	if err != nil {
		return nil, err
	}
	return newDesc(fileHandle{f}), nil
}

// descriptor opens a stream by number for a program, as /dev/fd does.
func (p *process) descriptor(n int, gentle bool) (io.ReadWriteCloser, error) {
	d := p.fds[n]
	if d == nil {
		return nil, syscall.ENOENT
	}
	return stream{p: p, d: d, gentle: gentle}, nil
}

// absolute is where name leads from dir, without "." and "..", links kept.
func absolute(dir, name string) string {
	if len(name) == 0 || name[0] != '/' {
		name = dir + "/" + name
	}
	return path.Clean(name)
}
