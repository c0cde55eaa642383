package client

import (
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
func (s *Sandbox) Renew(ctx context.Context, r wire.Renew) error {
	if !r.Valid() {
		return sandbar.Errorf(sandbar.Invalid, "the host name %s or the machine id of a machine is malformed", sandbar.Quote(r.Hostname, 100))
	}
	present := r.Time == 0
	if present {
		r.Time = wallClock()
	}
	answer, err := s.request(ctx, wire.TypeRenew, r.Append(nil), nil, &call{})
	if err != nil {
		return err
	}
	if answer.Failure != wire.OK {
		return sandbar.Errorf(sandbar.Internal, "the machine could not be renewed: %s: %w", said(answer.Text), errnoOf(answer.Errno))
	}
	if !present {
		return nil
	}
	return s.send(ctx, clockFrame(wire.TypeClock))
}

// wallClock is the present time for a guest, in nanoseconds since 1970.
func wallClock() int64 { return time.Now().UnixNano() }

// clockFrame returns a frame with the present time.
func clockFrame(t wire.Type) wire.Frame {
	clock := wire.Clock{Time: wallClock()}
	return wire.Frame{Type: t, Payload: clock.Append(nil)}
}
