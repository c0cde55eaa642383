package engine

import (
	"context"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// rest stops a ready sandbox until wake, if it would use the processor while it waits. A sandbox
// that cannot be stopped is used all the same.
func (e *Engine) rest(ctx context.Context, id sandbar.ID, template string, sb driver.Sandbox) {
	if s, ok := driver.As[driver.Rester](sb); ok {
		if err := s.Rest(ctx); err != nil {
			e.log.Warn("a ready sandbox was not stopped", "sandbox", id, "template", template, "error", err)
		}
	}
}

// wake continues a ready sandbox. After an error it can only be destroyed.
func wake(ctx context.Context, sb driver.Sandbox) error {
	if s, ok := driver.As[driver.Rester](sb); ok {
		return s.Wake(ctx)
	}
	return nil
}

// useReady makes a ready sandbox the one of s. If it cannot be used, it is removed, and s.inner
// stays nil: the slot is then free for a fresh sandbox.
func (s *Sandbox) useReady(r *readySandbox) {
	_, err := bounded(setupTimeout, s.e.draining, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, wake(ctx, r.sb)
	}, func(struct{}) {})
	if err == nil {
		s.id, s.inner, s.env = r.id, r.sb, s.spec.Env
		return
	}
	s.e.pools.failed(r.p)
	s.e.log.Warn("a ready sandbox failed; a fresh one is made", "sandbox", r.id, "template", r.p.name, "error", err)
	s.e.removeNow(r.id, r.sb)
}
