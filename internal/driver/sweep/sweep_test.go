package sweep

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// An engine answers again after a while, and a creation has left something. Close waits until it
// is removed, which takes a few short pauses, however long the engine did not answer.
func TestCloseAfterSilence(t *testing.T) {
	for _, silence := range []time.Duration{0, 3 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			start, left := time.Now(), 2
			s := New(func(context.Context) (int, error) {
				if time.Since(start) < silence {
					return 0, errors.New("no answer")
				}
				found := left
				left = max(0, left-1)
				return found, nil
			})
			s.Expect(nil)
			time.Sleep(silence + time.Millisecond)
			closed := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if s.Close(ctx) || left > 0 {
				t.Errorf("after %v without an answer, Close left %d", silence, left)
			}
			if took := time.Since(closed); took > (2+cleanSweeps)*firstSweep {
				t.Errorf("after %v without an answer, Close took %v", silence, took)
			}
		})
	}
}

// The engine answers again while Close waits.
func TestCloseDuringSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, silence, left := time.Now(), 7*time.Second, 1
		s := New(func(context.Context) (int, error) {
			if time.Since(start) < silence {
				return 0, errors.New("no answer")
			}
			found := left
			left = 0
			return found, nil
		})
		s.Expect(nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if s.Close(ctx) || left > 0 {
			t.Errorf("Close left %d", left)
		}
	})
}

// The sweeps that count are firstSweep apart, also if Close comes between two of them: what a
// creation leaves soon after Close began is found.
func TestCloseBetweenSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, removed := time.Now(), false
		s := New(func(context.Context) (int, error) {
			if removed || time.Since(start) < 3*firstSweep+firstSweep/2 {
				return 0, nil
			}
			removed = true
			return 1, nil
		})
		s.Expect(nil)
		time.Sleep(2*firstSweep + time.Millisecond) // after the third sweep
		if s.Close(t.Context()) || !removed {
			t.Error("Close left what came late")
		}
	})
}

// Without an answer, Close ends with its context and says that something may be left.
func TestCloseWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(func(context.Context) (int, error) { return 0, errors.New("no answer") })
		s.Expect(nil)
		s.Expect(make(chan struct{}))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		if !s.Close(ctx) {
			t.Error("Close says that nothing is left")
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}
