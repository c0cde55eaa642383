package client

import (
	"cmp"
	"context"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Renew gives a machine that was restored from a snapshot or resumed its own random numbers, clock
// and names. It returns when the machine has them; nothing may run in it before. If r.Time is 0,
// the machine gets the present time, and once more after the answer: the first frame after a
// restore can take a tenth of a second in an emulated machine. After an error the machine must not
// be used: it may share random numbers with another one. Invalid: the names are not Valid.
// Internal: the machine could not apply it.
func (s *Sandbox) Renew(ctx context.Context, r wire.Renew) error { return s.renew(ctx, r, nil) }

// RenewAndSetup is Renew, and then Setup. It sends both requests at once: each answer takes long in
// a machine that was just restored.
func (s *Sandbox) RenewAndSetup(ctx context.Context, r wire.Renew, setup *wire.Setup) error {
	return s.renew(ctx, r, setup)
}

// renew is Renew, and Setup if setup is not nil.
func (s *Sandbox) renew(ctx context.Context, r wire.Renew, setup *wire.Setup) error {
	if !r.Valid() {
		return sandbar.Errorf(sandbar.Invalid, "the host name %s or the machine id of a machine is malformed", sandbar.Quote(r.Hostname, 100))
	}
	present := r.Time == 0
	if present {
		r.Time = wallClock()
	}
	renewed, set := &call{}, &call{}
	if err := s.ask(ctx, wire.TypeRenew, r.Append(nil), nil, renewed); err != nil {
		return err
	}
	var unasked error
	if setup != nil {
		unasked = s.ask(ctx, wire.TypeSetup, setup.Append(nil), nil, set)
	}
	answer, err := s.answer(ctx, renewed)
	if err == nil && answer.Failure != wire.OK {
		err = sandbar.Errorf(sandbar.Internal, "the machine could not be renewed: %s: %w", said(answer.Text), errnoOf(answer.Errno))
	}
	if setup != nil && unasked == nil {
		changed, serr := s.answer(ctx, set)
		if serr == nil {
			_, _, serr = s.setUp(changed, 0)
		}
		err = cmp.Or(err, serr)
	}
	if err := cmp.Or(err, unasked); err != nil {
		return err
	}
	if !present {
		return nil
	}
	return s.send(ctx, clockFrame(wire.TypeClock))
}

// SetClock sets the clock of a machine that has been stopped, and returns when the machine has the
// present time. The first frame may take long, so the time is sent once more.
func (s *Sandbox) SetClock(ctx context.Context) error {
	answer, err := s.request(ctx, wire.TypeClock, clockFrame(wire.TypeClock).Payload, nil, &call{})
	if err != nil {
		return err
	}
	if answer.Failure != wire.OK {
		return sandbar.Errorf(sandbar.Internal, "the machine could not set its clock: %w", errnoOf(answer.Errno))
	}
	return s.send(ctx, clockFrame(wire.TypeClock))
}

// wallClock is the present time for a guest, in nanoseconds since 1970.
func wallClock() int64 { return time.Now().UnixNano() }

// clockFrame returns a frame with the present time, which has no answer.
func clockFrame(t wire.Type) wire.Frame {
	clock := wire.Clock{Time: wallClock()}
	return wire.Frame{Type: t, Payload: clock.Append(nil)}
}
