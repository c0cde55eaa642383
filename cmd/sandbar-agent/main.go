// Command sandbar-agent is PID 1 of every sandbox. Sandbar carries it and
// starts it; it does nothing when it is started by hand. See internal/agent.
package main

import "github.com/sandbar-dev/sandbar/internal/agent"

func main() { agent.Main() }
