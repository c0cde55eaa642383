package client

import (
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Direct is a program that a driver has started without an agent. Its streams and its result are
// those of a program of an agent.
type Direct struct {
	p      *process
	opt    DirectOptions
	ready  func()
	abort  func()
	std    driver.Stdio
	number int
}

var _ driver.Process = (*Direct)(nil)

// DirectOptions are what a driver adds.
type DirectOptions struct {
	// Signal and Kill implement driver.Process.
	Signal func(sig int) error
	Kill   func() error
	// Before are the counters before the program starts.
	Before Usage
	// Usage, Enforced, UID, GID and ChownPipes are as in Options.
	Usage      func() Usage
	Enforced   sandbar.Enforcements
	UID, GID   int
	ChownPipes bool
}

// NewDirect makes the streams of a program that is about to start, and returns the descriptors that
// the program gets. Begin or Abort must be called next. The result's Duration begins here.
func NewDirect(std driver.Stdio, opt DirectOptions) (d *Direct, fds []int, err error) {
	s := &Sandbox{opt: Options{Usage: opt.Usage, Enforced: opt.Enforced, UID: opt.UID, GID: opt.GID, ChownPipes: opt.ChownPipes}}
	p := &process{sandbox: s, asked: time.Now(), done: make(chan struct{}), idle: make(chan struct{})}
	p.started = p.asked
	p.before = opt.Before
	d = &Direct{p: p, opt: opt, std: std}
	fds, d.ready, d.abort, err = s.attachPipes(p, std)
	return d, fds, err
}

// Begin says that the program runs, with this process id in its sandbox.
func (d *Direct) Begin(pid int) {
	d.number = pid
	d.ready()
	d.p.pump(d.std)
}

// Abort closes the streams of a program that did not start.
func (d *Direct) Abort() {
	d.abort()
	close(d.p.idle)
}

// Exited reports the program's end. It must be called once, or Lost.
func (d *Direct) Exited(e wire.Exited) { d.p.exited(&e) }

// Lost says that the program's end is unknown.
func (d *Direct) Lost() { d.p.lost() }

// Done implements driver.Ender.
func (d *Direct) Done() <-chan struct{} { return d.p.done }

// Wait implements driver.Process.
func (d *Direct) Wait() (sandbar.Result, error) { return d.p.Wait() }

// Signal implements driver.Process.
func (d *Direct) Signal(sig int) error {
	if sig < 0 || sig > maxSignal {
		return &sandbar.Error{Code: sandbar.Invalid, Field: "signal", Message: "signals are numbered 0 to 64"}
	}
	return d.opt.Signal(sig)
}

// KillTree implements driver.Process.
func (d *Direct) KillTree() error { return d.opt.Kill() }

// PID implements driver.Process.
func (d *Direct) PID() int { return d.number }

// CheckCmd refuses a command that no kernel accepts.
func CheckCmd(c sandbar.Cmd) error { return checkCmd(c) }

// StartError returns the error of a program that could not be started, as Sandbox.Start does.
func StartError(failure wire.Failure, errno uint32, c sandbar.Cmd) error {
	return startError(&wire.Reply{Failure: failure, Errno: errno}, c)
}

// PutError returns the error of a file that could not be written.
func PutError(path string, errno uint32) error { return fileError("put", path, errno) }
