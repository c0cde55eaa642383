package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// A process with a sink loses no output, however much it writes and however slow the sink is.
// Nothing is kept for followers.
func TestStartSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), func(c *engine.Config) { c.ReplayBytes = 1000 })
		s := r.create()
		const size = 5_000_000
		sink := newRecorder()
		sink.pause = time.Second
		p, err := s.StartSink(t.Context(), cmd("flood", "stdout", "5000000", ";", "print", "stderr", "last", ";", "exit", "3"), nil, none, sink)
		if err != nil {
			t.Fatal(err)
		}
		if all := s.Processes(); p.ID() != "p1" || len(all) != 1 || all[0] != p {
			t.Errorf("process %q of %v", p.ID(), all)
		}
		got, err := p.Wait(t.Context())
		answer{got, err}.want(t, sandbar.Exited)
		sink.check(t)
		if n := len(sink.text(sandbar.Stdout)); n != size || sink.text(sandbar.Stderr) != "last\n" || got.StdoutBytes != size || got.ExitCode != 3 {
			t.Errorf("%d bytes, %q; %+v", n, sink.text(sandbar.Stderr), got)
		}
		if text := follow(t, p, engine.Offsets{}); text[sandbar.Stdout]+text[sandbar.Stderr] != "" {
			t.Error("something was kept for followers")
		}
	})
}

// A sink that blocks also blocks its program, and nothing else. A follower of the program waits for
// its end or for its own cancellation.
func TestStartSinkHoldsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		s := newRig(t, d, nil).create()
		sink := newRecorder()
		sink.hold = make(chan struct{})
		p, err := s.StartSink(t.Context(), cmd("flood", "stdout", "5000000"), nil, none, sink)
		if err != nil {
			t.Fatal(err)
		}
		followed := make(chan error, 1)
		go func() {
			followed <- p.Follow(t.Context(), engine.Offsets{}, func(sandbar.Chunk) error { return errSink })
		}()
		synctest.Wait()
		time.Sleep(time.Hour)
		if n := d.Written(); n > 200_000 {
			t.Errorf("%d bytes were written while nobody took them", n)
		}
		got, err := s.Exec(t.Context(), cmd("exit", "4"), nil, none, nil)
		answer{got, err}.want(t, sandbar.Exited)
		close(sink.hold)
		got, err = p.Wait(t.Context())
		answer{got, err}.want(t, sandbar.Exited)
		if err := <-followed; err != nil || got.StdoutBytes != 5_000_000 {
			t.Errorf("%v; %+v", err, got)
		}
	})
}

func TestStartSinkThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRig(t, faulty.New(), nil).create()
		sink := newRecorder()
		sink.failAt, sink.boom = 1, true
		p, err := s.StartSink(t.Context(), cmd("print", "stdout", "x", ";", "sleep", "1h"), nil, none, sink)
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Wait(t.Context())
		wantCode(t, err, sandbar.Internal)
	})
}

// StartSink refuses the same as Start, and counts towards the same limit.
func TestStartSinkRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRig(t, faulty.New(), nil).create()
		_, err := s.StartSink(t.Context(), sandbar.Cmd{}, nil, none, nil)
		wantCode(t, err, sandbar.Invalid)
		_, err = s.StartSink(t.Context(), cmd("exit", "0"), nil, sandbar.Limits{PIDs: 5}, nil)
		wantCode(t, err, sandbar.Invalid)
		for i := range 256 {
			if i%2 == 0 {
				start(t, s, "sleep", "1h")
			} else if _, err := s.StartSink(t.Context(), cmd("sleep", "1h"), nil, none, nil); err != nil {
				t.Fatal(err)
			}
		}
		_, err = s.StartSink(t.Context(), cmd("exit", "0"), nil, none, nil)
		wantCode(t, err, sandbar.Exhausted)
	})
}
