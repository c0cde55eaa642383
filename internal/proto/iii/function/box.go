package function

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/proto/iii/channel"
)

// box is a sandbox under the name that callers know it by.
type box struct {
	id      string
	name    *string
	image   string
	created time.Time
	sandbox *engine.Sandbox

	// guarded by Functions.mu
	running int  // execs
	stopped bool // being stopped; others may not use it
}

// gone reports whether the engine has ended the sandbox.
func (b *box) gone() bool {
	select {
	case <-b.sandbox.Done():
		return true
	default:
		return false
	}
}

// reserve takes a place for a sandbox that is to be made.
func (f *Functions) reserve() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, b := range f.boxes {
		if b.gone() {
			delete(f.boxes, id)
		}
	}
	most := f.opt.Config.MaxConcurrentSandboxes
	switch {
	case f.closed:
		return fail(S300, "the server is shutting down")
	case len(f.boxes)+f.making >= most:
		return fail(S400, "max_concurrent_sandboxes (%d) reached", most)
	}
	f.making++
	return nil
}

// keep gives a new sandbox its id, and its place for good; false during a
// shutdown.
func (f *Functions) keep(b *box) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	b.id = channel.NewUUID()
	f.boxes[b.id] = b
	return true
}

func (f *Functions) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.making--
}

// find returns the sandbox of a UUID: S001, S002 or S004 if there is none.
func (f *Functions) find(uuid string) (*box, error) {
	id, err := parseUUID(uuid)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lookup(id)
}

// lookup is find with mu held and a canonical id.
func (f *Functions) lookup(id string) (*box, error) {
	b := f.boxes[id]
	if b != nil && b.gone() {
		delete(f.boxes, id)
		b = nil
	}
	switch {
	case b == nil:
		return nil, fail(S002, "%s", id)
	case b.stopped:
		return nil, fail(S004, "%s", id)
	}
	return b, nil
}

// enter takes one of a sandbox's places for programs.
func (f *Functions) enter(id string) (*box, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.lookup(id)
	if err != nil {
		return nil, err
	}
	if b.running >= f.opt.Config.ExecSlots() {
		return nil, fail(S003, "sandbox %s is at its exec concurrency cap (%d, max_concurrent_exec_per_sandbox)", id, f.opt.Config.ExecSlots())
	}
	b.running++
	return b, nil
}

func (f *Functions) leave(b *box) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b.running--
}

// forget makes a sandbox unknown.
func (f *Functions) forget(b *box) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.boxes, b.id)
}

// summary is a sandbox as sandbox::list shows it.
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

// list is sandbox::list. The oldest comes first.
func (f *Functions) list(_ context.Context, data json.RawMessage) (any, error) {
	if _, err := decode(data, "ListRequest"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var boxes []*box
	for _, b := range f.boxes {
		if !b.gone() {
			boxes = append(boxes, b)
		}
	}
	slices.SortFunc(boxes, func(a, b *box) int { return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.id, b.id)) })
	all := []summary{}
	for _, b := range boxes {
		all = append(all, summary{SandboxID: b.id, Name: b.name, Image: b.image,
			AgeSecs: int64(time.Since(b.created) / time.Second), ExecInProgress: b.running > 0, ExecInFlight: b.running,
			ExecSlotsFree: max(f.opt.Config.ExecSlots()-b.running, 0), Stopped: b.stopped})
	}
	return map[string]any{"sandboxes": all}, nil
}

// stop is sandbox::stop.
func (f *Functions) stop(ctx context.Context, data json.RawMessage) (any, error) {
	var req struct {
		id   string
		wait bool
	}
	if _, err := decode(data, "StopRequest", must(text("sandbox_id", &req.id)), truth("wait", &req.wait)); err != nil {
		return nil, err
	}
	id, err := parseUUID(req.id)
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
			return nil, fail(S300, "the sandbox is being stopped, but nobody waits for it any more")
		}
	}
	return map[string]any{"sandbox_id": b.id, "stopped": true}, nil
}

// markStopped begins to stop a sandbox. It is unknown at once, or, if somebody
// waits, when all of it is gone, and until then nobody can use it.
func (f *Functions) markStopped(id string, wait bool) (*box, <-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.lookup(id)
	if err != nil {
		return nil, nil, err
	}
	b.stopped = true
	if !wait {
		delete(f.boxes, id)
	}
	gone := make(chan struct{})
	f.tasks.Go(func() {
		defer close(gone)
		f.remove(b)
		f.forget(b)
	})
	return b, gone, nil
}

// remove ends a sandbox and waits until nothing is left of it.
func (f *Functions) remove(b *box) {
	err := f.opt.Engine.Stop(context.Background(), b.sandbox.ID())
	if err != nil && sandbar.CodeOf(err) != sandbar.NotFound {
		f.opt.Logger.Error("iii: a sandbox could not be stopped", "sandbox", b.sandbox.ID(), "error", err)
	}
}
