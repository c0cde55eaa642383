package engine

import (
	"context"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// Removal is retried with a growing delay until it succeeds: a sandbox that still exists uses
// resources and keeps its slot.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
	// errorAttempt is the number of failed attempts after which the failure is logged as an error
	// and counted in Stats.Removing.
	errorAttempt = 3
)

// removable is a sandbox that can be destroyed: a driver.Sandbox or a driver.Single.
type removable interface {
	Destroy(ctx context.Context) error
}

// remove destroys a sandbox. It returns when nothing of it is left, or when Shutdown gives up. It
// calls tried after the first attempt.
func (e *Engine) remove(id sandbar.ID, sb removable, tried func()) {
	began := time.Now()
	attempt := destroyer(sb)
	pause := firstPause
	for n := 1; ; n++ {
		err := attempt()
		if n == 1 {
			tried()
		}
		if err == nil {
			e.removed(id, n, time.Since(began))
			return
		}
		e.removalFailed(id, n, err)
		select {
		case <-time.After(pause):
			pause = min(2*pause, lastPause)
		case <-e.giveUp:
			e.abandonRemoval(id, n)
			return
		}
	}
}

// destroyer returns a function that makes one attempt to destroy sb. An attempt has a time limit
// and no caller that could cancel it. It fails while an earlier attempt has not returned, so that a
// driver that hangs costs one goroutine.
func destroyer(sb removable) func() error {
	busy := make(chan struct{}, 1)
	return func() error {
		_, err := bounded(destroyTimeout, nil, func(ctx context.Context) (struct{}, error) {
			select {
			case busy <- struct{}{}:
				defer func() { <-busy }()
				return struct{}{}, sb.Destroy(ctx)
			default:
				return struct{}{}, sandbar.Errorf(sandbar.Internal, "an earlier attempt has not returned")
			}
		}, func(struct{}) {})
		return err
	}
}

func (e *Engine) removed(id sandbar.ID, attempts int, took time.Duration) {
	if attempts > errorAttempt {
		e.mu.Lock()
		e.removing--
		e.mu.Unlock()
	}
	if attempts > 1 {
		e.log.Warn("sandbox removed after failed attempts", "sandbox", id, "attempts", attempts, "took", took)
	}
}

func (e *Engine) removalFailed(id sandbar.ID, attempts int, err error) {
	switch {
	case attempts < errorAttempt:
		e.log.Warn("sandbox not removed, will try again", "sandbox", id, "attempts", attempts, "error", err)
	case attempts == errorAttempt:
		e.mu.Lock()
		e.removing++
		e.mu.Unlock()
		e.log.Error("sandbox not removed; it keeps its slot, and removal is retried",
			"sandbox", id, "attempts", attempts, "error", err)
	}
}

func (e *Engine) abandonRemoval(id sandbar.ID, attempts int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if attempts >= errorAttempt {
		e.removing--
	}
	e.leftover = append(e.leftover, id)
}
