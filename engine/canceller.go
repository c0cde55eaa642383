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

func (b *canceller) cancel() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.close(0, b.soft)
}

func (b *canceller) kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.close(1, b.hard) // first, so that a receiver from soft can check killed
	b.close(0, b.soft)
}

// killed reports whether kill was called.
func (b *canceller) killed() bool {
	select {
	case <-b.hard:
		return true
	default:
		return false
	}
}

func (b *canceller) close(i int, c chan struct{}) {
	if !b.closed[i] {
		b.closed[i] = true
		close(c)
	}
}
