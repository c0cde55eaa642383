// Package sweep removes the resources that failed creations may have left on another machine or
// engine: one that did not answer in time may still create something later.
package sweep

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Sweeper searches for resources that failed creations may have left, as long as there may be
// some. Its methods may be called concurrently.
type Sweeper struct {
	sweep func(context.Context) (found int, err error)

	mu      sync.Mutex
	owed    int // creations with possible leftovers
	closed  bool
	closing chan struct{} // closed by Close
	stop    context.CancelFunc
	done    sync.WaitGroup
	ctx     context.Context
}

const (
	firstSweep = 200 * time.Millisecond
	lastSweep  = 5 * time.Second
	closeSweep = time.Second     // the longest pause while Close waits
	undoBound  = 5 * time.Second // of Undo
	// cleanSweeps is the number of consecutive sweeps that must find nothing. They are at least
	// firstSweep apart, so that an engine that answers again has processed earlier requests.
	cleanSweeps = 3
)

// New returns a Sweeper. sweep removes what belongs to no known sandbox, and returns how much it
// has found.
func New(sweep func(context.Context) (int, error)) *Sweeper {
	s := &Sweeper{sweep: sweep, closing: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Expect records that a creation may have left something. answered is closed when the engine has
// answered it; nil if it has.
func (s *Sweeper) Expect(answered <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.owed++
	s.done.Go(func() { s.run(answered) })
}

// Undo calls remove for a creation that failed, also after the end of ctx. answered is closed when
// the engine has answered the creation. If it has not, or if remove fails or takes longer than
// undoBound, it returns why, and the sweeper does the rest.
func (s *Sweeper) Undo(ctx context.Context, answered <-chan struct{}, remove func(context.Context) error) error {
	err := errUnanswered
	select {
	case <-answered:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBound)
		defer cancel()
		err = remove(ctx)
	default:
	}
	if err != nil {
		s.Expect(answered)
	}
	return err
}

var errUnanswered = errors.New("the creation has not been answered")

// run sweeps until nothing is found any more.
func (s *Sweeper) run(answered <-chan struct{}) {
	if answered != nil {
		select {
		case <-answered:
		case <-s.ctx.Done():
			return
		}
	}
	closing, longest := s.closing, lastSweep
	clean := 0
	for pause := firstSweep; clean < cleanSweeps; {
		switch found, err := s.sweep(s.ctx); {
		case err != nil:
			clean, pause = 0, min(2*pause, longest)
		case found > 0:
			clean, pause = 0, firstSweep
		default:
			clean, pause = clean+1, firstSweep
		}
		select {
		case <-time.After(pause):
		case <-closing:
			// Close waits. The pause was cut short, so earlier sweeps do not count.
			closing, longest = nil, closeSweep
			clean, pause = 0, firstSweep
		case <-s.ctx.Done():
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owed--
}

// Close continues until ctx ends, then stops, and reports whether something may be left.
func (s *Sweeper) Close(ctx context.Context) (owed bool) {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, s.stop)
	s.done.Wait()
	stop()
	s.stop()
	return s.Owes()
}

// Owes reports whether a creation may have left something.
func (s *Sweeper) Owes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owed > 0
}
