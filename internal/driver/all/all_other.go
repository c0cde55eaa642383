//go:build !linux

package all

import "github.com/sandbar-dev/sandbar/driver"

// isolating returns nothing: the drivers with a boundary need Linux.
func isolating() []driver.Factory { return nil }
