package all

import (
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agentbin"
	"github.com/sandbar-dev/sandbar/internal/driver/native"
)

// isolating returns the drivers that put a boundary around a program.
func isolating() []driver.Factory {
	return []driver.Factory{native.Factory(agentbin.Binary())}
}
