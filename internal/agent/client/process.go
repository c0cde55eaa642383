package client

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// process is a program in the sandbox.
type process struct {
	sandbox *Sandbox
	id      uint32
	told    wire.Started // the agent's answer; set before Start returns
	asked   time.Time    // before the request was sent
	started time.Time
	before  Usage

	channels *channels // nil if descriptors are passed

	in    io.WriteCloser // nil if the program gets no input
	outs  []output
	idle  chan struct{} // closed when all output has been delivered
	moved [2]int64      // delivered bytes of stdout and stderr; final once idle is closed

	// an adopted process whose output has no reader yet; guarded by sandbox.mu while it is in
	// sandbox.running
	waits bool

	once   sync.Once
	done   chan struct{}
	result sandbar.Result
}

// output is the host's end of a program's output.
type output interface {
	io.ReadCloser
	finish() // deliver the buffered bytes, then return EOF
}

// Start starts a program in the sandbox.
func (s *Sandbox) Start(ctx context.Context, c sandbar.Cmd, std driver.Stdio) (driver.Process, error) {
	p, err := s.start(ctx, c, std)
	if err != nil {
		return nil, err // not p: a nil *process in the interface would not be nil
	}
	return p, nil
}

func (s *Sandbox) start(ctx context.Context, c sandbar.Cmd, std driver.Stdio) (*process, error) {
	if err := checkCmd(c); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, sandbar.Errorf(sandbar.CodeOfContext(ctx), "starting %s: %w", sandbar.Quote(c.Args[0], 100), err)
	}
	p := &process{sandbox: s, asked: time.Now(), done: make(chan struct{}), idle: make(chan struct{})}
	if s.opt.Usage != nil {
		p.before = s.opt.Usage()
	}
	attach := s.attachFrames
	if c.Terminal != nil {
		std.Stderr = nil // a terminal has one output
		attach = s.attachTerminal
	} else if canPass(s.conn) {
		attach = s.attachPipes
	}
	fds, ready, abort, err := attach(p, std)
	if err != nil {
		return nil, err
	}
	var sizes *resizer
	if c.Terminal != nil && c.Terminal.Sizes != nil {
		sizes = newResizer(p, c.Terminal.Sizes)
		p.in = sizedInput{p.in, sizes}
	}
	start := wire.Start{Args: c.Args, Env: envList(c.Env), Dir: c.Dir}
	if c.Terminal != nil {
		start.Terminal = terminalSize(c.Terminal.Size)
	}
	r, err := s.request(ctx, wire.TypeStart, start.Append(nil), fds, &call{
		process: p,
		undo: func(r response) {
			if p.told.Decode(r.Data) != nil {
				s.conn.Close()
				return
			}
			if p.channels != nil {
				p.channels.closeAll()
			}
			// fails if the sandbox ends, or if a process cannot be killed
			s.background(func() { _ = p.KillTree() })
		},
	})
	switch {
	case err != nil:
	case r.Failure != wire.OK:
		err = startError(&r.Reply, c)
	case p.told.Decode(r.Data) != nil:
		err = s.violated("starting " + sandbar.Quote(c.Args[0], 100))
	}
	if err != nil {
		abort()
		close(p.idle) // if it starts late, its output has no reader
		return nil, err
	}
	ready()
	if sizes != nil {
		go sizes.run()
	}
	p.pump(std)
	return p, nil
}

// checkCmd refuses a command that no kernel accepts.
func checkCmd(c sandbar.Cmd) error {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return &sandbar.Error{Code: sandbar.Invalid, Field: "args", Message: "a command needs at least the program's name"}
	}
	for _, a := range c.Args {
		if strings.ContainsRune(a, 0) {
			return &sandbar.Error{Code: sandbar.Invalid, Field: "args", Message: "argument " + sandbar.Quote(a, 40) + " has a NUL"}
		}
	}
	if err := sandbar.CheckEnv(c.Env); err != nil {
		return err
	}
	if c.Terminal != nil {
		if err := c.Terminal.Size.Check(); err != nil {
			return err
		}
	}
	if strings.ContainsRune(c.Dir, 0) {
		return &sandbar.Error{Code: sandbar.Invalid, Field: "dir", Message: "working directory " + sandbar.Quote(c.Dir, 40) + " has a NUL"}
	}
	return nil
}

