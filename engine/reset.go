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
	r, ok := driver.As[driver.Resetter](s.inner)
	if !ok {
		return sandbar.Errorf(sandbar.Unsupported, "the driver %q cannot reset a sandbox", s.spec.Driver)
	}
	release, err := s.hold()
	if err != nil {
		return err
	}
	defer release()
	if err = r.Reset(ctx); err == nil {
		s.e.happened(Event{Type: EventReset, Sandbox: s.id, Client: Client(ctx).Name})
	}
	return err
}

// CurrentMemory returns the current memory use that counts towards Limits.Memory, in bytes.
// Unsupported: the driver cannot measure it.
func (s *Sandbox) CurrentMemory(ctx context.Context) (int64, error) {
	m, ok := driver.As[driver.CurrentMemory](s.inner)
	if !ok {
		return 0, sandbar.Errorf(sandbar.Unsupported, "the driver %q cannot measure a sandbox", s.spec.Driver)
	}
	release, err := s.hold()
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
