package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// Every ready sandbox rests, and only the one that is used is woken. One that cannot rest is used
// all the same.
func TestReadySandboxesRest(t *testing.T) {
	for _, fails := range []error{nil, errors.New("told to fail")} {
		synctest.Test(t, func(t *testing.T) {
			w := faulty.NewWarm()
			var rested, woken atomic.Int64
			w.OnRest = func(context.Context) error { rested.Add(1); return fails }
			w.OnWake = func(context.Context) error { woken.Add(1); return nil }
			r := warmRig(t, w, keeping(engine.Template{Min: 2}))
			r.wantPool(2, 0, 0, 0)
			s, err := r.Create(t.Context(), sandbar.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			r.wantPool(2, 1, 0, 0)
			if rested.Load() != 3 || woken.Load() != 1 {
				t.Errorf("%d sandboxes rested and %d were woken, want 3 and 1", rested.Load(), woken.Load())
			}
			if err := r.Stop(t.Context(), s.ID()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A ready sandbox that cannot be woken is replaced by a fresh one.
func TestReadySandboxIsNotWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := faulty.NewWarm()
		w.OnWake = faulty.FailFirst(1, errors.New("told to fail"))
		r := warmRig(t, w, keeping(engine.Template{Min: 1}))
		r.wantPool(1, 0, 0, 0)
		s, err := r.Create(t.Context(), sandbar.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		sink := newRecorder()
		if _, err := s.Exec(t.Context(), sandbar.Cmd{Args: []string{"print", "stdout", "x"}}, nil, none, sink); err != nil || sink.text(sandbar.Stdout) != "x\n" {
			t.Errorf("got %q, %v", sink.text(sandbar.Stdout), err)
		}
		r.wantPool(1, 1, 0, 1)
		if err := r.Stop(t.Context(), s.ID()); err != nil {
			t.Error(err)
		}
	})
}
