//go:build !linux

package all

import (
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/wasm"
)

// Isolating returns the one driver with a boundary that does not need Linux.
func Isolating([]byte) []driver.Factory { return []driver.Factory{wasm.Factory()} }

// runtimes returns nothing: container runtimes need Linux.
func runtimes([]byte) []driver.Factory { return nil }
