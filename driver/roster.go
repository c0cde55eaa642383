package driver

import (
	"maps"
	"slices"
	"sync"

	"github.com/sandbar-dev/sandbar"
)

// Roster is the ids of the sandboxes that a Driver has, with which it keeps what
// Create and Close promise: an id names one sandbox at a time, and a driver that
// has been closed makes no more. Drivers embed it or keep it in a field; its zero
// value is empty, and its methods may be called concurrently.
type Registry struct {
	mu     sync.Mutex
	live   map[string]bool
	closed bool
}

// Claim takes an id until Release. Exists: it is taken. Unavailable: the roster
// has been closed.
func (r *Registry) Claim(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return sandbar.Errorf(sandbar.Unavailable, "the driver has been closed")
	case r.live[id]:
		return sandbar.Errorf(sandbar.Exists, "there is a sandbox %s already", id)
	}
	if r.live == nil {
		r.live = map[string]bool{}
	}
	r.live[id] = true
	return nil
}

// Release gives an id back. One that is not taken is no error.
func (r *Registry) Release(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, id)
}

// Has reports whether an id is taken.
func (r *Registry) Has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live[id]
}

// IDs lists what is taken, in order.
func (r *Registry) IDs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.live))
}

// Shut makes every later Claim fail, and reports whether it was the first to do so.
func (r *Registry) Shut() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !r.closed
	r.closed = true
	return first
}
