package all

import (
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agentbin"
	"github.com/sandbar-dev/sandbar/internal/driver/native"
)

// Isolating returns the drivers that put a boundary around a program, strongest
// first.
func Isolating() []driver.Factory {
	return []driver.Factory{native.Factory(agentbin.Binary())}
}
