package scale

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// cluster models what a pod waits for: the API server, whose writes go to etcd one after the other,
// the scheduler, and the kubelet of its node.
type cluster struct {
	api, scheduler line
	nodes          []line // each starts pods one after the other
	start, end     time.Duration
	over           atomic.Bool // pods start and end at once

	mu   sync.Mutex
	next int // node
}

// The parameters of the model. docs/scale.md says where they come from.
const (
	// apiWrites and scheduled are per second.
	apiWrites = 3000
	scheduled = 300
	// nodeStarts is the number of pods that a node starts per second, if it starts many. One pod on an
	// idle node takes podStart from its binding until it is ready, and podEnd from its deletion until
	// the kubelet has confirmed its end.
	nodeStarts = 4
	podStart   = 450 * time.Millisecond
	podEnd     = time.Second
	// startWrites and endWrites are the writes to the API server from a pod's creation to its
	// readiness and from its deletion to its end, by all parts of the cluster: creation, binding and
	// three states; deletion, one state and the end. One each is the daemon's own.
	startWrites = 5
	endWrites   = 3
	// connect is the time from a ready pod until its agent has its plan.
	connect = 15 * time.Millisecond
)

func newCluster(nodes int) *cluster {
	c := &cluster{start: podStart, end: podEnd, nodes: make([]line, nodes)}
	c.api.each, c.scheduler.each = time.Second/apiWrites, time.Second/scheduled
	for i := range c.nodes {
		c.nodes[i].each = time.Second / nodeStarts
	}
	return c
}

// startPod returns when a pod is ready and its agent connected.
func (c *cluster) startPod(context.Context) error {
	if c.over.Load() {
		return nil
	}
	c.api.pass()
	c.scheduler.pass()
	c.api.pass() // the binding
	c.mu.Lock()
	node := &c.nodes[c.next%len(c.nodes)]
	c.next++
	c.mu.Unlock()
	node.pass()
	time.Sleep(c.start - node.each)
	for range startWrites - 2 {
		c.api.pass()
	}
	time.Sleep(connect)
	return nil
}

// endPod returns when the kubelet has confirmed the end of a pod.
func (c *cluster) endPod(context.Context) error {
	if c.over.Load() {
		return nil
	}
	c.api.pass()
	time.Sleep(c.end)
	for range endWrites - 1 {
		c.api.pass()
	}
	return nil
}

// line is a part of the cluster that serves one after the other.
type line struct {
	each time.Duration

	mu     sync.Mutex
	free   time.Time // when it has served all that wait
	served int
}

// pass waits until this call is served.
func (l *line) pass() {
	l.mu.Lock()
	l.free = later(l.free, time.Now()).Add(l.each)
	l.served++
	at := l.free
	l.mu.Unlock()
	time.Sleep(time.Until(at))
}

// count returns the number of served calls.
func (l *line) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.served
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
