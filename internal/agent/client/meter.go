package client

import (
	"context"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// PeakMemory returns the sandbox's peak memory in bytes, its agent included, as the kernel counted
// it; 0 if nothing counts it.
func (s *Sandbox) PeakMemory() int64 {
	if s.opt.Usage == nil {
		return 0
	}
	return s.opt.Usage().PeakMemory
}

// Restrict implements driver.Restricter.
func (s *Sandbox) Restrict(_ context.Context, e sandbar.Egress) error {
	if s.opt.Restrict == nil {
		return sandbar.Errorf(sandbar.Unsupported, "the sandbox has no network that could be restricted")
	}
	return s.opt.Restrict(e)
}

// Measure implements driver.Meter.
func (s *Sandbox) Measure(context.Context) (driver.Use, error) {
	if s.opt.Use == nil {
		return driver.Use{}, &sandbar.Error{Code: sandbar.Unsupported, Message: "nothing counts what a sandbox uses: this host gives the daemon no control group",
			Fix: "run the daemon as root, or delegate control groups to its user; `sandbar doctor` says how"}
	}
	return s.opt.Use()
}
