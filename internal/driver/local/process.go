package local

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// process is one program. It implements driver.Process.
type process struct {
	sandbox *sandbox
	child   *child
	tag     string // in the environment of the program and its descendants
	started time.Time
	stdin   *input
	outs    [2]*output

	reaped chan struct{} // closed after the program has exited
	done   chan struct{} // closed after result is complete
	result report
}

// report is the result of Wait. It is written once, before done is closed.
type report struct {
	sandbar.Result
	err error
}

// exitStatus is the operating system's report of a program's end.
type exitStatus struct {
	outcome sandbar.Outcome
	code    int
	signal  int
	cpu     time.Duration
	peak    int64
}

// launchProcess creates the pipes and starts the program. On an error it leaves nothing open.
func launchProcess(s *sandbox, l launch, std driver.Stdio) (*process, error) {
	pl, err := newPlumbing(std)
	if err != nil {
		return nil, startError(l.args[0], err)
	}
	started := time.Now()
	c, err := s.d.spawner.start(l, pl.child)
	pl.closeChild()
	if err != nil {
		pl.closeOwn()
		return nil, startError(l.args[0], err)
	}
	p := &process{sandbox: s, child: c, tag: l.tag, started: started,
		reaped: make(chan struct{}), done: make(chan struct{}),
		stdin: pl.stdin, outs: pl.outs}
	for _, o := range p.outs {
		if o != nil {
			go o.pump()
		}
	}
	if p.stdin != nil {
		go p.stdin.pump()
	}
	return p, nil
}

// supervise waits for the end of the program and of its output.
func (p *process) supervise() {
	end, err := p.child.wait()
	took := time.Since(p.started)
	close(p.reaped)
	if p.stdin != nil {
		p.stdin.stop()
	}
	var wg sync.WaitGroup
	for _, o := range p.outs {
		if o != nil {
			wg.Go(o.finish)
		}
	}
	wg.Wait()
	p.result = report{err: err, Result: sandbar.Result{
		Outcome:     end.outcome,
		ExitCode:    end.code,
		Signal:      end.signal,
		Duration:    took,
		CPUTime:     end.cpu,
		PeakMemory:  end.peak,
		StdoutBytes: p.outs[0].count(),
		StderrBytes: p.outs[1].count(),
		Enforced:    p.sandbox.d.caps.Enforced,
	}}
	close(p.done)
	if !p.child.lingers() {
		p.sandbox.forgetProcess(p)
	}
}

// Wait returns the result after the program has exited and its output is delivered.
func (p *process) Wait() (sandbar.Result, error) {
	<-p.done
	return p.result.Result, p.result.err
}

// Signal signals the program's process group. Invalid: the number is no signal. Unsupported: the
// system lacks it. Denied: the program has changed its user.
func (p *process) Signal(sig int) error {
	if sig < 1 || sig > 64 {
		return &sandbar.Error{Code: sandbar.Invalid, Field: "signal", Message: "signal " + strconv.Itoa(sig) + " is outside 1 to 64"}
	}
	return p.child.signal(sig)
}

// KillTree kills the program and its descendants, as far as Destroy finds them: see the package
// comment. Internal: a process does not die within seconds.
func (p *process) KillTree() error {
	ctx, cancel := context.WithTimeout(context.Background(), treeBound)
	defer cancel()
	p.child.kill()
	if err := killTagged(ctx, p.tag, []*child{p.child}); err != nil {
		return err
	}
	select {
	case <-p.done: // remaining processes are gone now
		p.sandbox.forgetProcess(p)
	default:
	}
	return nil
}

// treeBound bounds the time in which killed processes must exit.
const treeBound = 4 * time.Second

// PID returns the program's process id on the host.
func (p *process) PID() int { return p.child.pid() }

// plumbing has the descriptors of a program that is about to start.
type plumbing struct {
	child [3]*os.File // the program's ends
	stdin *input
	outs  [2]*output
}

