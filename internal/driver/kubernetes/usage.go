package kubernetes

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// usageReader reads the kernel's counters of a sandbox from the files of its cgroup, which its
// runtime mounts read-only in the container. One round trip to the agent reads all.
type usageReader struct {
	mu   sync.Mutex
	sb   *client.Sandbox // nil: the sandbox has no agent, or has ended
	last client.Usage
}

// usageBound bounds one reading.
const usageBound = 2 * time.Second

func (u *usageReader) open(sb *client.Sandbox) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sb = sb
}

func (u *usageReader) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sb = nil
}

// read returns the counters. If they cannot be read it returns the last ones.
func (u *usageReader) read() client.Usage {
	u.mu.Lock()
	sb := u.sb
	u.mu.Unlock()
	if sb == nil {
		u.mu.Lock()
		defer u.mu.Unlock()
		return u.last
	}
	ctx, cancel := context.WithTimeout(context.Background(), usageBound)
	defer cancel()
	files, err := sb.Counters(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil {
		u.last = parseUsage(files)
	}
	return u.last
}

// parseUsage parses the counters.
func parseUsage(files [wire.Counters]string) client.Usage {
	number := func(i int, name string) int64 {
		for line := range strings.Lines(files[i]) {
			f := strings.Fields(line)
			if len(f) == 0 || name != "" && (len(f) != 2 || f[0] != name) {
				continue
			}
			n, err := strconv.ParseInt(f[len(f)-1], 10, 64)
			if err != nil || n < 0 {
				return 0
			}
			return n
		}
		return 0
	}
	return client.Usage{
		PeakMemory: max(number(wire.MemoryPeak1, ""), number(wire.MemoryPeak2, "")),
		OOMKills:   max(number(wire.MemoryOOM1, "oom_kill"), number(wire.MemoryEvents2, "oom_kill")),
		CPU:        max(time.Duration(number(wire.CPUTime1, "")), time.Duration(min(number(wire.CPUTime2, "usage_usec"), 1<<50))*time.Microsecond),
	}
}
