package all

import (
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/boot"
	"github.com/sandbar-dev/sandbar/internal/image"
	"github.com/sandbar-dev/sandbar/internal/linux/egress/netstack"
	"github.com/sandbar-dev/sandbar/internal/wasm/guest"
	machine "github.com/sandbar-dev/sandbar/internal/wasm/v86/worker"
	"github.com/sandbar-dev/sandbar/internal/wasm/worker"
)

// Main runs a child process that a driver or the image store has started from the running program.
// In such a process it does not return, in any other it does nothing. A program that uses the
// drivers must call it at the beginning of main.
func Main() {
	// The first process of a virtual machine and the agent, in builds without an embedded agent.
	boot.Main()
	if agent.IsAgent() {
		agent.Main()
	}
	// The TCP/IP stack of native sandboxes.
	netstack.Main()
	// The unpacker of images.
	image.Main()
	// The wasm driver's workers and runners.
	if worker.IsWorker() {
		worker.Main()
	}
	if guest.IsRunner() {
		guest.Main()
	}
	// The v86 driver's machines.
	if machine.IsWorker() {
		machine.Main()
	}
}
