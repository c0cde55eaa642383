package engine

import (
	"context"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// Reset takes the sandbox back to its beginning: every program in it is ended,
// and its files are as they were when it was made. Unsupported if the driver
// cannot; then a new sandbox does the same.
func (s *Sandbox) Reset(ctx context.Context) error {
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

// MemoryUsed is what the sandbox holds at this moment of what Limits.Memory
// counts, in bytes; Unsupported if the driver cannot tell.
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
