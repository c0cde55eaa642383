package all

import (
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/native"
	"github.com/sandbar-dev/sandbar/internal/driver/oci"
	"github.com/sandbar-dev/sandbar/internal/driver/vm"
	"github.com/sandbar-dev/sandbar/internal/driver/wasm"
)

// Isolating returns the drivers with a boundary that need nothing to be set up, the preferred one
// first. agent is the agent's program. nil means the running binary, which must then call Main.
func Isolating(agent []byte) []driver.Factory {
	return []driver.Factory{native.Factory(agent), wasm.Factory()}
}

// onLinux returns the drivers that use a container runtime or a virtual machine monitor.
func onLinux(agent []byte) []driver.Factory { return append(oci.Factories(agent), vm.Factory(agent)) }
