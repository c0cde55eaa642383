// Package all lists the drivers of this build. Drivers do not register themselves, so the program
// contains exactly the drivers that this package imports.
package all

import (
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/docker"
	"github.com/sandbar-dev/sandbar/internal/driver/e2b"
	"github.com/sandbar-dev/sandbar/internal/driver/kubernetes"
	"github.com/sandbar-dev/sandbar/internal/driver/kubernetes/agentimage"
	"github.com/sandbar-dev/sandbar/internal/driver/local"
	"github.com/sandbar-dev/sandbar/internal/driver/v86"
)

// Factories returns all drivers of this build: first those of Isolating, then those that need an
// image, an engine, a runtime, an emulator, a service or a cluster of the operator (v86, docker,
// e2b, kubernetes, oci, gvisor, vm), and last local, which has no boundary and is for trusted code
// only. agent is as for Isolating; porter is the porter's program, nil for none.
func Factories(agent, porter []byte) []driver.Factory {
	return append(append(append(Isolating(agent), v86.Factory(), docker.Factory(agent), e2b.Factory(agent), kubernetes.Factory(agentimage.Programs{Agent: agent, Porter: porter})), onLinux(agent)...), local.Factory())
}
