//go:build !linux

package main

import (
	"log/slog"

	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

// protect does nothing: there is no order of whom to kill for memory.
func lowerOOMScore(platform.Drivers, *slog.Logger) {}
