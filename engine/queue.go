package engine

import (
	"container/list"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// queue hands out a fixed number of slots. If all are taken, requests wait; if too many wait,
// further requests are refused. A freed slot goes to the waiting clients in turn (round-robin), and
// within a client to its flows in turn, so that no client waits behind all requests of another.
// Within a flow the order is first come, first served.
type queue struct {
	mu         sync.Mutex
	slots      int // total number of slots
	maxWaiting int // how many requests may wait
	waiting    int // how many requests wait
	limits     map[string]ClientLimits
	quotas     map[string]TenantLimits
	onLeave    func()
	taken      [kinds]int
	clients    map[party]*clientQueue
	turns      list.List // of *clientQueue: clients with waiting requests, the next first
}

// clientQueue is the state of one client, or of one tenant, in the queue.
type clientQueue struct {
	party
	limits   ClientLimits
	quota    TenantLimits
	use      usage // of tickets with a slot and of waiting ones, and of paused sandboxes
	taken    int   // slots that it holds
	oneShots int   // those of executions
	waiting  int   // its waiting tickets
	deciding int   // requests for which other engines are asked
	flows    map[string]*flow
	turns    list.List     // of *flow: flows with waiting tickets, the next first
	elem     *list.Element // in queue.turns; nil if no ticket waits
}

// flow is the waiting line of one flow of a client; see sandbar.Client.
type flow struct {
	client *clientQueue
	name   string
	line   list.List     // of *ticket, the oldest first
	elem   *list.Element // in clientQueue.turns
}

// kind is the use of a slot. The queue counts slots by kind.
type kind int

const (
	oneShot kind = iota
	longLived
	reserved // for a prestarted sandbox: being made, ready, or being removed unused
	kinds
)

// ticket is a slot or a position in the waiting line. It ends with leave in both cases.
type ticket struct {
	q       *queue
	kind    kind
	granted chan struct{} // closed when the ticket has its slot
	claim   claim         // guarded by q.mu
	counted bool          // the claim is part of the client's usage; guarded by q.mu

	// Guarded by q.mu.
	client *clientQueue  // nil while the kind is reserved
	flow   *flow         // nil if the ticket does not wait
	elem   *list.Element // in flow.line
	left   bool
}

// newQueue makes a queue that calls onLeave once for each ticket that has left.
func newQueue(slots, maxWaiting int, limits map[string]ClientLimits, onLeave func()) *queue {
	return &queue{slots: slots, maxWaiting: maxWaiting, limits: limits, onLeave: onLeave, clients: map[party]*clientQueue{}}
}

// setLimits replaces the limits of all clients and the quotas of all tenants.
func (q *queue) setLimits(limits map[string]ClientLimits, quotas map[string]TenantLimits) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.limits, q.quotas = limits, quotas
	for _, s := range q.clients {
		s.setLimits(q)
	}
	q.grantWaiting()
}

// partyOf returns the state of a client or of its tenant. q.mu is held.
func (q *queue) partyOf(c sandbar.Client) *clientQueue {
	p := partyOf(c)
	s := q.clients[p]
	if s == nil {
		s = &clientQueue{party: p, flows: map[string]*flow{}}
		s.setLimits(q)
		q.clients[p] = s
	}
	return s
}

// setLimits takes over the limits of the queue. q.mu is held.
func (s *clientQueue) setLimits(q *queue) {
	if s.tenant != "" {
		s.quota = q.quotas[s.tenant]
		return
	}
	s.limits = q.limits[s.name]
}

// full reports whether the client is at its limit of slots.
func (s *clientQueue) full() bool {
	return s.limits.MaxSandboxes > 0 && s.taken >= s.limits.MaxSandboxes
}

