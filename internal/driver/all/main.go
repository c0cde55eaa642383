package all

import (
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/image"
	"github.com/sandbar-dev/sandbar/internal/linux/egress/netstack"
	"github.com/sandbar-dev/sandbar/internal/wasm/guest"
	machine "github.com/sandbar-dev/sandbar/internal/wasm/v86/worker"
	"github.com/sandbar-dev/sandbar/internal/wasm/worker"
)

// Main does the work of a process that a driver, or the store of images, started
// from its own program, and then does not return; in any other process it does nothing. A program that
// uses the drivers calls it before anything else.
func Main() {
	// A build that carries no agent starts itself as one, in every sandbox.
	if agent.IsAgent() {
		agent.Main()
	}
	// The process of the TCP/IP stack through which native sandboxes reach out.
	netstack.Main()
	// The process that unpacks images.
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
