package engine

import (
	"container/list"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// queue hands out a fixed number of places. Whoever comes while all are taken
// waits in line; whoever comes while the line is full is refused. Places that
// become free go round among the clients that wait, and among the flows of each
// client, so that nobody waits for the whole of another's flood; within a flow
// it is first come, first served.
type queue struct {
	mu         sync.Mutex
	places     int // how many there are
	maxWaiting int // how many may wait
	waiting    int // how many do
	limits     map[string]ClientLimits
	onLeave    func()
	taken      [kinds]int
	clients    map[string]*clientQueue
	turns      list.List // of *share: those with somebody in line, the next first
}

// share is what one client has of the queue.
type clientQueue struct {
	name    string
	limits  ClientLimits
	taken   int // its places
	waiting int // its tickets in line
	flows   map[string]*flow
	turns   list.List     // of *flow: those with somebody in line, the next first
	elem    *list.Element // in queue.rota, nil when nobody of it waits
}

// flow is the line of one connection or the like.
type flow struct {
	client *clientQueue
	name   string
	line   list.List     // of *ticket, the oldest first
	elem   *list.Element // in share.rota
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
	q       *queue
	kind    kind
	granted chan struct{} // closed when the ticket has its place

	// guarded by q.mu
	client *clientQueue  // whose it is, nil while it is reserved
	flow   *flow         // in whose line it is, nil when in none
	elem   *list.Element // its position there
	left   bool
}

// newQueue makes a queue that calls onLeave once for each ticket that has left.
func newQueue(places, longest int, bounds map[string]ClientLimits, onLeave func()) *queue {
	return &queue{places: places, maxWaiting: longest, limits: bounds, onLeave: onLeave, clients: map[string]*clientQueue{}}
}

// bound replaces the bounds of all clients.
func (q *queue) setLimits(bounds map[string]ClientLimits) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.limits = bounds
	for name, s := range q.clients {
		s.limits = bounds[name]
	}
	q.grantWaiting()
}

// shareOf is a client's share. It is called with mu held.
func (q *queue) clientOf(name string) *clientQueue {
	s := q.clients[name]
	if s == nil {
		s = &clientQueue{name: name, limits: q.limits[name], flows: map[string]*flow{}}
		q.clients[name] = s
	}
	return s
}

// full reports whether a client has all the places it may have.
func (s *clientQueue) full() bool {
	return s.limits.MaxSandboxes > 0 && s.taken >= s.limits.MaxSandboxes
}

// enter takes a place or joins the line. It never blocks.
func (q *queue) enter(k kind, c sandbar.Client) (*ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.clientOf(c.Name)
	t := &ticket{q: q, kind: k, granted: make(chan struct{}), client: s}
	switch {
	case q.takenPlaces() < q.places && !s.full():
		// While a place is free nobody waits but for his own share, and then the
		// share is full: leave passes places on.
		q.grant(t)
	case s.limits.MaxQueue > 0 && s.waiting >= s.limits.MaxQueue:
		return nil, s.tooMany()
	case q.waiting < q.maxWaiting+q.taken[reserved]:
		// A reserved place gives way, so that waiting for one is no overload.
		q.join(t, c.Flow)
	default:
		e := sandbar.Errorf(sandbar.Exhausted, "all %d places for sandboxes are taken and %d callers are waiting, which is all that may wait",
			q.places, q.waiting)
		e.Fix = "try again when some have ended, or let the operator raise the number of sandboxes or the length of the queue"
		return nil, e
	}
	return t, nil
}

// tooMany is the refusal of a client that has more in line than it may have.
func (s *clientQueue) tooMany() error {
	e := sandbar.Errorf(sandbar.Exhausted, "client %s has %d sandboxes and %d callers are waiting for one, which is all that it may have",
		sandbar.Quote(s.name, 100), s.taken, s.waiting)
	e.Fix = "try again when some have ended, or let the operator raise max_sandboxes or max_queue of this client"
	e.RetryAfter = time.Second
	return e
}

// join puts a ticket at the end of its flow's line.
func (q *queue) join(t *ticket, name string) {
	s := t.client
	f := s.flows[name]
	if f == nil {
		f = &flow{client: s, name: name}
		f.elem = s.turns.PushBack(f)
		s.flows[name] = f
	}
	if s.elem == nil {
		s.elem = q.turns.PushBack(s)
	}
	t.flow, t.elem = f, f.line.PushBack(t)
	s.waiting++
	q.waiting++
}

// part takes a ticket out of its line.
func (q *queue) removeFromLine(t *ticket) {
	f, s := t.flow, t.client
	f.line.Remove(t.elem)
	t.flow, t.elem = nil, nil
	s.waiting--
	q.waiting--
	if f.line.Len() == 0 {
		s.turns.Remove(f.elem)
		delete(s.flows, f.name)
	}
	if s.waiting == 0 {
		q.turns.Remove(s.elem)
		s.elem = nil
	}
}

// next is whose turn it is; nil if nobody waits whose share is not full.
func (q *queue) next() *ticket {
	for turn := q.turns.Front(); turn != nil; turn = turn.Next() {
		if s := turn.Value.(*clientQueue); !s.full() {
			return s.turns.Front().Value.(*flow).line.Front().Value.(*ticket)
		}
	}
	return nil
}

// pass gives places that are free to those whose turn it is.
func (q *queue) grantWaiting() {
	for q.takenPlaces() < q.places {
		t := q.next()
		if t == nil {
			return
		}
		t.client.turns.MoveToBack(t.flow.elem)
		q.turns.MoveToBack(t.client.elem)
		q.removeFromLine(t)
		q.grant(t)
	}
}

// reserve takes a place that nobody needs at this moment; nil if there is none.
func (q *queue) reserve() *ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.takenPlaces() >= q.places || q.next() != nil {
		return nil
	}
	t := &ticket{q: q, kind: reserved, granted: make(chan struct{})}
	q.taken[reserved]++
	close(t.granted)
	return t
}

// become puts a reserved place to use, unless the client has all it may have.
func (t *ticket) assign(k kind, c sandbar.Client) bool {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	s := t.q.clientOf(c.Name)
	if s.full() {
		return false
	}
	t.q.taken[t.kind]--
	t.kind, t.client = k, s
	t.q.taken[k]++
	s.taken++
	return true
}

// full reports whether a client has all the places it may have.
func (q *queue) full(c sandbar.Client) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.clientOf(c.Name).full()
}

// waits reports whether the ticket has not got its place yet, and would if there
// were one.
func (t *ticket) isWaiting() bool {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	return t.elem != nil && !t.client.full()
}

func (q *queue) takenPlaces() int { return q.taken[oneShot] + q.taken[longLived] + q.taken[reserved] }

func (q *queue) grant(t *ticket) {
	q.taken[t.kind]++
	t.client.taken++
	close(t.granted)
}

// leave gives the place back, or gives up waiting for one. Only the first call
// does anything. A place that becomes free goes to whose turn it is within the
// same critical section, so no wake-up can be lost and nobody overtakes.
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
	if t.elem != nil {
		t.q.removeFromLine(t)
		return true
	}
	t.q.taken[t.kind]--
	if t.client != nil {
		t.client.taken--
	}
	t.q.grantWaiting()
	return true
}

// load returns the places taken by each kind and the length of the line.
func (q *queue) load() (taken [kinds]int, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.taken, q.waiting
}

// needed reports whether somebody waits who would take a place.
func (q *queue) hasWaiting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next() != nil
}
