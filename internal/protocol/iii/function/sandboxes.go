package function

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// sandboxEntry is a sandbox as callers see it.
type sandboxEntry struct {
	id      string // the sandbox's ID as a UUID
	name    *string
	image   string
	created time.Time
	sandbox *engine.Sandbox
	// foreign says that another protocol has created it. It does not count towards
	// max_concurrent_sandboxes, and outlives the functions.
	foreign bool

	// guarded by Functions.mu
	running int  // running execs
	stopped bool // being stopped; not usable
	unknown bool // not visible to callers; no caller waits for its end
}

// gone reports whether the engine has removed the sandbox.
func (b *sandboxEntry) gone() bool {
	select {
	case <-b.sandbox.Done():
		return true
	default:
		return false
	}
}

// reserve reserves a slot for a new sandbox.
func (f *Functions) reserve() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sweep()
	own := 0
	for _, b := range f.sandboxes {
		if !b.foreign && !b.unknown {
			own++
		}
	}
	most := f.opt.Config.MaxConcurrentSandboxes
	switch {
	case f.closed:
		return fail(S300, "the server is shutting down")
	case own+f.making >= most:
		return fail(S400, "max_concurrent_sandboxes (%d) reached", most)
	}
	f.making++
	return nil
}

// sweep drops sandboxes that the engine has removed. The caller holds mu.
func (f *Functions) sweep() {
	for id, b := range f.sandboxes {
		if b.gone() {
			delete(f.sandboxes, id)
		}
	}
}

// keep turns a reservation into a slot. It returns false during a shutdown.
func (f *Functions) keep(b *sandboxEntry) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.sandboxes[b.sandbox.ID()] = b
	return true
}

func (f *Functions) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.making--
}

// find returns the sandbox with an id: S001, S002 or S004 if there is none.
func (f *Functions) find(text string) (*sandboxEntry, error) {
	id, err := parseID(text)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lookup(id)
}

// lookup is find for a parsed id. The caller holds mu.
func (f *Functions) lookup(id sandbar.ID) (*sandboxEntry, error) {
	b := f.sandboxes[id]
	if b != nil && b.gone() {
		delete(f.sandboxes, id)
		b = nil
	}
	if b == nil {
		b = f.adopt(id)
	}
	switch {
	case b == nil || b.unknown:
		return nil, fail(S002, "%s", id.UUID())
	case b.stopped:
		return nil, fail(S004, "%s", b.id)
	}
	return b, nil
}

// adopt finds a sandbox of another protocol, nil if callers may see none. The caller holds mu.
func (f *Functions) adopt(id sandbar.ID) *sandboxEntry {
	sandbox, err := f.opt.Engine.Get(asClient(context.Background()), id)
	if err != nil || f.closed {
		return nil
	}
	info := sandbox.Info()
	if f.opt.Visible != nil && !f.opt.Visible(info) {
		return nil
	}
	b := &sandboxEntry{id: id.UUID(), image: info.Spec.Image, created: info.Created, sandbox: sandbox, foreign: true}
	if info.Spec.Name != "" {
		b.name = &info.Spec.Name
	}
	f.sweep()
	f.sandboxes[id] = b
	return b
}

// enter reserves one of a sandbox's slots for programs.
func (f *Functions) enter(id sandbar.ID) (*sandboxEntry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.lookup(id)
	if err != nil {
		return nil, err
	}
	if b.running >= f.opt.Config.ExecSlots() {
		return nil, fail(S003, "sandbox %s is at its exec concurrency cap (%d, max_concurrent_exec_per_sandbox)", b.id, f.opt.Config.ExecSlots())
	}
	b.running++
	return b, nil
}

func (f *Functions) leave(b *sandboxEntry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b.running--
}

// forget removes a sandbox from the table.
func (f *Functions) forget(b *sandboxEntry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sandboxes, b.sandbox.ID())
}

// summary is a sandbox in the result of sandbox::list.
type summary struct {
	AgeSecs        int64   `json:"age_secs"`
	ExecInFlight   int     `json:"exec_in_flight"`
	ExecInProgress bool    `json:"exec_in_progress"`
	ExecSlotsFree  int     `json:"exec_slots_free"`
	Image          string  `json:"image"`
	Name           *string `json:"name"`
	SandboxID      string  `json:"sandbox_id"`
	Stopped        bool    `json:"stopped"`
}

// list implements sandbox::list: the sandboxes of all protocols, the oldest first.
func (f *Functions) list(ctx context.Context, data json.RawMessage) (any, error) {
	if _, err := decode(data, "ListRequest"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, info := range f.opt.Engine.List(ctx) {
		if f.sandboxes[info.ID] == nil {
			f.adopt(info.ID)
		}
	}
	var sandboxes []*sandboxEntry
	for _, b := range f.sandboxes {
		if !b.gone() && !b.unknown {
			sandboxes = append(sandboxes, b)
		}
	}
	slices.SortFunc(sandboxes, func(a, b *sandboxEntry) int { return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.id, b.id)) })
	all := []summary{}
	for _, b := range sandboxes {
		all = append(all, summary{SandboxID: b.id, Name: b.name, Image: b.image,
			AgeSecs: int64(time.Since(b.created) / time.Second), ExecInProgress: b.running > 0, ExecInFlight: b.running,
			ExecSlotsFree: max(f.opt.Config.ExecSlots()-b.running, 0), Stopped: b.stopped})
	}
	return map[string]any{"sandboxes": all}, nil
}

// stop implements sandbox::stop.
func (f *Functions) stop(ctx context.Context, data json.RawMessage) (any, error) {
	var req struct {
		id   string
		wait bool
	}
	if _, err := decode(data, "StopRequest", must(text("sandbox_id", &req.id)), boolean("wait", &req.wait)); err != nil {
		return nil, err
	}
	id, err := parseID(req.id)
	if err != nil {
		return nil, err
	}
	b, gone, err := f.markStopped(id, req.wait)
	if err != nil {
		return nil, err
	}
	if req.wait {
		select {
		case <-gone:
		case <-ctx.Done():
			return nil, fail(S300, "the caller has left; the sandbox is still being stopped")
		}
	}
	return map[string]any{"sandbox_id": b.id, "stopped": true}, nil
}

// markStopped starts to stop a sandbox, which cannot be used from then on. It disappears at once
// or, if the caller waits, after all of it is gone.
func (f *Functions) markStopped(id sandbar.ID, wait bool) (*sandboxEntry, <-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.lookup(id)
	if err != nil {
		return nil, nil, err
	}
	b.stopped = true
	b.unknown = !wait
	gone := make(chan struct{})
	f.tasks.Go(func() {
		defer close(gone)
		f.remove(asClient(context.Background()), b)
		f.forget(b)
	})
	return b, gone, nil
}

// remove stops a sandbox and waits until nothing of it is left.
func (f *Functions) remove(ctx context.Context, b *sandboxEntry) {
	err := f.opt.Engine.Stop(ctx, b.sandbox.ID())
	if err != nil && sandbar.CodeOf(err) != sandbar.NotFound {
		f.opt.Logger.Error("iii: a sandbox could not be stopped", "sandbox", b.sandbox.ID(), "error", err)
	}
}
