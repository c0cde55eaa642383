package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sandbar-dev/sandbar"
)

const (
	// lastWait is how long Shutdown waits for blocked drivers and sinks after it has killed
	// everything. As long as some of the work ends, it waits again, at most lastWaits times.
	lastWait  = 15 * time.Second
	lastWaits = 2
	// namedLeft is how many of the sandboxes that are left the error of Shutdown names.
	namedLeft = 10
)

// Shutdown refuses new work, cancels waiting executions, lets running executions end until ctx
// ends, then cancels them, stops all sandboxes and closes the drivers. After it returns nothing is
// left, or its error names sandboxes that could not be removed. It is idempotent and may be
// called concurrently: all calls return the same error at the same time, and the first ctx to end
// cancels the running executions of all calls.
func (e *Engine) Shutdown(ctx context.Context) error {
	e.mu.Lock()
	first := !e.closing
	e.closing = true
	e.mu.Unlock()
	if first {
		close(e.draining)
		e.refuseQueue()
		go e.shutdown()
	}
	select {
	case <-e.shutdownDone:
	case <-ctx.Done():
		e.forced.Do(func() { close(e.force) })
		<-e.shutdownDone
	}
	return e.shutdownErr
}

func (e *Engine) isClosing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closing
}

// refuseQueue ends the executions without a slot. Those that wait in Run see draining.
func (e *Engine) refuseQueue() {
	for _, x := range e.underWay() {
		x.withdraw(unavailable())
	}
}

func (e *Engine) underWay() []*Execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.executions))
}

// shutdown does the work of Shutdown. It runs once.
func (e *Engine) shutdown() {
	began := time.Now()
	select {
	case <-e.running.zero():
	case <-e.force:
		e.log.Warn("shutdown: time is up, ending what still runs", "executions", len(e.underWay()))
	}
	e.endAll()
	e.awaitIdle()
	if e.pools != nil {
		<-e.pools.stopped
	}
	err := e.closeDrivers()
	e.mu.Lock()
	left := len(e.leftover)
	if left > 0 {
		err = &sandbar.Error{Code: sandbar.Internal, Err: err,
			Message: fmt.Sprintf("%d sandboxes could not be removed, such as %v", left, e.leftover[:min(left, namedLeft)]),
			Fix:     "run `sandbar gc`"}
	}
	e.shutdownErr = err
	e.mu.Unlock()
	e.log.Info("shutdown complete", "took", time.Since(began), "leftover", left)
	close(e.shutdownDone)
}

// endAll cancels the running executions and ends all sandboxes.
func (e *Engine) endAll() {
	e.forced.Do(func() { close(e.force) })
	for _, x := range e.underWay() {
		x.canceller.cancel()
	}
	e.mu.Lock()
	all := slices.Collect(maps.Values(e.sandboxes))
	e.mu.Unlock()
	for _, s := range all {
		s.end(EndedShutdown)
	}
}

// awaitIdle waits until no work is left, and at last gives up.
func (e *Engine) awaitIdle() {
	nothing := e.work.zero()
	left := e.work.count()
	for range lastWaits {
		select {
		case <-nothing:
			return
		case <-time.After(max(e.cfg.Grace, 0) + lastWait):
		}
		before := left
		if left = e.work.count(); left >= before {
			break
		}
	}
	close(e.giveUp)
	select {
	case <-nothing:
	case <-time.After(destroyTimeout + driverGrace):
		e.log.Error("shutdown: a driver or a receiver of output does not return")
	}
}
