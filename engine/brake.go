package engine

import "sync"

// brake is how a caller ends something at whatever stage it is. Cancel asks
// for an end with grace, Kill for one without. Both may be called at any time,
// often, and by many.
type brake struct {
	soft, hard chan struct{} // closed by Cancel or Kill, and by Kill
	mu         sync.Mutex
	pulled     [2]bool
}

func newBrake() *brake {
	return &brake{soft: make(chan struct{}), hard: make(chan struct{})}
}

func (b *brake) cancel() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pull(0, b.soft)
}

func (b *brake) kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pull(1, b.hard) // first, so that whoever sees soft knows which it was
	b.pull(0, b.soft)
}

// killed reports whether Kill was called.
func (b *brake) killed() bool {
	select {
	case <-b.hard:
		return true
	default:
		return false
	}
}

func (b *brake) pull(i int, c chan struct{}) {
	if !b.pulled[i] {
		b.pulled[i] = true
		close(c)
	}
}
