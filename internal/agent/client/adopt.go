package client

import (
	"context"
	"slices"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Lend asks what a process must take on that the backend is about to put into the
// sandbox, to be like a program that the agent has started. ruleset is a descriptor
// of the Landlock ruleset, -1 if the kernel has none; it becomes the caller's.
func (s *Sandbox) Lend(ctx context.Context) (lent wire.AdoptAttrs, ruleset int, err error) {
	r, err := s.request(ctx, wire.TypeAdoptAttrs, nil, nil, &call{maxFDs: 1})
	if err != nil {
		return lent, -1, err
	}
	switch {
	case r.Failure != wire.OK:
		return lent, -1, sandbar.Errorf(sandbar.Unsupported, "the sandbox takes in no process: %w", errnoOf(r.Errno))
	case lent.Decode(r.Data) != nil || !possibleLimits(&lent) || len(r.fds) == 1 && !isAnonymous(r.fds[0]):
		closeFDs(r.fds)
		return wire.AdoptAttrs{}, -1, s.violated("taking in a process")
	case len(r.fds) == 1:
		return lent, r.fds[0], nil
	}
	return lent, -1, nil
}

// rlimits is how many resources Linux limits for a process (getrlimit(2)).
const rlimits = 16

// possibleLimits reports whether there are such limits.
func possibleLimits(l *wire.AdoptAttrs) bool {
	return l.Resource < rlimits && len(l.Rlimits) <= rlimits &&
		!slices.ContainsFunc(l.Rlimits, func(r wire.Rlimit) bool { return r.Resource >= rlimits })
}

// Adopt has the agent take on a process that the backend has put into the sandbox
// as its child. The agent looks at it first, and refuses one that has more rights
// than its own programs.
func (s *Sandbox) Adopt(ctx context.Context, a wire.Adopt) (*Adopted, error) {
	p := &process{box: s, asked: time.Now(), waits: true, done: make(chan struct{}), idle: make(chan struct{})}
	if s.opt.Usage != nil {
		p.before = s.opt.Usage() // while it waits it uses nothing
	}
	r, err := s.request(ctx, wire.TypeAdopt, a.Append(nil), nil, &call{process: p})
	if err != nil {
		return nil, err
	}
	switch {
	case r.Failure != wire.OK:
		return nil, sandbar.Errorf(sandbar.Internal, "the agent does not take on the process: %s: %w", said(r.Text), errnoOf(r.Errno))
	case p.told.Decode(r.Data) != nil || p.told.PID != a.PID || p.told.Tag != a.Tag:
		return nil, s.violated("taking on a process")
	}
	return &Adopted{p}, nil
}

// Adopted is a process that waits in the sandbox for what it is to do.
type Adopted struct{ p *process }

// Done is closed some time after the process has ended.
func (a *Adopted) Done() <-chan struct{} { return a.p.done }

// Begin connects std and calls send with the descriptors of the three streams, by
// which send makes the process into the program that is returned. It works once.
// Gone: the process has ended.
func (a *Adopted) Begin(std driver.Stdio, send func(fds []int) error) (driver.Process, error) {
	p := a.p
	if !canPass(p.box.conn) {
		return nil, sandbar.Errorf(sandbar.Internal, "a program's streams cannot be passed on this connection")
	}
	var made process
	fds, ready, abort, err := p.box.attachPipes(&made, std)
	if err != nil {
		return nil, err
	}
	if !p.begin(&made) {
		abort()
		return nil, errGone()
	}
	if err := send(fds); err != nil {
		abort()
		close(p.idle)
		return nil, err
	}
	ready()
	p.pump(std)
	return p, nil
}

// begin has p be as made, unless it has ended.
func (p *process) begin(made *process) bool {
	p.box.mu.Lock()
	defer p.box.mu.Unlock()
	if !p.waits || p.box.running[p.id] != p {
		return false
	}
	p.waits, p.in, p.outs, p.started = false, made.in, made.outs, time.Now()
	return true
}