// attachPipes gives p the host's ends of the pipes and returns the program's.
func (s *Sandbox) attachPipes(p *process, std driver.Stdio) (fds []int, ready, abort func(), err error) {
	var own func(int)
	if s.opt.ChownPipes {
		// so that the program can reopen /dev/stdout by name
		own = func(fd int) { chownPipe(fd, s.opt.UID, s.opt.GID) }
	}
	pp, err := makePipes(std.Stdin != nil, std.Stdout != nil, std.Stderr != nil, own)
	if err != nil {
		return nil, nil, nil, err
	}
	if pp.in != nil {
		p.in = pp.in
	}
	for _, o := range []*pipeReader{pp.out, pp.err} {
		if o != nil {
			p.outs = append(p.outs, o)
		}
	}
	return pp.theirs, pp.closeTheirs, pp.close, nil
}

// pump copies between the program and std until both sides have ended.
func (p *process) pump(std driver.Stdio) {
	if p.in != nil && std.Stdin != nil {
		// No one waits for it: the reader may block for ever, and the end of the program closes
		// p.in.
		go copyInput(p.in, std.Stdin)
	} else if p.in != nil {
		p.in.Close()
	}
	var left atomic.Int32 // copies, and this function
	left.Store(1)
	end := func() {
		if left.Add(-1) == 0 {
			close(p.idle)
		}
	}
	defer end()
	outs := p.outs
	for i, w := range []io.Writer{std.Stdout, std.Stderr} {
		if w != nil {
			o := outs[0]
			outs = outs[1:]
			left.Add(1)
			go func() {
				defer end()
				p.moved[i] = copyOutput(w, o)
			}()
		}
	}
}

var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// copyOutput copies an output to its writer and counts the accepted bytes. If the writer fails, the
// output is closed.
func copyOutput(w io.Writer, o output) (moved int64) {
	defer o.Close()
	small := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(small)
	buf, f := small[:], flood{since: time.Now()}
	for {
		n, err := o.Read(buf)
		if n > 0 {
			took, werr := w.Write(buf[:n])
			moved += int64(took)
			if werr != nil {
				return moved
			}
		}
		if err != nil {
			return moved
		}
		if f.read(n, o) {
			if len(buf) == len(small) {
				large := floods.Get().(*[floodBuffer]byte)
				defer floods.Put(large)
				buf = large[:]
			}
			if n < floodRead {
				time.Sleep(gatherDelay)
			}
		}
	}
}

// A program that prints without pause is read in large pieces: reading after each line would cost
// the daemon a wake-up, a message and two system calls per line. An output is such a flood if it
// fills floodReads reads or floodSize bytes within floodTime. If less than floodRead bytes were in
// the pipe, the next read is delayed by gather; a pipe that would fill up within gather is enlarged
// first. All other output is read at once.
const (
	floodReads  = 32
	floodSize   = 256 << 10
	floodTime   = 50 * time.Millisecond
	floodBuffer = 128 << 10
	floodRead   = 64 << 10
	floodPipe   = 512 << 10
	floodSafe   = 16 << 10 // bytes that may arrive within gather in a pipe that was not enlarged
	gatherDelay = 500 * time.Microsecond
)

var floods = sync.Pool{New: func() any { return new([floodBuffer]byte) }}

// flood detects such an output.
type flood struct {
	since    time.Time
	reads, n int // reads since then, and their bytes
	is       bool
	grown    bool // the pipe has been enlarged
	cannot   bool // the pipe cannot be enlarged
}

// read counts one read, and reports whether the output is a flood whose pipe has room for the bytes
// of the next gather.
func (f *flood) read(n int, o output) bool {
	f.reads++
	f.n += n
	if f.reads < floodReads && f.n < floodSize {
		return f.is
	}
	now := time.Now()
	took := now.Sub(f.since)
	f.is = took <= floodTime
	if fast := time.Duration(f.n)*gatherDelay > floodSafe*took; f.is && fast {
		if g, ok := o.(interface{ grow(int) bool }); ok && !f.grown && !f.cannot {
			f.grown = g.grow(floodPipe)
			f.cannot = !f.grown
		}
		f.is = f.grown
	}
	f.reads, f.n, f.since = 0, 0, now
	return f.is
}

