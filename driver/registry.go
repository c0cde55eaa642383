package driver

import (
	"maps"
	"slices"
	"sync"

	"github.com/sandbar-dev/sandbar"
)

// Registry holds the ids of a driver's sandboxes. With it a driver keeps what Create and Close
// promise: an id names one sandbox at a time, and a closed driver creates no more. Drivers embed it
// or have it in a field. Its zero value is empty. Its methods may be called concurrently.
type Registry struct {
	mu     sync.Mutex
	live   map[string]bool
	closed bool
}

// Claim takes an id until Release. Errors: Exists if the id is taken, Unavailable after Shut.
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

// Release frees an id. An id that is not taken is no error.
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

// IDs returns the taken ids in order.
func (r *Registry) IDs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.live))
}

// Shut makes every later Claim fail. It reports whether this is the first call.
func (r *Registry) Shut() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !r.closed
	r.closed = true
	return first
}
