package docker

import (
	"context"
	"sync"
	"time"
)

// sweeper searches for containers that failed creations may have left, as long as there may be
// some: an engine that did not answer in time may still create one later.
type sweeper struct {
	sweep func(context.Context) (found int, err error)

	mu     sync.Mutex
	owed   int // creations with possible leftovers
	closed bool
	stop   context.CancelFunc
	done   sync.WaitGroup
	ctx    context.Context
}

const (
	firstSweep = 200 * time.Millisecond
	lastSweep  = 5 * time.Second
	// cleanSweeps is the number of consecutive sweeps that must find nothing. They are at least
	// firstSweep apart, so that an engine that answers again has processed earlier requests.
	cleanSweeps = 3
)

func newSweeper(sweep func(context.Context) (int, error)) *sweeper {
	s := &sweeper{sweep: sweep}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// expect records that a creation may have left something. answered is closed when the engine has
// answered it.
func (s *sweeper) expect(answered <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.owed++
	s.done.Go(func() { s.run(answered) })
}

// run sweeps until nothing is found any more.
func (s *sweeper) run(answered <-chan struct{}) {
	if answered != nil {
		select {
		case <-answered:
		case <-s.ctx.Done():
			return
		}
	}
	clean := 0
	for pause := firstSweep; clean < cleanSweeps; {
		found, err := s.sweep(s.ctx)
		if err == nil && found == 0 {
			clean++
			pause = firstSweep
		} else {
			clean = 0
			pause = min(2*pause, lastSweep)
		}
		select {
		case <-time.After(pause):
		case <-s.ctx.Done():
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owed--
}

// close continues until ctx ends, then stops, and reports whether something may be left.
func (s *sweeper) close(ctx context.Context) (owed bool) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, s.stop)
	s.done.Wait()
	stop()
	s.stop()
	return s.owed > 0
}

// sweep removes containers with this driver's label that belong to no known sandbox.
func (d *Driver) sweep(ctx context.Context) (found int, err error) {
	list, err := d.engine.labelled(ctx, labelOwner+"="+d.owner)
	if err != nil {
		return 0, err
	}
	for _, c := range list {
		if d.registry.Has(c.Labels[labelSandbox]) {
			continue
		}
		found++
		if err := d.engine.remove(ctx, c.ID); err != nil {
			return found, err
		}
	}
	return found, nil
}