// copyInput copies the input to a program, which may close its end at any time.
func copyInput(w io.WriteCloser, r io.Reader) {
	io.Copy(onlyWriter{w}, r)
	w.Close()
}

// onlyWriter hides ReadFrom: splice(2) would hold the pipe's lock while the source is idle.
type onlyWriter struct{ io.Writer }

// Done implements driver.Ender.
func (p *process) Done() <-chan struct{} { return p.done }

// Wait returns the result after the program has ended and its output is delivered.
func (p *process) Wait() (sandbar.Result, error) {
	<-p.done
	return p.result, nil
}

// Signal signals the program's process group. After the program's end it does nothing.
func (p *process) Signal(sig int) error {
	if sig < 0 || sig > maxSignal {
		return &sandbar.Error{Code: sandbar.Invalid, Field: "signal", Message: "signals are numbered 0 to 64"}
	}
	p.sandbox.mu.Lock()
	alive := p.sandbox.running[p.id] == p
	p.sandbox.mu.Unlock()
	if !alive {
		return nil
	}
	m := wire.Signal{Number: uint8(sig)}
	err := p.sandbox.send(context.Background(), wire.Frame{Type: wire.TypeSignal, ID: p.id, Payload: m.Append(nil)})
	if sandbar.CodeOf(err) == sandbar.Gone {
		return nil // the program ended with its sandbox
	}
	return err
}

// KillTree kills every process that the program started, in whatever process group, session or
// parent, and returns when none runs any more. It works after the program's end too. In a sandbox
// that has ended it does nothing. The program's process group is killed in one step before the
// others, so that a program cannot see its child killed, and end by itself.
func (p *process) KillTree() error {
	if err := p.Signal(9); err != nil {
		return err
	}
	m := wire.Kill{Tag: p.told.Tag}
	r, err := p.sandbox.requestWithTimeout(wire.TypeKill, m.Append(nil), &call{})
	switch {
	case sandbar.CodeOf(err) == sandbar.Gone:
		return nil
	case err != nil:
		return err
	case r.Failure != wire.OK:
		return sandbar.Errorf(sandbar.Internal, "a process that process %d started does not end: %w", p.told.PID, errnoOf(r.Errno))
	}
	return nil
}

// PID returns the program's process id in the sandbox's PID namespace.
func (p *process) PID() int { return int(p.told.PID) }

// cpuPeriod is the period of a limit of processors (cgroups(7)); that of one period may be used at
// once.
const cpuPeriod = 100 * time.Millisecond

// Bounds of an agent's or a driver's counters, so that sums do not overflow.
const (
	maxSignal = 64
	maxCPUs   = 8192    // more than Linux supports
	maxMemory = 1 << 52 // bytes of the largest address space
)

// onExited handles a program's end.
func (s *Sandbox) onExited(f wire.Frame) error {
	var e wire.Exited
	if e.Decode(f.Payload) != nil || e.Signal > maxSignal || len(f.FDs) > 0 {
		return errViolation
	}
	s.mu.Lock()
	p := s.running[f.ID]
	delete(s.running, f.ID)
	s.mu.Unlock()
	if p == nil {
		return errViolation
	}
	p.exited(&e)
	return nil
}

// exited ends a process that has exited.
func (p *process) exited(e *wire.Exited) {
	r := sandbar.Result{
		Duration: time.Since(p.started), CPUTime: time.Duration(min(e.CPU, math.MaxInt64/1000)) * time.Microsecond,
		PeakMemory: int64(min(e.MaxRSS, maxMemory)), Signal: int(e.Signal), ExitCode: int(e.Code),
		Outcome: sandbar.Exited, Enforced: p.sandbox.opt.Enforced,
	}
	if e.Signal != 0 {
		r.Outcome, r.ExitCode = sandbar.Signaled, 0
	}
	if e.OutOfMemory {
		r.OOMKills = 1
	}
	p.end(r)
}

