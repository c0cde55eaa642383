package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// However a program of a long-lived sandbox is ended, and however it reacts, its background
// processes are gone when the result is returned.
func TestTheEngineEndsWholeTrees(t *testing.T) {
	obeys, ignores := []string{"leave", ";", "sleep", "1h"}, []string{"leave", ";", "ignore-term", ";", "sleep", "1h"}
	flood := []string{"leave", ";", "flood", "stdout", "2000", ";", "sleep", "1h"}
	prints := []string{"leave", ";", "print", "stdout", "x", ";", "sleep", "1h"}
	for _, c := range []struct {
		name string
		args []string
		lim  sandbar.Limits
		fail bool // the sink fails
		act  func(*engine.Process)
		want sandbar.Outcome
		sig  int
		took time.Duration
	}{
		{"timeout, obeyed", obeys, sandbar.Limits{Timeout: time.Minute}, false, nil, sandbar.TimedOut, 15, time.Minute},
		{"timeout, ignored", ignores, sandbar.Limits{Timeout: time.Minute}, false, nil, sandbar.TimedOut, 9, time.Minute + 500*time.Millisecond},
		{"output limit", flood, sandbar.Limits{Output: 1000}, false, nil, sandbar.OutputLimit, 9, 0},
		{"failing sink", prints, none, true, nil, sandbar.Cancelled, 15, 0},
		{"cancel, obeyed", obeys, none, false, func(p *engine.Process) { p.Cancel() }, sandbar.Cancelled, 15, 0},
		{"cancel, ignored", ignores, none, false, func(p *engine.Process) { p.Cancel() }, sandbar.Cancelled, 9, 500 * time.Millisecond},
		{"kill", obeys, none, false, func(p *engine.Process) { p.Kill() }, sandbar.Cancelled, 9, 0},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			d := faulty.New()
			s := newRig(t, d, nil).create()
			sink := newRecorder()
			if c.fail {
				sink.failAt = 1
			}
			began := time.Now()
			p, err := s.StartSink(t.Context(), cmd(c.args...), nil, c.lim, sink)
			if err != nil {
				t.Fatal(err)
			}
			if c.act != nil {
				synctest.Wait()
				c.act(p)
			}
			got, err := p.Wait(t.Context())
			answer{got, err}.want(t, c.want)
			if left := d.Counts().Leftovers; left != 0 {
				t.Errorf("%d things are left behind", left)
			}
			if took := time.Since(began); got.Signal != c.sig || took != c.took {
				t.Errorf("signal %d after %v", got.Signal, took)
			}
		})
	}
	inBubble(t, "Exec, its context ends", func(t *testing.T) {
		d := faulty.New()
		s := newRig(t, d, nil).create()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got, err := s.Exec(ctx, cmd(obeys...), nil, none, nil)
		answer{got, err}.want(t, sandbar.Cancelled)
		if left := d.Counts().Leftovers; left != 0 {
			t.Errorf("%d things are left behind", left)
		}
	})
}

// The background processes of a program that ends by itself continue until Kill.
func TestWhatAProgramLeavesBehindLivesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		s := newRig(t, d, nil).create()
		got, err := s.Exec(t.Context(), cmd("leave", ";", "exit", "3"), nil, none, nil)
		answer{got, err}.want(t, sandbar.Exited)
		p := start(t, s, "leave", ";", "exit", "4")
		other := start(t, s, "leave", ";", "sleep", "1h")
		got, err = p.Wait(t.Context())
		answer{got, err}.want(t, sandbar.Exited)
		p.Cancel() // has no effect
		synctest.Wait()
		if left := d.Counts().Leftovers; left != 3 || slices.Contains(d.Events(), "kill tree") {
			t.Errorf("%d things are left behind: %q", left, d.Events())
		}
		p.Kill()
		synctest.Wait()
		if left := d.Counts().Leftovers; left != 2 {
			t.Errorf("after Kill %d things are left behind", left)
		}
		if again, err := p.Wait(t.Context()); err != nil || again != got {
			t.Errorf("after Kill the result is %+v, %v", again, err)
		}
		other.Kill()
		got, err = other.Wait(t.Context())
		answer{got, err}.want(t, sandbar.Cancelled)
		if left := d.Counts().Leftovers; left != 1 {
			t.Errorf("after the other's end %d things are left behind", left)
		}
	})
}

// A Kill that races with the program's own end takes effect in both orders.
func TestKillAtTheEnd(t *testing.T) {
	d := faulty.New()
	s := newRig(t, d, nil).create()
	for range 200 {
		p := start(t, s, "leave", ";", "exit", "0")
		p.Kill()
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(time.Minute); d.Counts().Leftovers != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d things are left behind", d.Counts().Leftovers)
		}
	}
}

// If a driver's KillTree fails, the result is still returned in time.
func TestTreesThatResist(t *testing.T) {
	for _, c := range []struct {
		name string
		hook func(until chan struct{}) faulty.Hook
		args []string
		took time.Duration
	}{
		{"fails", func(chan struct{}) faulty.Hook { return faulty.FailFirst(-1, errors.New("no")) },
			[]string{"ignore-term", ";", "sleep", "1h"}, time.Second + 500*time.Millisecond},
		{"panics", func(chan struct{}) faulty.Hook { return faulty.Panic() },
			[]string{"ignore-term", ";", "sleep", "1h"}, time.Second + 500*time.Millisecond},
		{"is slow", func(chan struct{}) faulty.Hook { return faulty.Slow(2 * time.Second) },
			[]string{"leave", ";", "sleep", "1h"}, 3 * time.Second},
		{"is stuck after a TERM", func(u chan struct{}) faulty.Hook { return faulty.Block(u) },
			[]string{"sleep", "1h"}, 6 * time.Second},
		{"is stuck after a KILL", func(u chan struct{}) faulty.Hook { return faulty.Block(u) },
			[]string{"ignore-term", ";", "sleep", "1h"}, 6*time.Second + 500*time.Millisecond},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			d := faulty.New()
			until := make(chan struct{})
			d.OnKillTree = c.hook(until)
			s := newRig(t, d, nil).create()
			began := time.Now()
			got, err := s.Exec(t.Context(), cmd(c.args...), nil, sandbar.Limits{Timeout: time.Second}, nil)
			answer{got, err}.want(t, sandbar.TimedOut)
			if took := time.Since(began); took != c.took {
				t.Errorf("took %v, want %v", took, c.took)
			}
			close(until)
		})
	}
}

// In a one-shot execution the sandbox is destroyed, and KillTree is not called.
func TestOneShotNeedsNoKillTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		r := newRig(t, d, nil)
		got, err := r.Run(t.Context(), limited(time.Second, "leave\nignore-term\nsleep 1h"), nil)
		answer{got, err}.want(t, sandbar.TimedOut)
		synctest.Wait()
		if e := d.Events(); slices.Contains(e, "kill tree") || !slices.Contains(e, "destroy") {
			t.Errorf("events %q", e)
		}
	})
}

func TestProcessNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRig(t, faulty.New(), nil).create()
		for want := 2; want < 4; want++ {
			p := start(t, s, "exit", "0")
			<-p.Done()
			if got := p.PID(); got != want {
				t.Errorf("number %d, want %d", got, want)
			}
		}
	})
}
