package shell

import (
	"context"
	"io"
	"sync"
	"syscall"
)

// pipeSize is the capacity of a pipe in bytes, as in Linux (pipe(7)).
const pipeSize = 64 << 10

// pipe connects a writing and a reading end.
type pipe struct {
	mu      sync.Mutex
	data    []byte
	noRead  bool // the reading end is closed
	noWrite bool
	change  chan struct{} // closed at the next change; nil if nobody waits
}

// wait returns a channel that is closed at the next change. The caller holds mu.
func (p *pipe) wait() <-chan struct{} {
	if p.change == nil {
		p.change = make(chan struct{})
	}
	return p.change
}

// changed wakes all waiters. The caller holds mu.
func (p *pipe) changed() {
	if p.change != nil {
		close(p.change)
		p.change = nil
	}
}

type readEnd struct{ *pipe }

func (e readEnd) read(ctx context.Context, b []byte) (int, error) {
	p := e.pipe
	for {
		p.mu.Lock()
		if len(p.data) > 0 || p.noWrite || len(b) == 0 {
			n := copy(b, p.data)
			p.data = p.data[n:]
			if n > 0 {
				p.changed()
			}
			end := n == 0 && len(b) > 0
			p.mu.Unlock()
			if end {
				return 0, io.EOF
			}
			return n, nil
		}
		change := p.wait()
		p.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

func (e readEnd) write(context.Context, []byte) (int, error) { return 0, syscall.EBADF }

func (e readEnd) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.noRead, e.data = true, nil
	e.changed()
}

type writeEnd struct{ *pipe }

func (e writeEnd) read(context.Context, []byte) (int, error) { return 0, syscall.EBADF }

func (e writeEnd) write(ctx context.Context, b []byte) (int, error) {
	p := e.pipe
	done := 0
	for {
		p.mu.Lock()
		if p.noRead {
			p.mu.Unlock()
			return done, syscall.EPIPE
		}
		if n := min(len(b), pipeSize-len(p.data)); n > 0 || len(b) == 0 {
			p.data = append(p.data, b[:n]...)
			p.changed()
			b, done = b[n:], done+n
		}
		if len(b) == 0 {
			p.mu.Unlock()
			return done, nil
		}
		change := p.wait()
		p.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			return done, context.Cause(ctx)
		}
	}
}

func (e writeEnd) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.noWrite = true
	e.changed()
}

func newPipe() (r, w *desc) {
	p := &pipe{}
	return newDesc(readEnd{p}), newDesc(writeEnd{p})
}
