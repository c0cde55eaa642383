package client

import (
	"context"
	"errors"
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

// resize passes on sizes of p's terminal until its end.
func (p *process) resize(sizes <-chan sandbar.TerminalSize) {
	for {
		select {
		case <-p.done:
			return
		case size, more := <-sizes:
			if !more {
				return
			}
			if size.Check() != nil {
				continue
			}
			m := terminalSize(size)
			if p.sandbox.send(context.Background(), wire.Frame{Type: wire.TypeResize, ID: p.id, Payload: m.Append(nil)}) != nil {
				return
			}
		}
	}
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
