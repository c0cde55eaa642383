// Command sandbar-porter connects a daemon with the agent in a pod of
// Kubernetes. Sandbar starts it there; it does nothing when it is started by
// hand. See internal/agent/porter.
package main

import "github.com/sandbar-dev/sandbar/internal/agent/porter"

func main() { porter.Main() }
