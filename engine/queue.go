package engine

import (
	"container/list"
	"sync"

	"github.com/sandbar-dev/sandbar"
)

// queue hands out a fixed number of places, first come, first served. Whoever
// comes while all are taken waits in line; whoever comes while the line is full
// is refused.
type queue struct {
	mu      sync.Mutex
	places  int // how many there are
	longest int // how many may wait
	onLeave func()
	taken   [kinds]int
	line    list.List // of *ticket, the oldest first
}

// kind tells what a place is for, to count them apart.
type kind int

const (
	oneShot kind = iota
	longLived
	reserved // for a sandbox that is kept ready, is being made so, or is on its way out unused
	kinds
)

// ticket is a place, or a claim to one. It ends with leave, whatever it was.
type ticket struct {
	q     *queue
	kind  kind
	ready chan struct{} // closed when the ticket has its place

	// guarded by q.mu
	waiting *list.Element // its position in line, nil when not in line
	left    bool
}

// newQueue makes a queue that calls onLeave once for each ticket that has left.
func newQueue(places, longest int, onLeave func()) *queue {
	return &queue{places: places, longest: longest, onLeave: onLeave}
}

// enter takes a place or joins the line. It never blocks.
func (q *queue) enter(k kind) (*ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := &ticket{q: q, kind: k, ready: make(chan struct{})}
	switch {
	case q.busy() < q.places:
		// A place is free only when nobody waits: leave passes places on.
		q.grant(t)
	case q.line.Len() < q.longest+q.taken[reserved]:
		// A reserved place gives way, so that waiting for one is no overload.
		t.waiting = q.line.PushBack(t)
	default:
		e := sandbar.Errorf(sandbar.Exhausted, "all %d places for sandboxes are taken and %d callers are waiting, which is all that may wait",
			q.places, q.line.Len())
		e.Fix = "try again when some have ended, or let the operator raise the number of sandboxes or the length of the queue"
		return nil, e
	}
	return t, nil
}

// reserve takes a place that nobody needs at this moment; nil if there is none.
func (q *queue) reserve() *ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy() >= q.places || q.line.Len() > 0 {
		return nil
	}
	t := &ticket{q: q, kind: reserved, ready: make(chan struct{})}
	q.grant(t)
	return t
}

// become puts a reserved place to use.
func (t *ticket) become(k kind) {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	t.q.taken[t.kind]--
	t.kind = k
	t.q.taken[k]++
}

// waits reports whether the ticket has not got its place yet.
func (t *ticket) waits() bool {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	return t.waiting != nil
}

func (q *queue) busy() int { return q.taken[oneShot] + q.taken[longLived] + q.taken[reserved] }

func (q *queue) grant(t *ticket) {
	q.taken[t.kind]++
	t.waiting = nil
	close(t.ready)
}

// leave gives the place back, or gives up waiting for one. Only the first call
// does anything. A place that becomes free goes to the oldest in line within
// the same critical section, so no wake-up can be lost and nobody overtakes.
func (t *ticket) leave() {
	if t.withdraw() {
		t.q.onLeave()
	}
}

func (t *ticket) withdraw() bool {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	if t.left {
		return false
	}
	t.left = true
	if t.waiting != nil {
		t.q.line.Remove(t.waiting)
		t.waiting = nil
		return true
	}
	t.q.taken[t.kind]--
	if first := t.q.line.Front(); first != nil {
		t.q.grant(t.q.line.Remove(first).(*ticket))
	}
	return true
}

// load returns the places taken by each kind and the length of the line.
func (q *queue) load() (taken [kinds]int, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.taken, q.line.Len()
}
