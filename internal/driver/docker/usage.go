package docker

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/events"
	mobyclient "github.com/moby/moby/client"

	"github.com/sandbar-dev/sandbar/internal/agent/client"
)

// usageReader reads the kernel's counters of one container: from its cgroup if the engine is on
// this machine, otherwise from the engine.
type usageReader struct {
	d       *Driver
	name    string
	group   counters // nil if the cgroup is not visible here
	watched bool     // the engine's OOM events are counted
	limit   int64    // memory limit in bytes

	mu   sync.Mutex
	last client.Usage
}

// counters are the counters of a cgroup.
type counters interface {
	usage() (client.Usage, error)
}

// openUsage finds the counters of a container that was just started. If its cgroup is not
// visible, the engine is asked.
func (d *Driver) openUsage(ctx context.Context, name string) *usageReader {
	a := &usageReader{d: d, name: name}
	c, err := d.engine.inspect(ctx, name)
	if err != nil || c.State == nil || c.HostConfig == nil {
		return a
	}
	a.limit = c.HostConfig.Memory
	if d.local {
		a.group = groupOf(c.State.Pid, c.ID)
	}
	if a.group == nil {
		d.oom.watch(c.ID)
		a.name, a.watched = c.ID, true
	}
	return a
}

func (a *usageReader) close() {
	if a.watched {
		a.d.oom.forget(a.name)
	}
}

// usage returns the counters. While the container is being removed it returns the last ones.
func (a *usageReader) usage() client.Usage {
	var u client.Usage
	var err error
	if a.group != nil {
		u, err = a.group.usage()
	} else {
		u, err = a.ask()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.last = u
	}
	return a.last
}

// Timeouts of asking the engine for counters at the end of a program, and of waiting for an OOM
// event.
const (
	askBound = 2 * time.Second
	oomDelay = 300 * time.Millisecond
)

// ask asks the engine. OOM kills are reported as events, which may be late; ask waits for one if
// the memory was nearly used up.
func (a *usageReader) ask() (client.Usage, error) {
	var u client.Usage
	err := a.d.engine.call(context.Background(), askBound, "reading the counters of a container", func(ctx context.Context) error {
		r, err := a.d.engine.api.ContainerStats(ctx, a.name, mobyclient.ContainerStatsOptions{})
		if err != nil {
			return err
		}
		defer r.Body.Close()
		var s container.StatsResponse
		if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
			return err
		}
		u.CPU = time.Duration(s.CPUStats.CPUUsage.TotalUsage)
		u.PeakMemory = int64(max(s.MemoryStats.MaxUsage, s.MemoryStats.Usage))
		return nil
	})
	if a.watched {
		near := a.limit > 0 && u.PeakMemory > a.limit/8*7
		u.OOMKills = a.d.oom.kills(a.name, near)
	}
	return u, err
}

// oomWatch counts the engine's OOM events of containers whose cgroup is not visible here.
type oomWatch struct {
	engine *engine
	label  string

	mu      sync.Mutex
	count   map[string]int64 // by container
	changed chan struct{}    // closed at the next kill
	stop    context.CancelFunc
	done    sync.WaitGroup
}

func newOOMWatch(e *engine, owner string) *oomWatch {
	return &oomWatch{engine: e, label: labelOwner + "=" + owner, count: map[string]int64{}, changed: make(chan struct{})}
}

// watch starts to count the kills in a container.
func (w *oomWatch) watch(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count[id] = 0
	if w.stop == nil {
		var ctx context.Context
		ctx, w.stop = context.WithCancel(context.Background())
		w.done.Go(func() { w.listen(ctx) })
	}
}

// forget stops counting. Without containers it stops listening.
func (w *oomWatch) forget(id string) {
	w.mu.Lock()
	delete(w.count, id)
	stop := w.stop
	if len(w.count) > 0 {
		stop = nil
	}
	if stop != nil {
		w.stop = nil
	}
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
}

func (w *oomWatch) close() {
	w.mu.Lock()
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
	w.mu.Unlock()
	w.done.Wait()
}

// listen receives events until ctx ends, and reconnects after the engine was gone.
func (w *oomWatch) listen(ctx context.Context) {
	filters := make(mobyclient.Filters).Add("type", string(events.ContainerEventType)).Add("event", string(events.ActionOOM)).Add("label", w.label)
	for ctx.Err() == nil {
		r := w.engine.api.Events(ctx, mobyclient.EventsListOptions{Filters: filters})
		w.receive(r)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (w *oomWatch) receive(r mobyclient.EventsResult) {
	for {
		select {
		case m := <-r.Messages:
			w.mu.Lock()
			if _, ok := w.count[m.Actor.ID]; ok {
				w.count[m.Actor.ID]++
				close(w.changed)
				w.changed = make(chan struct{})
			}
			w.mu.Unlock()
		case <-r.Err:
			return
		}
	}
}

// kills returns the number of reported kills. With expected it waits briefly for one more.
func (w *oomWatch) kills(id string, expected bool) int64 {
	w.mu.Lock()
	n, changed := w.count[id], w.changed
	w.mu.Unlock()
	if n > 0 || !expected {
		return n
	}
	select {
	case <-changed:
	case <-time.After(oomDelay):
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count[id]
}
