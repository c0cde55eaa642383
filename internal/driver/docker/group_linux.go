package docker

import (
	"strings"

	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/linux/cgroup"
)

// group is the control group of a container on this machine.
type group struct{ seen *cgroup.Observed }

// groupOf returns the counters of the container id, whose first process is said
// to be pid: nil unless that process is one of this machine's, and in a group
// named after the container.
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
