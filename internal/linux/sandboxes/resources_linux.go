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

// Resources are the resources of one sandbox on the host. A driver embeds them and sets the fields
// while it builds the sandbox. Destroy releases them in reverse order.
type Resources struct {
	ID    sandbar.ID
	Image *driver.Image // nil: the host's own programs
	Range *spawn.Range  // nil: programs have the daemon's user
	Group *cgroup.Group // nil: the sandbox has none
	Init  *spawn.Child  // the first process of the sandbox's PID namespace
	// Baseline, if set, is the memory of the cgroup, in bytes, before the first program. Usage
	// subtracts it.
	Baseline int64
	// OnEnd, if set, releases further resources of the driver. Destroy calls it when no process of
	// the sandbox is left, and again after an error.
	OnEnd func() error

	Mu        sync.Mutex // held by Destroy
	base      *Base
	destroyed bool
}

// TakeRange allocates the sandbox's range of ids, if sandboxes have their own.
func (r *Resources) TakeRange() (err error) {
	if r.base.IDs.Ranged {
		r.Range, err = r.base.Ranges.Take()
	}
	return err
}

// TakeGroup creates the sandbox's cgroup with the limits l, if sandboxes have cgroups.
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

// HostIDs returns the host's uid and gid for an id of the sandbox.
func (r *Resources) HostIDs(inside int) (uid, gid int) {
	if r.Range == nil {
		return os.Getuid(), os.Getgid()
	}
	return r.Range.First + inside, r.Range.First + inside
}

// Usage returns a function that reads the cgroup's counters, nil if the sandbox has no cgroup.
func (r *Resources) Usage() func() client.Usage {
	g := r.Group // Destroy sets it to nil, and may run while the function does
	if g == nil {
		return nil
	}
	return func() client.Usage {
		s, err := g.Totals()
		if err != nil { // the sandbox is being destroyed; the counters read so far are valid
			r.base.Log.Debug("a sandbox's counters could not be read", "sandbox", r.ID, "error", err)
		}
		return client.Usage{PeakMemory: max(0, s.MemoryPeak-r.Baseline), CPU: s.CPUTime, OOMKills: s.OOMKills}
	}
}

// Use returns a function that measures the sandbox, nil if the sandbox has no cgroup.
func (r *Resources) Use() func() (driver.Use, error) {
	g := r.Group // as in Usage
	if g == nil {
		return nil
	}
	return func() (driver.Use, error) {
		u, err := g.Use()
		if err != nil {
			return driver.Use{}, &sandbar.Error{Code: sandbar.Gone, Message: "the sandbox has ended", Err: err}
		}
		return driver.Use{CPUTime: u.CPUTime, Memory: max(0, u.Memory-r.Baseline), Cache: u.Cache, Files: u.Files, Processes: u.PIDs}, nil
	}
}

// Destroy kills all processes of the sandbox and releases its resources. Init is PID 1 of the
// sandbox's PID namespace: when it has ended, no process of the sandbox is left
// (pid_namespaces(7)). After an error another call continues at the step that failed.
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