// account adds the kernel's counters of the whole sandbox.
func (p *process) account(r *sandbar.Result) {
	if p.sandbox.opt.Usage != nil {
		now := p.sandbox.opt.Usage()
		r.OOMKills += max(0, now.OOMKills-p.before.OOMKills)
		if now.PeakMemory > 0 {
			r.PeakMemory = now.PeakMemory
		}
		if d := max(0, now.CPU-p.before.CPU); d > r.CPUTime || p.sandbox.opt.UsageOnly {
			r.CPUTime = d
		}
	}
	// No machine can have used more CPU time since the request.
	elapsed := time.Since(p.asked)
	r.CPUTime = max(0, min(r.CPUTime, maxCPUs*min(elapsed, math.MaxInt64/maxCPUs)))
	if cpus := p.sandbox.opt.CPUs; cpus > 0 {
		r.CPUTime = min(r.CPUTime, time.Duration(cpus*float64(elapsed+cpuPeriod)))
	}
	r.PeakMemory = min(r.PeakMemory, maxMemory)
	clean := r.Outcome == sandbar.Exited && r.ExitCode == 0
	if r.OOMKills > 0 && !clean {
		r.Outcome = sandbar.OutOfMemory
	}
}

// lost ends a process whose sandbox has ended.
func (p *process) lost() {
	r := sandbar.Result{Outcome: sandbar.Lost, Duration: time.Since(p.started), Enforced: p.sandbox.opt.Enforced}
	if d := p.sandbox.death.Load(); d != nil && d.OutOfMemory {
		r.OOMKills = 1 // see account
	}
	p.end(r)
}

// end publishes the result after the output has been delivered. If a descendant holds the output
// open, it waits at most driver.DrainWindow.
func (p *process) end(r sandbar.Result) {
	p.once.Do(func() {
		p.result = r
		if p.waits {
			close(p.idle) // no reader will come
		}
		go func() {
			// in a goroutine of its own: a driver may have to ask over a network
			p.account(&p.result)
			p.drain()
			p.result.StdoutBytes, p.result.StderrBytes = p.moved[0], p.moved[1]
			if p.in != nil {
				p.in.Close() // unblocks feed
			}
			close(p.done)
		}()
	})
}

func (p *process) drain() {
	select {
	case <-p.idle:
		return
	default:
	}
	t := time.NewTimer(driver.DrainWindow)
	defer t.Stop()
	select {
	case <-p.idle:
		return
	case <-t.C:
	}
	for _, o := range p.outs {
		o.finish()
	}
	<-p.idle
}

func envList(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	return list
}

// startError returns the error of a program that could not be started.
func startError(r *wire.Reply, c sandbar.Cmd) error {
	cause := errnoOf(r.Errno)
	if r.Failure == wire.FailTerminal {
		return terminalError(cause)
	}
	name, subject := sandbar.Quote(c.Args[0], 100), "program "
	if r.Failure == wire.FailDir {
		name, subject = sandbar.Quote(c.Dir, 100), "working directory "
	}
	switch {
	case errors.Is(cause, os.ErrNotExist), errors.Is(cause, syscall.ENOTDIR):
		return sandbar.Errorf(sandbar.NotFound, "%s%s does not exist in the sandbox: %w", subject, name, cause)
	case errors.Is(cause, os.ErrPermission), errors.Is(cause, syscall.ENOEXEC), errors.Is(cause, syscall.ELOOP):
		return sandbar.Errorf(sandbar.Denied, "%s%s cannot be used: %w", subject, name, cause)
	case errors.Is(cause, syscall.E2BIG):
		return sandbar.Errorf(sandbar.TooLarge, "the arguments and environment of %s are larger than the kernel takes: %w", name, cause)
	case errors.Is(cause, syscall.EAGAIN), errors.Is(cause, syscall.ENOMEM):
		return sandbar.Errorf(sandbar.Conflict, "the sandbox is at its limit of processes or memory; %s was not started: %w", name, cause)
	}
	if errors.Is(cause, syscall.EOVERFLOW) {
		return &sandbar.Error{Code: sandbar.Exhausted, Err: cause,
			Message: "the sandbox has used up all process tags, which the daemon's RLIMIT_LOCKS bounds",
			Fix:     "create a new sandbox, or start the daemon without that limit (ulimit -Hx, LimitLOCKS in systemd)"}
	}
	return sandbar.Errorf(sandbar.Internal, "starting %s: %w", name, cause)
}
