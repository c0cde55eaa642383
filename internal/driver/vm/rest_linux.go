package vm

import (
	"context"
	"slices"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/qemu"
)

var _ driver.Rester = (*sandbox)(nil)

// Rest stops the machine's processors. The first time, an emulated machine runs a program that does
// nothing before, so that the emulator has translated what every program needs.
func (s *sandbox) Rest(ctx context.Context) error {
	if s.rests {
		return nil
	}
	if s.warmUp != nil {
		if err := s.runWarmUp(ctx); err != nil {
			return err
		}
	}
	err := s.r.vm.Stop(ctx)
	s.rests = err == nil
	return err
}

// Wake continues the machine and sets its clock, which has stood still.
func (s *sandbox) Wake(ctx context.Context) error {
	if !s.rests {
		return nil
	}
	if err := s.r.vm.Continue(ctx); err != nil {
		return err
	}
	s.rests = false
	return s.SetClock(ctx)
}

// runWarmUp runs warmUp once.
func (s *sandbox) runWarmUp(ctx context.Context) error {
	cmd := sandbar.Cmd{Args: s.warmUp}
	s.warmUp = nil
	p, err := s.Start(ctx, cmd, driver.Stdio{})
	if code := sandbar.CodeOf(err); code == sandbar.NotFound || code == sandbar.Denied {
		return nil // the image has no such program
	}
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = p.KillTree() })()
	if _, err := p.Wait(); err != nil {
		return err
	}
	return p.KillTree()
}

// warmUp returns the command of runWarmUp for a machine of a kind, nil for none.
func warmUp(k kind) []string {
	switch {
	case k.Monitor.Accelerator != qemu.TCG:
		return nil
	case k.Interpreter != nil:
		return append(slices.Clone(k.Interpreter.Argv), "/dev/null")
	}
	return []string{"sh", "-c", ":"}
}
