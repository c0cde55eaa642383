package engine

import (
	"context"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// Reset kills every program in the sandbox and restores its files to their state after creation.
// Unsupported: the driver has no Resetter; use a new sandbox instead.
func (s *Sandbox) Reset(ctx context.Context) (err error) {
	defer func() { s.audit(ctx, DidReset, err) }()
	r, ok := driver.As[driver.Resetter](s.inner)
	if !ok {
		return sandbar.Errorf(sandbar.Unsupported, "the driver %q cannot reset a sandbox", s.spec.Driver)
	}
	release, err := s.hold()
	if err != nil {
		return err
	}
	defer release()
	return r.Reset(ctx)
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
