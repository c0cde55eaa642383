package all

import (
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/native"
	"github.com/sandbar-dev/sandbar/internal/driver/oci"
	"github.com/sandbar-dev/sandbar/internal/driver/wasm"
)

// Isolating returns the drivers that put a boundary around a program, strongest
// first. agent is the agent's program; with nil the running binary starts
// itself as the agent.
func Isolating(agent []byte) []driver.Factory {
	return []driver.Factory{native.Factory(agent), wasm.Factory()}
}

// runtimes returns the drivers that use a container runtime.
func runtimes(agent []byte) []driver.Factory { return oci.Factories(agent) }
