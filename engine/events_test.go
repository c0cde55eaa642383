package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// reader returns a reader of the events after a position.
func (r *rig) reader(after string) *engine.EventReader {
	r.t.Helper()
	events, err := r.Events(context.Background(), after)
	if err != nil {
		r.t.Fatal(err)
	}
	return events
}

// now returns the events that are there, without waiting for further ones.
func now(t *testing.T, r *engine.EventReader, keep func(*engine.Event) bool) (all []engine.Event) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for {
		e, err := r.Next(ctx, keep)
		if err != nil {
			if sandbar.CodeOf(err) != sandbar.Canceled && !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			return all
		}
		all = append(all, e)
	}
}

// short writes an event in a line, with the names of sandboxes in place of their ids.
func short(e engine.Event, names map[sandbar.ID]string) string {
	parts := []string{string(e.Type), names[e.Sandbox], e.Client, names[e.From], string(e.Reason), e.Program, e.Context, e.Outcome, string(e.Action), string(e.Code)}
	if e.Outcome == "exited" {
		parts = append(parts, fmt.Sprint(e.ExitCode))
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

// Everything that happens to a sandbox is an event, in the order in which it happens, whether a
// client has caused it or not.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		d.Saves = true
		r := newPausing(t, d, t.TempDir(), func(c *engine.Config) {
			c.IdleTimeout, c.MaxLifetime = time.Hour, 3*time.Hour
		})
		events := r.reader("")
		who := sandbar.Client{Name: "ci"}
		ctx := engine.WithClient(t.Context(), who)
		names := map[sandbar.ID]string{}
		create := func(name string, idle time.Duration) *engine.Sandbox {
			t.Helper()
			s, err := r.Create(ctx, sandbar.Spec{Client: who, IdleTimeout: idle})
			if err != nil {
				t.Fatal(err)
			}
			names[s.ID()] = name
			return s
		}
		a := create("a", -1)
		exec := func(s *engine.Sandbox, args ...string) error {
			_, err := s.Exec(ctx, sandbar.Cmd{Args: args}, nil, sandbar.Limits{Timeout: time.Second}, nil)
			return err
		}
		if err := errors.Join(exec(a, "exit", "3"), exec(a, "sleep", "1m")); err != nil {
			t.Error(err)
		}
		if err := exec(a, "no-such-program"); err == nil {
			t.Error("a program that does not exist has run")
		}
		p, err := a.Start(ctx, sandbar.Cmd{Args: []string{"signal", "9"}}, nil, sandbar.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		forks, err := r.Fork(ctx, a.ID(), 1)
		if err != nil {
			t.Fatal(err)
		}
		names[forks[0].ID()] = "fork"
		if err := errors.Join(r.Stop(ctx, forks[0].ID()), r.Pause(ctx, a.ID())); err != nil {
			t.Error(err)
		}
		if a, err = r.Resume(ctx, a.ID()); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Resume(ctx, a.ID()); err == nil {
			t.Error("a running sandbox was resumed")
		}
		lost := create("lost", 0)
		_, _ = lost.Exec(ctx, sandbar.Cmd{Args: []string{"lost"}}, nil, sandbar.Limits{}, nil)
		synctest.Wait()
		create("idle", time.Minute)
		time.Sleep(2 * time.Minute)
		job := command("exit", "0")
		job.Spec.Client = who
		if _, err := r.Run(t.Context(), job, nil); err != nil {
			t.Error(err)
		}
		if _, err := r.Admit(sandbar.Job{}); err == nil {
			t.Error("an empty job was admitted")
		}
		time.Sleep(4 * time.Hour) // the lifetime of a
		shut := create("shut", -1)
		done, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Shutdown(done); err != nil {
			t.Error(err)
		}
		<-shut.Done()

		var got []string
		last := ""
		for _, e := range now(t, events, nil) {
			if e.ID == last || e.Time.IsZero() {
				t.Errorf("%+v after %s", e, last)
			}
			last = e.ID
			if strings.HasPrefix(string(e.Type), "execution.") {
				names[e.Sandbox] = "one"
			}
			got = append(got, short(e, names))
		}
		want := []string{
			"sandbox.created a ci",
			"program.started a ci x1", "program.ended a x1 exited 3",
			"program.started a ci x2", "program.ended a x2 timeout",
			"refused a ci program.run not_found",
			"program.started a ci p1", "program.ended a p1 signaled",
			"sandbox.forked fork ci a", "sandbox.ended fork stopped",
			"sandbox.paused a", "sandbox.resumed a ci",
			"refused a ci sandbox.resume conflict",
			"sandbox.created lost ci", "program.started lost ci x1", "program.ended lost x1 lost", "sandbox.ended lost died",
			"sandbox.created idle ci", "sandbox.ended idle idle",
			"execution.started one ci", "execution.ended one ci exited 0",
			"refused execute invalid",
			"sandbox.ended a lifetime",
			"sandbox.created shut ci", "sandbox.ended shut shutdown",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if _, err := events.Next(t.Context(), nil); !errors.Is(err, io.EOF) {
			t.Errorf("after the shutdown: %v", err)
		}
	})
}

// A reader that continues at a position gets each later event once.
func TestEventsContinue(t *testing.T) {
	r := newRig(t, faulty.New(), nil)
	first := r.reader("")
	start := first.Position()
	for range 3 {
		r.create()
	}
	all := now(t, first, nil)
	if len(all) != 3 {
		t.Fatalf("%d events", len(all))
	}
	for i := range all {
		rest := now(t, r.reader(all[i].ID), nil)
		if diff := cmp.Diff(all[i+1:], rest, cmp.AllowUnexported(engine.Event{}), cmpEmpty); diff != "" {
			t.Errorf("after event %d: %s", i, diff)
		}
	}
	for _, after := range []string{start, engine.Oldest} {
		if got := now(t, r.reader(after), nil); len(got) != 3 {
			t.Errorf("after %s: %d events", after, len(got))
		}
	}
	// A filter moves the position past what it drops.
	none := r.reader(start)
	if got := now(t, none, func(*engine.Event) bool { return false }); len(got) != 0 || none.Position() != all[2].ID {
		t.Errorf("%d events, position %s, want %s", len(got), none.Position(), all[2].ID)
	}
}

// cmpEmpty makes an empty slice equal to a nil one.
var cmpEmpty = cmp.Transformer("empty", func(e []engine.Event) []engine.Event {
	if len(e) == 0 {
		return nil
	}
	return e
})

// A reader that is too slow gets one gap with the number of the events that it missed, and then the
// kept ones. It does not block the engine.
func TestEventsGap(t *testing.T) {
	const kept, rounds = 4096, 5000
	r := newRig(t, faulty.New(), nil)
	slow := r.reader("")
	for range rounds { // each is one event
		if _, err := r.Admit(sandbar.Job{}); err == nil {
			t.Fatal("an empty job was admitted")
		}
	}
	all := now(t, slow, nil)
	if len(all) != kept+1 || all[0].Type != engine.EventGap || all[0].Missed != rounds-kept {
		t.Fatalf("%d events, the first is %+v", len(all), all[0])
	}
	if again := now(t, r.reader(all[0].ID), nil); len(again) != kept || again[0].ID != all[1].ID {
		t.Errorf("after the gap: %d events, the first is %+v", len(again), again[0])
	}
	// An id of another engine is a gap of an unknown number.
	other := newRig(t, faulty.New(), nil)
	other.create()
	got := now(t, other.reader(all[5].ID), nil)
	if len(got) != 2 || got[0].Type != engine.EventGap || got[0].Missed != -1 || got[1].Type != engine.EventCreated {
		t.Errorf("after an id of another engine: %+v", got)
	}
}

func TestEventsBadPosition(t *testing.T) {
	r := newRig(t, faulty.New(), nil)
	r.create()
	for _, after := range []string{"x", "-1", "abc", "abc-", "abc-x", "ABC DEF-1", strings.TrimSuffix(r.reader("").Position(), "1") + "99"} {
		if _, err := r.Events(context.Background(), after); sandbar.CodeOf(err) != sandbar.Invalid || sandbar.AsError(err).Field != "after" {
			t.Errorf("%q: %v", after, err)
		}
	}
}

// A reader waits for an event, and until the end of its context.
func TestEventsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), nil)
		got := make(chan engine.Event)
		for range 3 {
			go func() {
				e, err := r.reader("").Next(t.Context(), nil)
				if err != nil {
					t.Error(err)
				}
				got <- e
			}()
		}
		synctest.Wait()
		r.create()
		for range 3 {
			if e := <-got; e.Type != engine.EventCreated {
				t.Errorf("%+v", e)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := r.reader("").Next(ctx, nil); sandbar.CodeOf(err) != sandbar.Canceled {
			t.Error(err)
		}
	})
}
