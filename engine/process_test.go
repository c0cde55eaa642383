package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// start starts a background program. An error fails the test.
func start(t *testing.T, s *engine.Sandbox, args ...string) *engine.Process {
	t.Helper()
	p, err := s.Start(t.Context(), cmd(args...), nil, none)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// follow follows to the end and returns the bytes of each stream, with "…" for a gap.
func follow(t *testing.T, p *engine.Process, from engine.Offsets) map[sandbar.Stream]string {
	t.Helper()
	text := map[sandbar.Stream]string{}
	at := map[sandbar.Stream]int64{sandbar.Stdout: from.Stdout, sandbar.Stderr: from.Stderr}
	err := p.Follow(context.Background(), from, func(c sandbar.Chunk) error {
		if c.Offset > at[c.Stream] {
			text[c.Stream] += "…"
		} else if c.Offset < at[c.Stream] {
			t.Errorf("%v: offset %d came after %d", c.Stream, c.Offset, at[c.Stream])
		}
		text[c.Stream] += string(c.Data)
		at[c.Stream] = c.Offset + int64(len(c.Data))
		return nil
	})
	if err != nil {
		t.Errorf("follow: %v", err)
	}
	return text
}

func TestProcessLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), nil)
		s := r.create()
		p := start(t, s, "print", "stdout", "one", ";", "sleep", "1h", ";", "print", "stderr", "two", ";", "exit", "3")
		q := start(t, s, "exit", "0")
		if p.ID() != "p1" || q.ID() != "p2" {
			t.Errorf("ids %q and %q", p.ID(), q.ID())
		}
		if got, err := s.Process("p1"); err != nil || got != p {
			t.Errorf("%v, %v", got, err)
		}
		_, err := s.Process("p3")
		wantCode(t, err, sandbar.NotFound)
		if all := s.Processes(); len(all) != 2 || all[0] != p || all[1] != q {
			t.Errorf("%v", all)
		}
		if !p.Started().Equal(time.Now()) {
			t.Errorf("started %v", p.Started())
		}
		p.Cmd().Args[0] = "changed"
		if p.Cmd().Args[0] != "print" {
			t.Error("Cmd is not a copy")
		}
		<-q.Done()
		if n := s.Info().Running; n != 1 {
			t.Errorf("%d run", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = p.Wait(ctx)
		wantCode(t, err, sandbar.Canceled)
		got, err := p.Wait(t.Context()) // no timeout by default
		answer{got, err}.want(t, sandbar.Exited)
		if got.ExitCode != 3 || got.StdoutBytes != 4 || got.StderrBytes != 4 || got.Enforced != faulty.FullCaps().Enforced {
			t.Errorf("%+v", got)
		}
		for range 2 { // repeated calls are allowed
			text := follow(t, p, engine.Offsets{})
			if text[sandbar.Stdout] != "one\n" || text[sandbar.Stderr] != "two\n" {
				t.Errorf("%q", text)
			}
		}
		if text := follow(t, p, engine.Offsets{Stdout: 2, Stderr: 4}); text[sandbar.Stdout] != "e\n" || text[sandbar.Stderr] != "" {
			t.Errorf("%q", text)
		}
		if err := p.Signal(9); err != nil {
			t.Errorf("a signal after the end: %v", err)
		}
		p.Cancel()
		p.Kill()
		if seen := r.observed(); len(seen) != 2 {
			t.Errorf("%d observed", len(seen))
		}
	})
}

func TestProcessEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		lim  sandbar.Limits
		args []string
		act  func(*testing.T, *engine.Process)
		want sandbar.Outcome
		sig  int
		took time.Duration
	}{
		{"cancel", none, []string{"sleep", "1h"}, func(_ *testing.T, p *engine.Process) { p.Cancel() }, sandbar.Cancelled, 15, 0},
		{"cancel with grace", none, []string{"ignore-term", ";", "sleep", "1h"}, func(_ *testing.T, p *engine.Process) { p.Cancel(); p.Cancel() }, sandbar.Cancelled, 9, 500 * time.Millisecond},
		{"kill", none, []string{"sleep", "1h"}, func(_ *testing.T, p *engine.Process) { p.Kill(); p.Kill() }, sandbar.Cancelled, 9, 0},
		{"cancel, then kill", none, []string{"ignore-term", ";", "sleep", "1h"}, func(_ *testing.T, p *engine.Process) { p.Cancel(); p.Kill() }, sandbar.Cancelled, 9, 0},
		{"a signal of the caller's", none, []string{"sleep", "1h"}, func(t *testing.T, p *engine.Process) {
			if err := p.Signal(2); err != nil {
				t.Error(err)
			}
		}, sandbar.Signaled, 2, 0},
		{"timeout", sandbar.Limits{Timeout: time.Minute}, []string{"sleep", "1h"}, nil, sandbar.TimedOut, 15, time.Minute},
		{"output", sandbar.Limits{Output: 1000}, []string{"flood", "stderr", "1001", ";", "sleep", "1h"}, nil, sandbar.OutputLimit, 9, 0},
		{"no limits", none, []string{"flood", "stderr", "70000000", ";", "sleep", "100h"}, nil, sandbar.Exited, 0, 100 * time.Hour},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			r := newRig(t, faulty.New(), func(c *engine.Config) { c.MaxLifetime = -1 })
			s := r.create()
			p, err := s.Start(t.Context(), cmd(c.args...), nil, c.lim)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			began := time.Now()
			if c.act != nil {
				c.act(t, p)
			}
			got, err := p.Wait(t.Context())
			answer{got, err}.want(t, c.want)
			if took := time.Since(began); got.Signal != c.sig || took != c.took {
				t.Errorf("signal %d after %v", got.Signal, took)
			}
		})
	}
}

func TestProcessRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), nil)
		p := start(t, r.create(), "sleep", "1s")
		for _, sig := range []int{-1, 0, 65, 1 << 40} {
			wantCode(t, p.Signal(sig), sandbar.Invalid)
		}
		wantCode(t, p.Follow(t.Context(), engine.Offsets{Stdout: -1}, nil), sandbar.Invalid)
		wantCode(t, p.Follow(t.Context(), engine.Offsets{Stderr: -1}, nil), sandbar.Invalid)
	})
}

// The context of Start bounds the start only.
func TestProcessOutlivesTheContextOfItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		p, err := r.create().Start(ctx, cmd("sleep", "1m"), nil, none)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		got, err := p.Wait(t.Context())
		answer{got, err}.want(t, sandbar.Exited)
	})
}

func TestStartThatStallsCanBeCalledOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		d.OnStart = faulty.Stall(nil)
		r := newRig(t, d, nil)
		s := r.create()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Start(ctx, cmd("exit", "0"), nil, none)
		wantCode(t, err, sandbar.Canceled)
		_, err = s.Start(t.Context(), cmd("exit", "0"), nil, none)
		wantCode(t, err, sandbar.Timeout)
		c := make(chan error, 1)
		go func() { _, err := s.Start(context.Background(), cmd("exit", "0"), nil, none); c <- err }()
		synctest.Wait()
		if err := r.Stop(t.Context(), s.ID()); err != nil {
			t.Error(err)
		}
		wantCode(t, <-c, sandbar.Gone)
	})
}

func TestFollowersAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 3_000_000
		d := faulty.New()
		r := newRig(t, d, func(c *engine.Config) { c.ReplayBytes = 100_000 })
		p := start(t, r.create(), "block-until", "go", ";", "repeat", "300", "flood", "stdout", "10000")
		stuck := make(chan struct{})
		var all sync.WaitGroup
		// The followers: one blocks in its first chunk, one is slow, one returns an error, one is
		// cancelled.
		all.Go(func() {
			p.Follow(context.Background(), engine.Offsets{}, func(sandbar.Chunk) error { <-stuck; return nil })
		})
		all.Go(func() {
			p.Follow(context.Background(), engine.Offsets{}, func(sandbar.Chunk) error { time.Sleep(time.Second); return nil })
		})
		all.Go(func() {
			if err := p.Follow(context.Background(), engine.Offsets{}, func(sandbar.Chunk) error { return errSink }); !errors.Is(err, errSink) {
				t.Errorf("the follower's error became %v", err)
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		all.Go(func() {
			wantCode(t, p.Follow(ctx, engine.Offsets{Stderr: 5}, func(sandbar.Chunk) error { return nil }), sandbar.Canceled)
		})
		synctest.Wait()
		cancel()
		began := time.Now()
		d.Open("go")
		got, err := p.Wait(t.Context())
		answer{got, err}.want(t, sandbar.Exited)
		if took := time.Since(began); took != 0 || got.StdoutBytes != size {
			t.Errorf("the followers held it up for %v; %+v", took, got)
		}
		close(stuck)
		all.Wait()
		// A late follower gets the last 100,000 bytes after a gap.
		for _, from := range []int64{0, 1, size - 100_000, size - 99_999, size - 1, size, size + 5} {
			text, at := "", from
			err := p.Follow(t.Context(), engine.Offsets{Stdout: from}, func(c sandbar.Chunk) error {
				if c.Offset != max(at, size-100_000) {
					t.Errorf("from %d: chunk at %d", from, c.Offset)
				}
				for i, b := range c.Data {
					if b != faulty.Pattern((c.Offset+int64(i))%10_000) { // each flood begins anew
						t.Fatalf("byte %d is %q", c.Offset+int64(i), b)
					}
				}
				at = c.Offset + int64(len(c.Data))
				text += string(c.Data)
				return nil
			})
			if err != nil || int64(len(text)) != max(0, min(size-from, 100_000)) {
				t.Errorf("from %d: %d bytes, %v", from, len(text), err)
			}
		}
	})
}

// The last output of a process is kept, however short its life and whenever a follower begins.
func TestLastBytesOfAShortProcess(t *testing.T) {
	r := newRig(t, faulty.New(), nil)
	s := r.create()
	for i := range 300 {
		p := start(t, s, "print", "stdout", fmt.Sprint(i), ";", "write", "stderr", "end")
		if i%2 == 0 {
			<-p.Done()
		}
		text := follow(t, p, engine.Offsets{})
		if text[sandbar.Stdout] != fmt.Sprintln(i) || text[sandbar.Stderr] != "end" {
			t.Fatalf("run %d: %q", i, text)
		}
	}
}

func TestFinishedProcessesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), func(c *engine.Config) { c.KeepFinished = 2 })
		s := r.create()
		first := start(t, s, "print", "stdout", "x")
		<-first.Done()
		runs := start(t, s, "sleep", "1h")
		for range 4 {
			<-start(t, s, "exit", "0").Done()
		}
		var ids []string
		for _, p := range s.Processes() {
			ids = append(ids, p.ID())
		}
		if got := fmt.Sprint(ids); got != "[p2 p5 p6]" {
			t.Errorf("kept %v", got)
		}
		_, err := s.Process(first.ID())
		wantCode(t, err, sandbar.NotFound)
		// A Process that is no longer listed can still be followed.
		if text := follow(t, first, engine.Offsets{}); text[sandbar.Stdout] != "x\n" {
			t.Errorf("%q", text)
		}
		runs.Kill()
		<-runs.Done()
	})
}

func TestFollowedProgramsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), nil)
		s := r.create()
		var first *engine.Process
		for i := range 256 {
			p := start(t, s, "sleep", "1h")
			if i == 0 {
				first = p
			}
		}
		_, err := s.Start(t.Context(), cmd("exit", "0"), nil, none)
		wantCode(t, err, sandbar.Exhausted)
		first.Kill()
		<-first.Done()
		<-start(t, s, "exit", "0").Done()
	})
}
