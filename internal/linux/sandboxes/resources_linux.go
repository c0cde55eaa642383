package sandboxes

import (
	"context"
	"net"
	"os"
	"sync"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/cgroup"
	"github.com/sandbar-dev/sandbar/internal/linux/spawn"
)

// Resources are what one sandbox holds on the host. A driver embeds them. Their fields are set as
// the sandbox is built, and Destroy gives them back in reverse.
type Resources struct {
	ID    sandbar.ID
	Image *driver.Image // nil: the host's own programs
	Range *spawn.Range  // nil: programs have the daemon's user
	Group *cgroup.Group // nil: the sandbox has none
	Init  *spawn.Child  // the first process of the sandbox's PID namespace
	// Baseline is the part of the group's memory, in bytes, that is not the programs'. It is not in
	// Usage.
	Baseline int64
	// OnEnd, if set, releases further resources of the driver. Destroy calls it when no process of
	// the sandbox is left, and again after an error.
	OnEnd func() error

	Mu        sync.Mutex // held by Destroy
	base      *Base
	destroyed bool
}

// TakeRange takes ids for the sandbox, if sandboxes have their own.
func (r *Resources) TakeRange() (err error) {
	if r.base.IDs.Ranged {
		r.Range, err = r.base.Ranges.Take()
	}
	return err
}

// TakeGroup makes the sandbox's control group, if there are any.
func (r *Resources) TakeGroup(l sandbar.Limits) (err error) {
	if r.base.HasCgroups() {
		r.Group, err = r.base.Groups.Create(string(r.ID), l)
	}
	return err
}

// Boot starts the agent as Init and returns the connection to it.
func (r *Resources) Boot(request *wire.Spawn) (net.Conn, error) {
	ours, theirs, err := spawn.SocketPair()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	defer theirs.Close()
	if r.Init, err = r.base.Spawner.Start(request, r.Group, theirs); err != nil {
		return nil, err
	}
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "connecting to the agent: %w", err)
	}
	return conn, nil
}

// HostIDs returns the user and the group of the sandbox's user inside, as the host numbers them.
func (r *Resources) HostIDs(inside int) (uid, gid int) {
	if r.Range == nil {
		return os.Getuid(), os.Getgid()
	}
	return r.Range.First + inside, r.Range.First + inside
}

// Usage returns a function that reads the group's counters; nil if there is no group.
func (r *Resources) Usage() func() client.Usage {
	g := r.Group // Destroy sets it to nil, and may run while the function does
	if g == nil {
		return nil
	}
	return func() client.Usage {
		s, err := g.Totals()
		if err != nil { // the sandbox is being destroyed; the values that were read are right
			r.base.Log.Debug("a sandbox's counters could not be read", "sandbox", r.ID, "error", err)
		}
		return client.Usage{PeakMemory: max(0, s.MemoryPeak-r.Baseline), CPU: s.CPUTime, OOMKills: s.OOMKills}
	}
}

// Destroy kills everything in the sandbox and gives back its resources. Init is PID 1 of the
// sandbox's PID namespace: when it has been waited for, no process of the sandbox is left
// (pid_namespaces(7)). After an error another call goes on where the first one failed.
func (r *Resources) Destroy(ctx context.Context) error {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.destroyed {
		return nil
	}
	if r.Init != nil {
		if err := r.Init.Kill(ctx); err != nil {
			return err
		}
		r.Init = nil
	}
	if r.OnEnd != nil {
		if err := r.OnEnd(); err != nil {
			return err
		}
		r.OnEnd = nil
	}
	if r.Group != nil {
		if err := r.Group.Destroy(ctx); err != nil {
			return err
		}
		r.Group = nil
	}
	if r.Range != nil {
		r.base.Ranges.Release(r.Range)
		r.Range = nil
	}
	if r.Image != nil {
		r.Image.Close()
		r.Image = nil
	}
	r.destroyed = true
	r.base.Registry.Release(string(r.ID))
	return nil
}
