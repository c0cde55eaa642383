package engine

import "sync"

// brake is how a caller ends something at whatever stage it is. Cancel asks
// for an end with grace, Kill for one without. Both may be called at any time,
// often, and by many.
type canceller struct {
	soft, hard chan struct{} // closed by Cancel or Kill, and by Kill
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
	b.close(1, b.hard) // first, so that whoever sees soft knows which it was
	b.close(0, b.soft)
}

// killed reports whether Kill was called.
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
