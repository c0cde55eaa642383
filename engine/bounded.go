package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// The engine's own clocks. They bound what a driver does, so that one that is
// stuck costs an error and not a caller.
const (
	// setupTimeout bounds making a sandbox and starting a program in it.
	setupTimeout = 30 * time.Second
	// destroyTimeout bounds one attempt to destroy a sandbox.
	destroyTimeout = 10 * time.Second
	// patience is how long a driver may take to return after it should have:
	// from a call whose context has ended, and from Wait after a KILL.
	patience = 5 * time.Second
	// killSettle is how long a killed program's end is waited for before its
	// one-shot sandbox is destroyed around it. A driver reports the end of a
	// killed program within it, and with the sandbox intact it can tell more.
	killSettle = 50 * time.Millisecond
)

// Why a bounded call was ended.
var (
	errStopped = errors.New("it was stopped")
	errSlow    = errors.New("it took too long")
	// errPanic is the cause of every error that was a panic.
	errPanic = errors.New("a panic was caught")
)

// bounded runs f with a context that ends after limit or when stop closes, and
// returns what f returns; if f fails after its context has ended, the error is
// errSlow or errStopped. If f has not returned by patience after that end,
// bounded returns without it. On every error, what f returned besides is given
// to drop: at once, or when f returns. A panic of f is an Internal error.
func bounded[T any](limit time.Duration, stop <-chan struct{}, f func(context.Context) (T, error), drop func(T)) (T, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	type answer struct {
		v   T
		err error
	}
	done := make(chan answer, 1)
	go func() {
		var a answer
		a.err = guarded(func() (err error) { a.v, err = f(ctx); return err })
		done <- a
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	finish := func(a answer) (T, error) {
		if a.err == nil {
			return a.v, nil
		}
		if cause := context.Cause(ctx); cause != nil {
			a.err = fmt.Errorf("%w: %w", cause, a.err)
		}
		drop(a.v)
		var zero T
		return zero, a.err
	}
	select {
	case a := <-done:
		return finish(a)
	case <-stop:
		cancel(errStopped)
	case <-timer.C:
		cancel(errSlow)
	}
	timer.Reset(patience)
	select {
	case a := <-done:
		return finish(a)
	case <-timer.C:
		go func() { a := <-done; drop(a.v) }()
		var zero T
		return zero, context.Cause(ctx)
	}
}

// guarded turns a panic of f into an Internal error. A driver's or a caller's
// fault in one execution must not end the others. The panic's own text is kept
// only when it is the runtime's, which quotes no data of a program.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			what := fmt.Sprintf("%T", p)
			if r, ok := p.(runtime.Error); ok {
				what = r.Error()
			}
			err = sandbar.Errorf(sandbar.Internal, "%w (%s)", errPanic, what)
		}
	}()
	return f()
}

// tally counts work under way and tells when there is none.
type tally struct {
	mu    sync.Mutex
	n     int
	waits []chan struct{}
}

func (t *tally) add(d int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n += d; t.n == 0 {
		for _, c := range t.waits {
			close(c)
		}
		t.waits = nil
	}
}

// zero returns a channel that is closed once the count has been zero.
func (t *tally) zero() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := make(chan struct{})
	if t.n == 0 {
		close(c)
	} else {
		t.waits = append(t.waits, c)
	}
	return c
}
