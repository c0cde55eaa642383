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

// Limits bound the resources of a script at any time. Zero means the default.
type Limits struct {
	Processes   int // subshells, jobs and parts of pipelines; default 64
	Descriptors int // open descriptors of one process; default 256
	Depth       int // nesting of functions, subshells and commands; default 2000
	Bytes       int // bytes of one value: a variable, the output of $(…), a here-document; default 16 MiB
	Words       int // results of one brace or pathname expansion; default 100000
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

// system is the state that all processes of one Run share.
type system struct {
	fs       *memfs.FS
	programs map[string]program.Program
	own      map[string]bool // programs that SIGPIPE ends
	builtins map[string]builtin
	limits   Limits
	started  time.Time

	mu      sync.Mutex
	nextPID int
	live    map[int]*process
	running sync.WaitGroup
}

// firstPID is the default process id of the first process of a Run.
const firstPID = 100

// process is a shell, a subshell or a program. It has a process id, descriptors and an exit status.
type process struct {
	sys    *system
	pid    int
	parent *process // nil for the first process
	ctx    context.Context
	cancel context.CancelCauseFunc
	fds    descs
	done   chan struct{}
	status int // valid after done is closed

	// Guarded by sys.mu. A process that has ended keeps its context until all processes that it
	// started have ended.
	ended bool
	kids  int

	sigMu    sync.Mutex
	handled  map[signal]bool // signals that a trap catches or ignores
	pending  []signal
	signaled chan struct{} // has a value if pending is not empty
	ignored  map[signal]bool
}

// killed is the cause of the end of a process's context, and the panic value that unwinds its
// goroutine.
type killed struct{ sig signal }

func (k killed) Error() string { return "killed by SIG" + k.sig.String() }

// errFork is the error at the limit of processes.
const errFork = syscall.EAGAIN

// newProcess registers a process that runs until the end of ctx at the latest. It takes ownership
// of fds, also on an error.
func (sys *system) newProcess(ctx context.Context, parent *process, fds descs) (*process, error) {
	sys.mu.Lock()
	defer sys.mu.Unlock()
	if len(sys.live) >= sys.limits.Processes {
		fds.closeAll()
		return nil, errFork
	}
	p := &process{sys: sys, pid: sys.nextPID, parent: parent, fds: fds,
		done: make(chan struct{}), signaled: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	if parent != nil {
		parent.kids++
	}
	sys.nextPID++
	sys.live[p.pid] = p
	return p, nil
}

// end closes the descriptors of the process and wakes its waiters. Its children continue.
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

// find returns a running process.
func (sys *system) find(pid int) *process {
	sys.mu.Lock()
	defer sys.mu.Unlock()
	return sys.live[pid]
}

// check panics with killed if the process was killed.
func (p *process) check() {
	if p.ctx.Err() != nil {
		panic(p.killedBy())
	}
}

// killedBy returns the signal that killed the process: SIGKILL if the caller of Run canceled its
// context.
func (p *process) killedBy() killed {
	if k, ok := context.Cause(p.ctx).(killed); ok {
		return k
	}
	return killed{sigKILL}
}

// signal delivers a signal: to a trap, or with its default action.
func (p *process) signal(s signal) {
	p.sigMu.Lock()
	defer p.sigMu.Unlock()
	switch {
	case p.ignored[s] && s != sigKILL:
	case p.handled[s] && s != sigKILL:
		p.pending = append(p.pending, s)
		select {
		case p.signaled <- struct{}{}:
		default:
		}
	case s.ends():
		p.cancel(killed{s})
	}
}

// takePending returns and clears the signals that wait for a trap.
func (p *process) takePending() []signal {
	p.sigMu.Lock()
	defer p.sigMu.Unlock()
	s := p.pending
	p.pending = nil
	return s
}

// ignores reports whether the process ignores a signal.
func (p *process) ignores(s signal) bool {
	p.sigMu.Lock()
	defer p.sigMu.Unlock()
	return p.ignored[s]
}

// stream is a descriptor as an io.ReadWriter for a program.
type stream struct {
	p *process
	d *desc
	// returnErrors: errors are returned to the program. Otherwise an error ends the process, as a
	// signal does.
	returnErrors bool
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
		if err == syscall.EPIPE && !s.returnErrors && !s.p.ignores(sigPIPE) {
			panic(killed{sigPIPE})
		}
	}
	return n, err
}

func (s stream) alive() {
	if !s.returnErrors {
		s.p.check()
	}
}

// Seek sets the offset of a file, so that a program can return what it has read in excess.
func (s stream) Seek(offset int64, whence int) (int64, error) {
	if f, ok := s.d.handle.(fileHandle); ok {
		return f.File.Seek(offset, whence)
	}
	return 0, syscall.ESPIPE
}

// Close does nothing: the process closes its descriptors when it ends.
func (s stream) Close() error { return nil }

// File returns the open file of a stream, or nil if it is not a file.
func (s stream) File() *memfs.File {
	if f, ok := s.d.handle.(fileHandle); ok {
		return f.File
	}
	return nil
}

// stream returns descriptor n. If it is not open, all operations of the stream fail.
func (p *process) stream(n int) stream {
	d := p.fds[n]
	if d == nil {
		d = newDesc(closedHandle{})
	}
	return stream{p: p, d: d}
}

// closedHandle is the handle of a descriptor that is not open.
type closedHandle struct{}

func (closedHandle) read(context.Context, []byte) (int, error)  { return 0, syscall.EBADF }
func (closedHandle) write(context.Context, []byte) (int, error) { return 0, syscall.EBADF }
func (closedHandle) close()                                     {}

// open opens a path relative to dir for the process.
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

// descriptor opens a descriptor by number for a program, as /dev/fd does.
func (p *process) descriptor(n int, gentle bool) (io.ReadWriteCloser, error) {
	d := p.fds[n]
	if d == nil {
		return nil, syscall.ENOENT
	}
	return stream{p: p, d: d, returnErrors: gentle}, nil
}

// absolute returns the clean absolute path of name relative to dir. It keeps symbolic links.
func absolute(dir, name string) string {
	if len(name) == 0 || name[0] != '/' {
		name = dir + "/" + name
	}
	return path.Clean(name)
}