// enter takes a slot or a position in the waiting line, and what the sandbox takes of the quotas.
// It never blocks.
func (q *queue) enter(k kind, c sandbar.Client, d claim) (*ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.partyOf(c)
	if err := s.admit(d); err != nil {
		return nil, err
	}
	t := &ticket{q: q, kind: k, granted: make(chan struct{}), client: s, claim: d}
	switch {
	case q.takenSlots() < q.slots && !s.full():
		// If a slot is free, tickets wait only because their client is at its limit. Their turn
		// comes when that client frees a slot.
		q.grant(t)
	case s.limits.MaxQueue > 0 && s.waiting >= s.limits.MaxQueue:
		return nil, s.tooMany()
	case q.waiting < q.maxWaiting+q.taken[reserved]:
		// A reserved slot is given up on demand, so a request that waits for one is no overload.
		q.join(t, flowOf(c))
	default:
		e := sandbar.Errorf(sandbar.Exhausted, "all %d slots for sandboxes are taken and the queue is full with %d waiting requests",
			q.slots, q.waiting)
		e.Fix = "try again when some have ended, or let the operator raise the number of sandboxes or the length of the queue"
		return nil, e
	}
	s.count(d)
	t.counted = true
	return t, nil
}

// tooMany is the error of a client with too many waiting requests.
func (s *clientQueue) tooMany() error {
	e := sandbar.Errorf(sandbar.Exhausted, "%s is at its limit with %d sandboxes and %d waiting requests", s.party, s.taken, s.waiting)
	e.Fix = "try again when some have ended, or let the operator raise max_sandboxes or max_queue of this client"
	e.RetryAfter = time.Second
	return e
}

// join appends a ticket to its flow's line.
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

// removeFromLine removes a ticket from its flow's line.
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

// next returns the ticket whose turn it is; nil if all waiting tickets belong to clients at their
// limits.
func (q *queue) next() *ticket {
	for turn := q.turns.Front(); turn != nil; turn = turn.Next() {
		if s := turn.Value.(*clientQueue); !s.full() {
			return s.turns.Front().Value.(*flow).line.Front().Value.(*ticket)
		}
	}
	return nil
}

// grantWaiting gives free slots to waiting tickets.
func (q *queue) grantWaiting() {
	for q.takenSlots() < q.slots {
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

// reserve takes a slot that no waiting ticket can use; nil if there is none.
func (q *queue) reserve() *ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.takenSlots() >= q.slots || q.next() != nil {
		return nil
	}
	t := &ticket{q: q, kind: reserved, granted: make(chan struct{})}
	q.taken[reserved]++
	close(t.granted)
	return t
}

// assign gives a reserved slot to a client. It returns false if the client is at its limit, or its
// tenant at a quota.
func (t *ticket) assign(k kind, c sandbar.Client, d claim) bool {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	s := t.q.partyOf(c)
	if s.full() || s.admit(d) != nil {
		return false
	}
	t.q.taken[t.kind]--
	t.kind, t.client, t.claim = k, s, d
	s.count(d)
	t.counted = true
	t.q.take(t)
	return true
}

// full reports whether a client is at its limit of slots.
func (q *queue) full(c sandbar.Client) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.partyOf(c).full()
}

// isWaiting reports whether the ticket waits for a slot and its client is below its limit.
func (t *ticket) isWaiting() bool {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	return t.elem != nil && !t.client.full()
}

func (q *queue) takenSlots() int { return q.taken[oneShot] + q.taken[longLived] + q.taken[reserved] }

func (q *queue) grant(t *ticket) {
	q.take(t)
	close(t.granted)
}

// take counts the slot of a ticket.
func (q *queue) take(t *ticket) {
	q.taken[t.kind]++
	t.client.taken++
	if t.kind == oneShot {
		t.client.oneShots++
	}
}

// leave frees the slot or leaves the waiting line. Only the first call has an effect. A freed slot
// goes to the next ticket within the same critical section, so no wake-up is lost and no later
// request overtakes.
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
	t.free()
	if t.elem != nil {
		t.q.removeFromLine(t)
		return true
	}
	t.q.taken[t.kind]--
	if t.client != nil {
		t.client.taken--
		if t.kind == oneShot {
			t.client.oneShots--
		}
	}
	t.q.grantWaiting()
	return true
}

// load returns the number of slots of each kind and of waiting tickets.
func (q *queue) load() (taken [kinds]int, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.taken, q.waiting
}

// hasWaiting reports whether a ticket waits that could take a slot.
func (q *queue) hasWaiting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next() != nil
}
