package engine_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// newEngine is an engine that the test shuts down itself.
func newEngine(t *testing.T, d *faulty.Driver, change func(*engine.Config)) *engine.Engine {
	t.Helper()
	cfg := engine.Config{Driver: d}
	if change != nil {
		change(&cfg)
	}
	e, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestShutdownOfAnIdleEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		e := newEngine(t, d, nil)
		for range 3 {
			if err := e.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if n := d.Counts().Closed; n != 1 {
			t.Errorf("the driver was closed %d times", n)
		}
		_, err := e.Admit(script(""))
		wantCode(t, err, sandbar.Unavailable)
		_, err = e.Create(t.Context(), sandbar.Spec{})
		wantCode(t, err, sandbar.Unavailable)
		_, err = e.Run(t.Context(), script(""), nil)
		wantCode(t, err, sandbar.Unavailable)
	})
}

// Running executions may end; waiting and later ones are refused; idle sandboxes are stopped.
func TestGracefulShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		e := newEngine(t, d, small(3, 10))
		s, err := e.Create(t.Context(), sandbar.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.Start(t.Context(), cmd("sleep", "100h"), nil, none)
		if err != nil {
			t.Fatal(err)
		}
		ex := exec(s, cmd("sleep", "10s", ";", "exit", "5"))
		admit := func() *engine.Execution {
			x, err := e.Admit(command("sleep", "20s"))
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		running := run(admit(), nil)
		unrun := admit() // has a slot, and Run is not called
		waiting := run(admit(), nil)
		unrunWaiting := admit()
		createErr := make(chan error, 1)
		go func() { _, err := e.Create(context.Background(), sandbar.Spec{}); createErr <- err }()
		time.Sleep(time.Second)

		down := make(chan error, 1)
		began := time.Now()
		go func() { down <- e.Shutdown(context.Background()) }()
		synctest.Wait()
		wantCode(t, (<-waiting).err, sandbar.Unavailable)
		wantCode(t, <-createErr, sandbar.Unavailable)
		for _, x := range []*engine.Execution{unrun, unrunWaiting} {
			_, err = x.Run(nil)
			wantCode(t, err, sandbar.Unavailable)
		}
		_, err = s.Exec(t.Context(), cmd("exit", "0"), nil, none, nil)
		wantCode(t, err, sandbar.Unavailable)
		_, err = s.Start(t.Context(), cmd("exit", "0"), nil, none)
		wantCode(t, err, sandbar.Unavailable)
		(<-ex).want(t, sandbar.Exited)
		(<-running).want(t, sandbar.Exited)
		if err := <-down; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 19*time.Second {
			t.Errorf("took %v", took)
		}
		got, err := p.Wait(t.Context())
		answer{got, err}.want(t, sandbar.Cancelled)
		if err := d.Leaks(); err != nil {
			t.Error(err)
		}
	})
}

