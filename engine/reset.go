package engine

import (
	"context"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// Reset kills every program in the sandbox and restores its files to their state after creation.
// Unsupported: the driver has no Resetter; use a new sandbox instead.
func (s *Sandbox) Reset(ctx context.Context) (err error) {
	defer func() { s.called(ctx, DidReset, err) }()
	if err := s.permit(ctx, DidReset); err != nil {
		return err
	}
	r, ok := driver.As[driver.Resetter](s.inner)
	if !ok {
		return sandbar.Errorf(sandbar.Unsupported, "the driver %q cannot reset a sandbox", s.spec.Driver)
	}
	release, err := s.hold(ctx, DidReset)
	if err != nil {
		return err
	}
	defer release()
	if err = r.Reset(ctx); err == nil {
		s.happened(Event{Type: EventReset, Client: Client(ctx).Name})
	}
	return err
}

// Restrict replaces Spec.Egress of a sandbox with sandbar.NetworkOutbound. When it returns nil,
// connections to denied addresses are cut, and new ones are impossible. It lasts until the next
// Restrict, also in copies of the sandbox and after it was paused. Unsupported: the driver cannot
// enforce it, or the sandbox was created without a network. Invalid: a range is malformed.
func (s *Sandbox) Restrict(ctx context.Context, to sandbar.Egress) (err error) {
	defer func() { s.called(ctx, DidRestrict, err) }()
	if err := s.permit(ctx, DidRestrict); err != nil {
		return err
	}
	if s.spec.Network != sandbar.NetworkOutbound {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "network", Message: "the sandbox was created without a network, so it cannot get one",
			Fix: "create it with the network \"outbound\""}
	}
	b, err := s.e.backend(s.spec.Driver)
	if err == nil {
		err = b.checkEgress(s.spec.Network, &to)
	}
	if err != nil {
		return err
	}
	r, ok := driver.As[driver.Restricter](s.inner)
	if !ok {
		return sandbar.Errorf(sandbar.Unsupported, "the driver %q cannot restrict the network of a sandbox", s.spec.Driver)
	}
	release, err := s.hold(ctx, DidRestrict)
	if err != nil {
		return err
	}
	defer release()
	s.restricting.Lock() // so that the stored one is the one in force
	defer s.restricting.Unlock()
	if err := r.Restrict(ctx, to); err != nil {
		return err
	}
	s.mu.Lock()
	s.egress = &to
	s.mu.Unlock()
	return nil
}

// CurrentMemory returns the current memory use that counts towards Limits.Memory, in bytes.
// Unsupported: the driver cannot measure it.
func (s *Sandbox) CurrentMemory(ctx context.Context) (int64, error) {
	if err := s.permit(ctx, looks); err != nil {
		return 0, err
	}
	m, ok := driver.As[driver.CurrentMemory](s.inner)
	if !ok {
		return 0, sandbar.Errorf(sandbar.Unsupported, "the driver %q cannot measure a sandbox", s.spec.Driver)
	}
	release, err := s.hold(ctx, looks)
	if err != nil {
		return 0, err
	}
	defer release()
	return m.CurrentMemory(ctx)
}

// Use is what a sandbox uses at one moment.
type Use = driver.Use

// Measure returns what the sandbox uses now. It does not count as activity. Unsupported: the driver
// or the host cannot measure it.
func (s *Sandbox) Measure(ctx context.Context) (Use, error) {
	if err := s.permit(ctx, looks); err != nil {
		return Use{}, err
	}
	m, ok := driver.As[driver.Meter](s.inner)
	if !ok {
		return Use{}, sandbar.Errorf(sandbar.Unsupported, "the driver %q cannot measure a sandbox", s.spec.Driver)
	}
	s.mu.Lock()
	var err error
	if s.closed || s.pausing {
		err = s.refusal()
	}
	s.mu.Unlock()
	if err != nil {
		return Use{}, err
	}
	return m.Measure(ctx)
}
