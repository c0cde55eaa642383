package client

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// process is one program in the sandbox.
type process struct {
	box     *Sandbox
	id      uint32
	told    wire.Started // by the agent, before Start returns
	asked   time.Time    // before the agent is asked for it
	started time.Time
	before  Usage

	channels *channels // nil where descriptors are passed

	in    io.WriteCloser // nil: no input to feed
	outs  []output
	idle  chan struct{} // closed when all output has been delivered
	moved [2]int64      // bytes of stdout and stderr delivered; final once idle is closed

	waits bool // one that was adopted: nobody takes its output yet; guarded by box.mu while it is in box.running

	once   sync.Once
	done   chan struct{}
	result sandbar.Result
}

// output is a program's output as the host reads it.
type output interface {
	io.ReadCloser
	finish() // deliver what is there, then end
}

// Start starts a program in the sandbox.
func (s *Sandbox) Start(ctx context.Context, c sandbar.Cmd, std driver.Stdio) (driver.Process, error) {
	p, err := s.start(ctx, c, std)
	if err != nil {
		return nil, err // and no nil that is a process
	}
	return p, nil
}

func (s *Sandbox) start(ctx context.Context, c sandbar.Cmd, std driver.Stdio) (*process, error) {
	if err := checkCmd(c); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, sandbar.Errorf(ctxCode(ctx), "starting %s: %w", sandbar.Quote(c.Args[0], 100), err)
	}
	p := &process{box: s, asked: time.Now(), done: make(chan struct{}), idle: make(chan struct{})}
	if s.opt.Usage != nil {
		p.before = s.opt.Usage()
	}
	attach := s.attachFrames
	if canPass(s.conn) {
		attach = s.attachPipes
	}
	fds, ready, abort, err := attach(p, std)
	if err != nil {
		return nil, err
	}
	start := wire.Start{Args: c.Args, Env: envList(c.Env), Dir: c.Dir}
	r, err := s.request(ctx, wire.TypeStart, start.Append(nil), fds, &call{
		process: p,
		undo: func(r response) {
			if p.told.Decode(r.Data) != nil {
				s.conn.Close()
				return
			}
			if p.channels != nil {
				p.channels.forsake()
			}
			s.readers.Go(func() { _ = p.KillTree() }) // its failure is the end of the sandbox, or beyond help
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
		close(p.idle) // should it start late, nobody takes its output
		return nil, err
	}
	ready()
	p.pump(std)
	return p, nil
}

// checkCmd refuses what no kernel would take.
func checkCmd(c sandbar.Cmd) error {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return &sandbar.Error{Code: sandbar.Invalid, Field: "args", Message: "a command needs at least the program's name"}
	}
	for _, a := range c.Args {
		if strings.ContainsRune(a, 0) {
			return &sandbar.Error{Code: sandbar.Invalid, Field: "args", Message: "argument " + sandbar.Quote(a, 40) + " has a NUL"}
		}
	}
	for k, v := range c.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return &sandbar.Error{Code: sandbar.Invalid, Field: "env",
				Message: "environment variable " + sandbar.Quote(k, 40) + ": a name is not empty and has no \"=\", and neither name nor value has a NUL"}
		}
	}
	if strings.ContainsRune(c.Dir, 0) {
		return &sandbar.Error{Code: sandbar.Invalid, Field: "dir", Message: "working directory " + sandbar.Quote(c.Dir, 40) + " has a NUL"}
	}
	return nil
}