// After ctx has ended, executions in every stage are ended.
func TestShutdownWhoseTimeIsUp(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(*faulty.Driver)
		code  string
		want  func(*testing.T, answer)
		took  time.Duration
	}{
		{"running", nil, "sleep 1h", func(t *testing.T, a answer) { a.want(t, sandbar.Cancelled) }, 0},
		{"ignoring TERM", nil, "ignore-term\nsleep 1h", func(t *testing.T, a answer) { a.want(t, sandbar.Cancelled) }, 500 * time.Millisecond},
		{"creating", func(d *faulty.Driver) { d.OnCreate = faulty.Stall(nil) }, "", func(t *testing.T, a answer) { wantCode(t, a.err, sandbar.Unavailable) }, 0},
		{"starting", func(d *faulty.Driver) { d.OnStart = faulty.Stall(nil) }, "", func(t *testing.T, a answer) { wantCode(t, a.err, sandbar.Unavailable) }, 0},
		{"being removed", func(d *faulty.Driver) { d.OnDestroy = faulty.Slow(3 * time.Second) }, "", func(t *testing.T, a answer) { a.want(t, sandbar.Exited) }, 2 * time.Second},
		{"resisting removal", func(d *faulty.Driver) { d.OnDestroy = faulty.FailFirst(3, errors.New("busy")) }, "sleep 1h", func(t *testing.T, a answer) { a.want(t, sandbar.Cancelled) }, 350 * time.Millisecond},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			d := faulty.New()
			if c.setup != nil {
				c.setup(d)
			}
			e := newEngine(t, d, nil)
			x, err := e.Admit(script(c.code))
			if err != nil {
				t.Fatal(err)
			}
			a := run(x, nil)
			time.Sleep(time.Second + time.Millisecond) // a removal begins after a millisecond
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if c.name == "being removed" {
				cancel()
			}
			began := time.Now()
			if err := e.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			want := c.took
			if c.name != "being removed" {
				want += 10 * time.Second
			}
			if took := time.Since(began); took != want {
				t.Errorf("took %v, want %v", took, want)
			}
			c.want(t, <-a)
			if err := d.Leaks(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The ctx of a second call can end first.
func TestSecondShutdownHurriesTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		e := newEngine(t, d, nil)
		x, err := e.Admit(script("sleep 5m"))
		if err != nil {
			t.Fatal(err)
		}
		a := run(x, nil)
		synctest.Wait()
		var all sync.WaitGroup
		began := time.Now()
		for _, patience := range []time.Duration{time.Hour, 7 * time.Second, time.Minute} {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				if err := e.Shutdown(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("took %v", took)
		}
		(<-a).want(t, sandbar.Cancelled)
	})
}

// A sandbox that cannot be removed does not block Shutdown for ever, and the error names it.
func TestShutdownNamesWhatIsLeft(t *testing.T) {
	for _, c := range []struct {
		name string
		hook func(<-chan struct{}) faulty.Hook
	}{
		{"fails", func(c <-chan struct{}) faulty.Hook {
			return func(context.Context) error {
				select {
				case <-c:
					return nil
				default:
					return errors.New("no")
				}
			}
		}},
		{"stuck", faulty.Block},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			d, release := faulty.New(), make(chan struct{})
			d.OnDestroy = c.hook(release)
			e := newEngine(t, d, nil)
			s, err := e.Create(t.Context(), sandbar.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			err = e.Shutdown(t.Context())
			wantCode(t, err, sandbar.Internal)
			if err == nil || !strings.Contains(err.Error(), string(s.ID())) {
				t.Errorf("%v does not name the sandbox", err)
			}
			if took := time.Since(began); took > 40*time.Second {
				t.Errorf("took %v", took)
			}
			if again := e.Shutdown(t.Context()); again != err {
				t.Errorf("the second call said %v", again)
			}
			close(release) // so that the bubble can end
			if c.name == "fails" {
				d.OnDestroy = nil
			}
		})
	}
}

// A sink that never returns does not block Shutdown.
func TestShutdownWithABlockedSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		e := newEngine(t, d, nil)
		x, err := e.Admit(script("print stdout x\nsleep 1h"))
		if err != nil {
			t.Fatal(err)
		}
		sink := newRecorder()
		sink.hold = make(chan struct{})
		a := run(x, sink)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := d.Leaks(); err != nil {
			t.Error(err)
		}
		close(sink.hold)
		(<-a).want(t, sandbar.Cancelled)
	})
}

// Shutdown waits for removals that take long together, as long as some of them end, and its error
// names some of those that do not.
func TestShutdownRemovesMany(t *testing.T) {
	for name, each := range map[string]time.Duration{"in time": time.Second, "never": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const many = 25
				d := faulty.New()
				turn := make(chan struct{}, 1)
				var calls atomic.Int64
				d.OnDestroy = func(context.Context) error {
					if calls.Add(1) > many {
						return nil // a further attempt finds the sandbox removed
					}
					turn <- struct{}{}
					defer func() { <-turn }()
					time.Sleep(each)
					return nil
				}
				e := newEngine(t, d, small(many, 0))
				for range many {
					if _, err := e.Create(t.Context(), sandbar.Spec{}); err != nil {
						t.Fatal(err)
					}
				}
				err := e.Shutdown(t.Context())
				switch {
				case each == time.Second && err != nil:
					t.Error(err)
				case each != time.Second && (err == nil || !strings.HasPrefix(err.Error(), "25 sandboxes could not be removed, such as [sb_") || strings.Count(err.Error(), "sb_") != 10):
					t.Error(err)
				}
				time.Sleep(2 * many * each) // the driver's calls return
			})
		})
	}
}

