package client

import (
	"context"
	"errors"
	"io"
	"syscall"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// attachTerminal prepares the channels of a program with a terminal: one input and one output.
func (s *Sandbox) attachTerminal(p *process, std driver.Stdio) (fds []int, ready, abort func(), err error) {
	c := newChannels(s, 1)
	p.in = &chanWriter{c}
	if std.Stdout != nil {
		p.outs = append(p.outs, &chanReader{c: c, ch: channelOut})
	} else {
		c.discard[channelOut] = true
	}
	p.channels = c
	return nil, func() {}, func() {}, nil
}

func terminalSize(s sandbar.TerminalSize) wire.TerminalSize {
	return wire.TerminalSize{Rows: uint16(s.Rows), Cols: uint16(s.Cols)}
}

// resizer passes on the sizes of a terminal.
type resizer struct {
	p     *process
	sizes <-chan sandbar.TerminalSize
	asked chan chan struct{} // requests to pass on what waits; each is closed then
	ended chan struct{}      // closed at the end of run
}

func newResizer(p *process, sizes <-chan sandbar.TerminalSize) *resizer {
	return &resizer{p: p, sizes: sizes, asked: make(chan chan struct{}), ended: make(chan struct{})}
}

// run passes on sizes until the program's end.
func (r *resizer) run() {
	defer close(r.ended)
	for {
		select {
		case <-r.p.done:
			return
		case size, more := <-r.sizes:
			if !more || !r.send(size) {
				return
			}
		case done := <-r.asked:
			select {
			case size, more := <-r.sizes:
				if !more || !r.send(size) {
					close(done)
					return
				}
			default:
			}
			close(done)
		}
	}
}

// send reports false if the sandbox has ended.
func (r *resizer) send(size sandbar.TerminalSize) bool {
	if size.Check() != nil {
		return true
	}
	m := terminalSize(size)
	return r.p.sandbox.send(context.Background(), wire.Frame{Type: wire.TypeResize, ID: r.p.id, Payload: m.Append(nil)}) == nil
}

// flush returns when the sizes that came before the call have been passed on.
func (r *resizer) flush() {
	done := make(chan struct{})
	select {
	case r.asked <- done:
		<-done
	case <-r.ended:
	}
}

// sizedInput is the input of a terminal. What a client writes after a change of the size reaches
// the program after it.
type sizedInput struct {
	io.WriteCloser
	resizer *resizer
}

func (w sizedInput) Write(b []byte) (int, error) {
	w.resizer.flush()
	return w.WriteCloser.Write(b)
}

// terminalError returns the error of a program whose terminal could not be made.
func terminalError(cause error) error {
	switch {
	case errors.Is(cause, syscall.ENOENT), errors.Is(cause, syscall.ENXIO):
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "terminal", Err: cause,
			Message: "the sandbox has no pseudoterminals: /dev/ptmx is missing or has been replaced"}
	case errors.Is(cause, syscall.ENOSPC), errors.Is(cause, syscall.EMFILE), errors.Is(cause, syscall.ENFILE):
		return &sandbar.Error{Code: sandbar.Exhausted, Field: "terminal", Err: cause,
			Message: "the host has no free pseudoterminal (kernel.pty.max)", Fix: "end programs with terminals, or raise kernel.pty.max"}
	}
	return sandbar.Errorf(sandbar.Internal, "making the program's terminal: %w", cause)
}
