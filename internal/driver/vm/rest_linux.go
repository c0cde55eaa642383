package vm

import (
	"context"

	"github.com/sandbar-dev/sandbar/driver"
)

var _ driver.Rester = (*sandbox)(nil)

// Rest stops the machine's processors.
func (s *sandbox) Rest(ctx context.Context) error {
	if s.rests {
		return nil
	}
	err := s.vm.Stop(ctx)
	s.rests = err == nil
	return err
}

// Wake continues the machine and sets its clock, which has stood still.
func (s *sandbox) Wake(ctx context.Context) error {
	if !s.rests {
		return nil
	}
	if err := s.vm.Continue(ctx); err != nil {
		return err
	}
	s.rests = false
	return s.SetClock(ctx)
}
