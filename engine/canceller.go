package engine

import "sync"

// canceller lets a caller end an execution at any stage. cancel requests an end with a grace
// period, kill an end without one. Both may be called at any time, repeatedly and concurrently.
type canceller struct {
	soft, hard chan struct{} // soft is closed by cancel and kill, hard by kill only
	mu         sync.Mutex
	closed     [2]bool
}

func newCanceller() *canceller {
	return &canceller{soft: make(chan struct{}), hard: make(chan struct{})}
}

func (c *canceller) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.close(0, c.soft)
}

func (c *canceller) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.close(1, c.hard) // first, so that a receiver from soft can check killed
	c.close(0, c.soft)
}

// killed reports whether kill was called.
func (c *canceller) killed() bool {
	select {
	case <-c.hard:
		return true
	default:
		return false
	}
}

func (c *canceller) close(i int, ch chan struct{}) {
	if !c.closed[i] {
		c.closed[i] = true
		close(ch)
	}
}
