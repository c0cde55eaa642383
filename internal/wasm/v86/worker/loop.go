package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/sandbar-dev/sandbar/internal/wasm/v86/machine"
)

// loop runs a machine and moves bytes between it and its host, on one goroutine.
type loop struct {
	m *machine.Machine
	// input has the bytes for the guest's agent; closed at their end.
	input <-chan []byte
	// translate maps a piece of input to the bytes for the guest. Nil: identity.
	translate func([]byte) ([]byte, error)
	// calls are functions to run on the loop's goroutine.
	calls <-chan func() error
	// output receives the bytes of the guest's agent, console those of the console.
	output, console func([]byte) error
	// busy reports whether the machine must run. Nil: always.
	busy func() bool
	// step, if not nil, is called after each step of the machine, and rest when the machine pauses.
	step func() error
	rest func()

	pending   []byte
	idleSince time.Time // since when the machine is not busy; zero: it is
	timer     *time.Timer
}

// errEnd ends a loop without an error.
var errEnd = errors.New("the end")

// idleDelay is how long the machine continues after the last work in progress, so that the guest
// finishes what follows an answer before the machine pauses.
const idleDelay = 5 * time.Millisecond

// run runs the machine until the end of input or an error.
func (l *loop) run() error {
	l.timer = time.NewTimer(0)
	defer l.timer.Stop()
	for {
		err := l.once()
		if errors.Is(err, errEnd) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// once runs one step, or waits for work if the machine is paused.
func (l *loop) once() error {
	if !l.active() {
		l.m.Pause()
		if l.rest != nil {
			l.rest()
		}
		return l.wait(nil)
	}
	l.m.Run()
	n := l.m.Channel.Write(l.pending)
	if l.pending = l.pending[n:]; len(l.pending) == 0 {
		l.pending = nil
	}
	idle, err := l.m.Step()
	if err != nil {
		return err
	}
	if b := l.m.Console.Received(); len(b) > 0 {
		if err := l.console(b); err != nil {
			return err
		}
	}
	if b := l.m.Channel.Received(); len(b) > 0 {
		if err := l.output(b); err != nil {
			return err
		}
	}
	if l.step != nil {
		if err := l.step(); err != nil {
			return err
		}
	}
	if idle > 0 {
		l.timer.Reset(idle)
		return l.wait(l.timer.C)
	}
	return l.poll()
}

// active reports whether the machine must run.
func (l *loop) active() bool {
	if l.busy == nil || l.busy() || len(l.pending) > 0 || l.m.Channel.Waiting() > 0 {
		l.idleSince = time.Time{}
		return true
	}
	if l.idleSince.IsZero() {
		l.idleSince = time.Now()
	}
	return time.Since(l.idleSince) < idleDelay
}

// maxPending bounds the input that the guest has not read, in bytes. Above it the loop reads no
// further input.
const maxPending = 4 << 20

// wait waits for input or a call, or until done if it is not nil.
func (l *loop) wait(done <-chan time.Time) error {
	input := l.input
	if len(l.pending) > maxPending {
		input = nil
	}
	select {
	case b, more := <-input:
		return l.take(b, more)
	case f := <-l.calls:
		return f()
	case <-done:
		return nil
	}
}

// poll processes input or a call, if there is any.
func (l *loop) poll() error {
	if len(l.pending) > maxPending {
		return nil
	}
	select {
	case b, more := <-l.input:
		return l.take(b, more)
	case f := <-l.calls:
		return f()
	default:
		return nil
	}
}

func (l *loop) take(b []byte, more bool) error {
	if !more {
		return errEnd
	}
	if l.translate != nil {
		var err error
		if b, err = l.translate(b); err != nil {
			return err
		}
	}
	l.pending = append(l.pending, b...)
	return nil
}

// send writes to the guest's console.
func (l *loop) send(text string) error {
	if n := l.m.Console.Write([]byte(text)); n < len(text) {
		return fmt.Errorf("the guest does not read its console")
	}
	return nil
}
