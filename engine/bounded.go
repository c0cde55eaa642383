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

// The engine's own time limits. They bound every call of a driver, so that a driver that hangs
// causes an error and does not block the caller.
const (
	// setupTimeout bounds making a sandbox and starting a program in it, unless the driver has a bound
	// of its own; see Engine.setupTimeout.
	setupTimeout = 30 * time.Second
	// destroyTimeout bounds one attempt to destroy a sandbox.
	destroyTimeout = 10 * time.Second
	// driverGrace is how long a driver may take to return after it should have returned: from a
	// call whose context has ended, and from Wait after KILL.
	driverGrace = 5 * time.Second
	// killSettle is how long the engine waits for the end of a killed program before it destroys
	// the one-shot sandbox. A driver normally reports the end of a killed program within this time,
	// and its report has more details while the sandbox exists.
	killSettle = 50 * time.Millisecond
)

// The causes for which bounded ends a call.
var (
	errStopped = errors.New("it was stopped")
	errSlow    = errors.New("it took longer")
	// errPanic is the cause of every error that catchPanic makes.
	errPanic = errors.New("a panic was caught")
)

// setupTimeout returns the bound of making a sandbox of a driver and starting a program in it.
func (e *Engine) setupTimeout(driver string) time.Duration {
	if b, err := e.backend(driver); err == nil && b.caps.Setup > 0 {
		return b.caps.Setup
	}
	return setupTimeout
}

// bounded runs f with a context that ends after limit or when stop closes, and returns the results
// of f. If f fails after its context has ended, the error wraps errSlow or errStopped. If f has not
// returned driverGrace after that end, bounded returns without it. On every error bounded passes
// the value of f to drop: at once, or when f returns. A panic of f is an Internal error.
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
		a.err = catchPanic(func() (err error) { a.v, err = f(ctx); return err })
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
		cancel(fmt.Errorf("%w than %v", errSlow, limit))
	}
	timer.Reset(driverGrace)
	select {
	case a := <-done:
		return finish(a)
	case <-timer.C:
		go func() { a := <-done; drop(a.v) }()
		var zero T
		return zero, context.Cause(ctx)
	}
}

// catchPanic turns a panic of f into an Internal error, so that a fault of a driver or a caller in
// one execution does not end the others. It keeps the panic's text only if the Go runtime made it:
// such a text quotes no data of a program.
func catchPanic(f func() error) (err error) {
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

// workCounter counts work in progress. zero reports when the count is 0.
type workCounter struct {
	mu    sync.Mutex
	n     int
	waits []chan struct{}
}

func (t *workCounter) add(d int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n += d; t.n == 0 {
		for _, c := range t.waits {
			close(c)
		}
		t.waits = nil
	}
}

func (t *workCounter) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// zero returns a channel that is closed once the count has been zero.
func (t *workCounter) zero() <-chan struct{} {
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
