//go:build !linux

package main

import (
	"log/slog"

	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

// lowerOOMScore does nothing: only Linux has oom_score_adj.
func lowerOOMScore(platform.Drivers, *slog.Logger) {}