// attachPipes gives p the host's ends of pipes and returns the program's.
func (s *Sandbox) attachPipes(p *process, std driver.Stdio) (fds []int, ready, abort func(), err error) {
	var own func(int)
	if s.opt.ChownPipes {
		// So that the program can open /dev/stdout and its like by name.
		own = func(fd int) { giveTo(fd, s.opt.UID, s.opt.GID) }
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

// pump moves bytes between the program and std until both sides are done.
func (p *process) pump(std driver.Stdio) {
	if p.in != nil && std.Stdin != nil {
		// Not waited for: the reader may block for ever, and the program's end
		// closes p.in.
		go feed(p.in, std.Stdin)
	} else if p.in != nil {
		p.in.Close()
	}
	var wg sync.WaitGroup
	outs := p.outs
	for i, w := range []io.Writer{std.Stdout, std.Stderr} {
		if w != nil {
			o := outs[0]
			outs = outs[1:]
			wg.Go(func() { p.moved[i] = deliver(w, o) })
		}
	}
	go func() {
		wg.Wait()
		close(p.idle)
	}()
}

var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// deliver copies an output to its sink and counts what the sink took. A sink
// that fails closes the output.
func deliver(w io.Writer, o output) (moved int64) {
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
				time.Sleep(gather)
			}
		}
	}
}

// A program that prints without a pause is read in large pieces: one that is read whenever it has
// printed a line costs the daemon a wake-up, a message and two system calls for each. Such a
// program has filled floodReads reads, or floodSize bytes, within floodTime. Where less than
// floodRead was in its pipe, the next read comes gather later, for which a pipe that fills fast is
// enlarged. All other output is read at once.
const (
	floodReads  = 32
	floodSize   = 256 << 10
	floodTime   = 50 * time.Millisecond
	floodBuffer = 128 << 10
	floodRead   = 64 << 10
	floodPipe   = 512 << 10
	floodSafe   = 16 << 10 // what may come during gather into a pipe that was not enlarged
	gather      = 500 * time.Microsecond
)

var floods = sync.Pool{New: func() any { return new([floodBuffer]byte) }}

// flood tells whether an output is one.
type flood struct {
	since    time.Time
	reads, n int // reads since then, and their bytes
	is       bool
	grown    bool // the pipe has been enlarged
	cannot   bool // it cannot be
}

// read counts what was read and reports whether the output is a flood whose pipe has room for what
// comes until it is read next.
func (f *flood) read(n int, o output) bool {
	f.reads++
	f.n += n
	if f.reads < floodReads && f.n < floodSize {
		return f.is
	}
	now := time.Now()
	took := now.Sub(f.since)
	f.is = took <= floodTime
	if fast := time.Duration(f.n)*gather > floodSafe*took; f.is && fast {
		if g, ok := o.(interface{ grow(int) bool }); ok && !f.grown && !f.cannot {
			f.grown = g.grow(floodPipe)
			f.cannot = !f.grown
		}
		f.is = f.grown
	}
	f.reads, f.n, f.since = 0, 0, now
	return f.is
}

// feed copies an input to a program; the program may close its end at any time.
func feed(w io.WriteCloser, r io.Reader) {
	io.Copy(onlyWriter{w}, r)
	w.Close()
}

// onlyWriter hides ReadFrom, whose splice would hold the pipe open while the
// source has nothing to say.
type onlyWriter struct{ io.Writer }

// Wait returns the result once the program has ended and its output is out.
func (p *process) Wait() (sandbar.Result, error) {
	<-p.done
	return p.result, nil
}

// Signal signals the program's process group; after its end it does nothing.
func (p *process) Signal(sig int) error {
	if sig < 0 || sig > maxSignal {
		return &sandbar.Error{Code: sandbar.Invalid, Field: "signal", Message: "signals are numbered 0 to 64"}
	}
	p.box.mu.Lock()
	alive := p.box.running[p.id] == p
	p.box.mu.Unlock()
	if !alive {
		return nil
	}
	m := wire.Signal{Number: uint8(sig)}
	err := p.box.send(context.Background(), wire.Frame{Type: wire.TypeSignal, ID: p.id, Payload: m.Append(nil)})
	if sandbar.CodeOf(err) == sandbar.Gone {
		return nil // it ended together with its sandbox
	}
	return err
}

