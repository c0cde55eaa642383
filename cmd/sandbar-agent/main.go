// Command sandbar-agent is PID 1 of every sandbox. Sandbar carries it and
// starts it; it does nothing when it is started by hand. See internal/agent.
// In a virtual machine the kernel starts it as the first program; see
// internal/agent/boot.
package main

import (
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/boot"
)

func main() {
	boot.Main()
	agent.Main()
}