// Shutdown during real work of every kind leaves no goroutine, which TestMain checks, and no
// sandbox in the driver.
func TestShutdownUnderLoad(t *testing.T) {
	d := faulty.New()
	e := newEngine(t, d, small(8, 1000))
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			_, _ = e.Run(context.Background(), script("print stdout x\nsleep 1ms"), newRecorder())
		})
		if i%10 == 0 {
			all.Go(func() {
				s, err := e.Create(context.Background(), sandbar.Spec{})
				if err != nil {
					return
				}
				_, _ = s.Start(context.Background(), cmd("sleep", "1h"), nil, none)
				_, _ = s.Exec(context.Background(), cmd("sleep", "1h"), nil, none, nil)
			})
		}
	}
	time.Sleep(5 * time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if err := e.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := d.Leaks(); err != nil {
		t.Error(err)
	}
	all.Wait()
	if s := e.Stats(); s.Active+s.Queued+s.Sandboxes != 0 {
		t.Errorf("%+v", s)
	}
}

// The log has events and never code, environment or output.
func TestLogHoldsNoSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log safeBuffer
		d := faulty.New()
		r := newRig(t, d, func(c *engine.Config) {
			c.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		const secret = "s3cr3t"
		job := script("print stdout " + secret + "\nprint stderr " + secret + "\n" + secret)
		job.Spec.Env = map[string]string{"TOKEN_" + secret: secret}
		job.Spec.Labels = map[string]string{secret: secret}
		job.Args = []string{secret}
		job.Stdin = strings.NewReader(secret)
		if _, err := r.Run(t.Context(), job, nil); err != nil {
			t.Fatal(err)
		}
		_, _ = r.Run(t.Context(), command(secret), nil)
		boom := newRecorder()
		boom.failAt, boom.boom = 1, true
		_, _ = r.Run(t.Context(), job, boom)
		s := r.create()
		_, _ = s.Exec(t.Context(), cmd("print", "stdout", secret), nil, none, nil)
		_, _ = s.Start(t.Context(), cmd(secret), nil, none)
		d.Die(s.ID())
		synctest.Wait()
		text := log.String()
		if strings.Contains(text, secret) {
			t.Errorf("the log holds what it must not:\n%s", text)
		}
		for _, says := range []string{`"outcome":"exited"`, `"language":"python"`, `"code":"not_found"`, `"stdout_bytes":7`, `"reason":"died"`, "sb_"} {
			if !strings.Contains(text, says) {
				t.Errorf("the log does not tell %s:\n%s", says, text)
			}
		}
	})
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// A sandbox that is created just as Shutdown begins is removed.
func TestShutdownDuringCreate(t *testing.T) {
	for name, heeded := range map[string]bool{"heeded": true, "finished all the same": false} {
		inBubble(t, name, func(t *testing.T) {
			d := faulty.New()
			d.AfterCreate = faulty.Slow(2 * time.Second)
			if heeded {
				d.AfterCreate = faulty.Stall(nil)
			}
			e := newEngine(t, d, nil)
			c := make(chan error, 1)
			go func() { _, err := e.Create(context.Background(), sandbar.Spec{}); c <- err }()
			time.Sleep(time.Second)
			began := time.Now()
			if err := e.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			wantCode(t, <-c, sandbar.Unavailable)
			if took := time.Since(began); (took == 0) != heeded {
				t.Errorf("took %v", took)
			}
			if err := d.Leaks(); err != nil {
				t.Error(err)
			}
		})
	}
}
