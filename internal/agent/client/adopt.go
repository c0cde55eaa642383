package client

import (
	"context"
	"slices"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// AdoptAttrs returns the attributes that a process must have before Adopt, so that it is equal to a
// program that the agent has started. ruleset is the descriptor of a Landlock ruleset, -1 if the
// kernel has no Landlock. The caller owns it. Unsupported: the agent cannot adopt processes.
func (s *Sandbox) AdoptAttrs(ctx context.Context) (attrs wire.AdoptAttrs, ruleset int, err error) {
	r, err := s.request(ctx, wire.TypeAdoptAttrs, nil, nil, &call{maxFDs: 1})
	if err != nil {
		return attrs, -1, err
	}
	switch {
	case r.Failure != wire.OK:
		return attrs, -1, sandbar.Errorf(sandbar.Unsupported, "the sandbox cannot adopt a process: %w", errnoOf(r.Errno))
	case attrs.Decode(r.Data) != nil || !possibleLimits(&attrs) || len(r.fds) == 1 && !isAnonymous(r.fds[0]):
		closeFDs(r.fds)
		return wire.AdoptAttrs{}, -1, s.violated("the attributes for adopting a process")
	case len(r.fds) == 1:
		return attrs, r.fds[0], nil
	}
	return attrs, -1, nil
}

// rlimits is the number of resources with a limit per process (getrlimit(2)).
const rlimits = 16

// possibleLimits reports whether the agent's attributes have only existing resources.
func possibleLimits(l *wire.AdoptAttrs) bool {
	return l.Resource < rlimits && len(l.Rlimits) <= rlimits &&
		!slices.ContainsFunc(l.Rlimits, func(r wire.Rlimit) bool { return r.Resource >= rlimits })
}

// Adopt makes the agent treat a process as a program that it has started. The driver has made the
// process a child of the agent. Internal: the agent refuses it, for instance because it has more
// privileges than programs.
func (s *Sandbox) Adopt(ctx context.Context, a wire.Adopt) (*Adopted, error) {
	p := &process{sandbox: s, asked: time.Now(), waits: true, done: make(chan struct{}), idle: make(chan struct{})}
	if s.opt.Usage != nil {
		p.before = s.opt.Usage() // a waiting process uses no CPU time
	}
	r, err := s.request(ctx, wire.TypeAdopt, a.Append(nil), nil, &call{process: p})
	if err != nil {
		return nil, err
	}
	switch {
	case r.Failure != wire.OK:
		return nil, sandbar.Errorf(sandbar.Internal, "the agent does not adopt the process: %s: %w", said(r.Text), errnoOf(r.Errno))
	case p.told.Decode(r.Data) != nil || p.told.PID != a.PID || p.told.Tag != a.Tag:
		return nil, s.violated("adopting a process")
	}
	return &Adopted{p}, nil
}

// Adopted is an adopted process that waits for its program.
type Adopted struct{ p *process }

// Done is closed after the process has ended.
func (a *Adopted) Done() <-chan struct{} { return a.p.done }

// Begin starts the program. It connects std and calls send with the descriptors of the three
// standard streams, which send must pass to the process. It must be called at most once. Gone: the
// process has ended.
func (a *Adopted) Begin(std driver.Stdio, send func(fds []int) error) (driver.Process, error) {
	p := a.p
	if !canPass(p.sandbox.conn) {
		return nil, sandbar.Errorf(sandbar.Internal, "a program's streams cannot be passed on this connection")
	}
	var made process
	fds, ready, abort, err := p.sandbox.attachPipes(&made, std)
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

// begin sets the streams and the start time of an adopted process to those of made. It reports
// false if the process has ended.
func (p *process) begin(made *process) bool {
	p.sandbox.mu.Lock()
	defer p.sandbox.mu.Unlock()
	if !p.waits || p.sandbox.running[p.id] != p {
		return false
	}
	p.waits, p.in, p.outs, p.started = false, made.in, made.outs, time.Now()
	return true
}
