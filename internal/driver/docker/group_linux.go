package docker

import (
	"strings"

	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/linux/cgroup"
)

// group is the cgroup of a container on this machine.
type group struct{ seen *cgroup.Observed }

// groupOf returns the counters of container id, whose first process is pid according to the engine.
// It returns nil unless that process is one of this machine, in a cgroup named after the container.
func groupOf(pid int, id string) counters {
	if pid <= 0 || len(id) != 64 {
		return nil
	}
	s, err := cgroup.Observe(pid)
	if err != nil || !strings.Contains(s.Path(), id) {
		return nil
	}
	return &group{seen: s}
}

func (g *group) usage() (client.Usage, error) {
	s, err := g.seen.Stats()
	return client.Usage{PeakMemory: s.MemoryPeak, CPU: s.CPUTime, OOMKills: s.OOMKills}, err
}