func newPlumbing(std driver.Stdio) (*plumbing, error) {
	pl := &plumbing{}
	err := pl.connectInput(std.Stdin)
	for i, w := range []io.Writer{std.Stdout, std.Stderr} {
		if err == nil {
			err = pl.connectOutput(i, w)
		}
	}
	if err != nil {
		pl.closeChild()
		pl.closeOwn()
		return nil, err
	}
	return pl, nil
}

func (pl *plumbing) connectInput(r io.Reader) (err error) {
	if r == nil {
		pl.child[0], err = os.Open(os.DevNull)
		return err
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	pl.child[0], pl.stdin = theirs, &input{w: ours, r: r}
	return nil
}

func (pl *plumbing) connectOutput(i int, w io.Writer) (err error) {
	if w == nil {
		pl.child[i+1], err = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		return err
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	pl.child[i+1], pl.outs[i] = theirs, &output{r: ours, w: w, done: make(chan struct{})}
	return nil
}

// closeChild closes the program's ends in this process.
func (pl *plumbing) closeChild() {
	for _, f := range pl.child {
		if f != nil {
			f.Close()
		}
	}
}

// closeOwn closes this process's ends after a failed start.
func (pl *plumbing) closeOwn() {
	if pl.stdin != nil {
		pl.stdin.w.Close()
	}
	for _, o := range pl.outs {
		if o != nil {
			o.r.Close()
		}
	}
}

// input copies a caller's reader to the program.
type input struct {
	w *os.File
	r io.Reader
}

// pump copies until the reader ends or the program closes its end. A blocked Read occupies only
// this goroutine.
func (in *input) pump() {
	defer in.w.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := in.r.Read(buf)
		if n > 0 {
			if _, werr := in.w.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// stop is called at the program's end. It unblocks a Write.
func (in *input) stop() { in.w.Close() }

// output copies the program's output to a caller's writer.
type output struct {
	r    *os.File
	done chan struct{} // closed when pump delivers nothing more

	mu  sync.Mutex // held during Write; guards the fields below
	w   io.Writer  // nil after finish gave up
	sum int64
}

// pump copies until all write ends are closed, the writer fails, or the deadline of finish has
// passed.
func (o *output) pump() {
	defer close(o.done)
	defer o.r.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := o.r.Read(buf)
		if n > 0 && !o.deliver(buf[:n]) {
			return
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			o.deliverRest(buf)
		}
		if err != nil {
			return
		}
	}
}

// deliverRest delivers the bytes that are in the pipe now, and none that are written later: a
// descendant may write for ever.
func (o *output) deliverRest(buf []byte) {
	if o.r.SetReadDeadline(time.Time{}) != nil {
		return
	}
	for left := pending(o.r); left > 0; {
		n, err := o.r.Read(buf[:min(left, len(buf))])
		if n > 0 && !o.deliver(buf[:n]) || err != nil {
			return
		}
		left -= n
	}
}

// deliver writes b and reports whether the writer accepted all of it.
func (o *output) deliver(b []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.w == nil {
		return false
	}
	n, err := o.w.Write(b)
	o.sum += int64(n)
	return err == nil
}

// finish is called at the program's end. It delivers the rest of the pipe, and waits at most
// DrainWindow for descendants that hold the pipe open.
func (o *output) finish() {
	err := o.r.SetReadDeadline(time.Now().Add(driver.DrainWindow))
	if !errors.Is(err, os.ErrNoDeadline) {
		<-o.done
		return
	}
	// This system has no deadlines for pipes. The pump continues until all write ends are closed,
	// but delivers nothing after this.
	window := time.NewTimer(driver.DrainWindow)
	defer window.Stop()
	select {
	case <-o.done:
	case <-window.C:
		o.mu.Lock()
		o.w = nil
		o.mu.Unlock()
	}
}

// count returns the number of delivered bytes, 0 for a nil output.
func (o *output) count() int64 {
	if o == nil {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sum
}
