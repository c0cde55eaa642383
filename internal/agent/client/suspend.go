package client

import (
	"context"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// maxSuspendID bounds the ids of a sandbox that can be suspended: ids after Suspend must be greater
// than all before.
const maxSuspendID = 1 << 31

// Suspend makes the agent of a machine freeze all programs and write nothing more. Until Continue
// or Release the host writes nothing either; other requests wait. So nothing is on the way when the
// machine is saved. next is Options.FirstID for machines that are restored from what is saved.
//
// Timeout, Canceled: the agent did not answer before the end of ctx; the machine goes on.
// Unavailable: the programs could not be frozen. Gone: the sandbox has ended.
func (s *Sandbox) Suspend(ctx context.Context) (next uint32, err error) {
	c := &call{done: make(chan response, 1), slot: s.slots[wire.TypeSuspend]}
	for _, take := range []chan struct{}{c.slot, s.writing} {
		select {
		case take <- struct{}{}:
		case <-s.dead:
			err = s.gone()
		case <-ctx.Done():
			err = sandbar.Errorf(sandbar.CodeOfContext(ctx), "waiting for the sandbox: %w", ctx.Err())
		}
		if err != nil {
			if take == s.writing {
				<-c.slot
			}
			return 0, err
		}
	}
	id, err := s.register(c)
	if err != nil {
		<-s.writing
		<-c.slot
		return 0, err
	}
	if err := s.write(wire.Frame{Type: wire.TypeSuspend, ID: id}); err != nil {
		<-s.writing
		return 0, s.forget(id, c, err)
	}
	var r response
	select {
	case r = <-c.done:
		err = r.err
	case <-ctx.Done():
		r, err = s.abandon(ctx, c)
	}
	switch {
	case err != nil:
	case r.Failure != wire.OK:
		err = sandbar.Errorf(sandbar.Unavailable, "the machine could not be suspended: %s: %w", said(r.Text), errnoOf(r.Errno))
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.wrapped || s.lastID >= maxSuspendID {
			err = sandbar.Errorf(sandbar.Unsupported, "the sandbox has had too many requests to be saved")
			break
		}
		return s.lastID + 1, nil
	}
	_ = s.Continue() // an error ends the connection
	return 0, err
}

// Continue lets a suspended machine go on, with the present time. It is called once after Suspend
// or Resume.
func (s *Sandbox) Continue() error {
	defer func() { <-s.writing }()
	return s.write(clockFrame(wire.TypeContinue))
}

// Release ends a suspended machine for this host, which will destroy it: all later requests fail.
func (s *Sandbox) Release() {
	s.refuse()
	<-s.writing
}

// Resume renews a machine that was restored from the state after Suspend, and lets it go on. What
// its former host had open is closed. Errors are those of Renew.
func (s *Sandbox) Resume(ctx context.Context, renew wire.Renew) error {
	renew.Time = wallClock()
	m := wire.Resume{FirstID: s.opt.FirstID, Renew: renew}
	answer, err := s.request(ctx, wire.TypeResume, m.Append(nil), nil, &call{})
	if err != nil {
		return err
	}
	if answer.Failure != wire.OK {
		return sandbar.Errorf(sandbar.Internal, "the machine could not be renewed: %s: %w", said(answer.Text), errnoOf(answer.Errno))
	}
	return s.send(ctx, clockFrame(wire.TypeContinue))
}
