//go:build !linux

package all

import "github.com/sandbar-dev/sandbar/driver"

// Isolating returns nothing: the drivers with a boundary need Linux.
func Isolating([]byte) []driver.Factory { return nil }