// KillTree ends everything the program started, wherever it went, and returns
// when nothing of it runs. It works also after the program's end; a sandbox
// that has ended runs nothing.
func (p *process) KillTree() error {
	m := wire.Kill{Tag: p.told.Tag}
	r, err := p.box.insist(wire.TypeKill, m.Append(nil), &call{})
	switch {
	case sandbar.CodeOf(err) == sandbar.Gone:
		return nil
	case err != nil:
		return err
	case r.Failure != wire.OK:
		return sandbar.Errorf(sandbar.Internal, "something that process %d started does not end: %w", p.told.PID, errnoOf(r.Errno))
	}
	return nil
}

// PID is the program's process id as the sandbox's programs see it.
func (p *process) PID() int { return int(p.told.PID) }

// Bounds of what the agent, or a backend's counters, say of a program's end, so that sums
// of it do not overflow.
const (
	maxSignal = 64
	maxCPUs   = 8192    // of any machine that Linux runs on
	maxMemory = 1 << 52 // bytes that a processor addresses
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
	r := sandbar.Result{
		Duration: time.Since(p.started), CPUTime: time.Duration(min(e.CPU, math.MaxInt64/1000)) * time.Microsecond,
		PeakMemory: int64(min(e.MaxRSS, maxMemory)), Signal: int(e.Signal), ExitCode: int(e.Code),
		Outcome: sandbar.Exited, Enforced: s.opt.Enforced,
	}
	if e.Signal != 0 {
		r.Outcome, r.ExitCode = sandbar.Signaled, 0
	}
	if e.Watchdog {
		r.OOMKills = 1
	}
	p.end(r)
	return nil
}

// account adds what the kernel counted for the whole sandbox.
func (p *process) account(r *sandbar.Result) {
	if p.box.opt.Usage != nil {
		now := p.box.opt.Usage()
		r.OOMKills += max(0, now.OOMKills-p.before.OOMKills)
		if now.PeakMemory > 0 {
			r.PeakMemory = now.PeakMemory
		}
		if d := max(0, now.CPU-p.before.CPU); d > r.CPUTime || p.box.opt.UsageRules {
			r.CPUTime = d
		}
	}
	// No machine can have given it more since it was asked for.
	r.CPUTime = max(0, min(r.CPUTime, maxCPUs*min(time.Since(p.asked), math.MaxInt64/maxCPUs)))
	r.PeakMemory = min(r.PeakMemory, maxMemory)
	clean := r.Outcome == sandbar.Exited && r.ExitCode == 0
	if r.OOMKills > 0 && !clean {
		r.Outcome = sandbar.OutOfMemory
	}
}

// lost ends a process whose sandbox ended under it.
func (p *process) lost() {
	r := sandbar.Result{Outcome: sandbar.Lost, Duration: time.Since(p.started), Enforced: p.box.opt.Enforced}
	p.end(r)
}

// end publishes the result after the output, for which descendants that hold
// it open get a short time.
func (p *process) end(r sandbar.Result) {
	p.once.Do(func() {
		p.result = r
		if p.waits {
			close(p.idle) // nobody ever will
		}
		go func() {
			p.account(&p.result) // not by the frame reader: a backend may have to ask far away
			p.drain()
			p.result.StdoutBytes, p.result.StderrBytes = p.moved[0], p.moved[1]
			if p.in != nil {
				p.in.Close() // wakes a feed that waits for the program to read
			}
			close(p.done)
		}()
	})
}

func (p *process) drain() {
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

// startError says why a program could not be started.
func startError(r *wire.Reply, c sandbar.Cmd) error {
	cause := errnoOf(r.Errno)
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
			Message: "the sandbox has started as many programs as the daemon's limit of file locks lets it number",
			Fix:     "create a new sandbox, or start the daemon without that limit (ulimit -Hx, LimitLOCKS in systemd)"}
	}
	return sandbar.Errorf(sandbar.Internal, "starting %s: %w", name, cause)
}
