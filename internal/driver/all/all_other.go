//go:build !linux

package all

import (
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/wasm"
)

// Isolating returns the driver wasm, the only one of its kind that does not need Linux.
func Isolating([]byte) []driver.Factory { return []driver.Factory{wasm.Factory()} }

// onLinux returns no drivers: container runtimes and virtual machines need Linux.
func onLinux([]byte) []driver.Factory { return nil }
