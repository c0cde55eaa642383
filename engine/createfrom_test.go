package engine_test

import (
	"context"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// Sandboxes are made from a paused one, also at once, which stays paused. It cannot be resumed or
// removed meanwhile.
func TestCreateFrom(t *testing.T) {
	d := saving()
	r := newPausing(t, d, t.TempDir(), nil)
	s, err := r.Create(t.Context(), sandbar.Spec{Name: "box", Env: map[string]string{"A": "1"}, Labels: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	save(t, s, "f", "kept")
	if _, err := r.CreateFrom(t.Context(), s.ID(), engine.FromPaused{}); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("from a sandbox that is not paused: %v", err)
	}
	if err := r.Pause(t.Context(), s.ID()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c, err := r.CreateFrom(t.Context(), s.ID(), engine.FromPaused{Env: map[string]string{"B": "2"}, Labels: map[string]string{"c": "d"}})
		if err != nil {
			t.Fatal(err)
		}
		i := c.Info()
		if content(t, c, "f") != "kept" || c.ID() == s.ID() || i.Spec.Name != "" || len(i.Spec.Env) != 2 || i.Spec.Env["B"] != "2" || len(i.Spec.Labels) != 1 || i.Spec.Labels["c"] != "d" {
			t.Errorf("%+v", i)
		}
	}
	if n := len(r.Paused(context.Background())); n != 1 {
		t.Errorf("%d are paused", n)
	}
	d.OnRestore = func(ctx context.Context) error {
		_, resume := r.Resume(ctx, s.ID())
		for what, err := range map[string]error{"Resume": resume, "Stop": r.Stop(ctx, s.ID())} {
			if sandbar.CodeOf(err) != sandbar.Conflict {
				t.Errorf("%s meanwhile: %v", what, err)
			}
		}
		return sandbar.Errorf(sandbar.Unavailable, "no")
	}
	if _, err := r.CreateFrom(t.Context(), s.ID(), engine.FromPaused{}); sandbar.CodeOf(err) != sandbar.Unavailable {
		t.Error(err)
	}
	if _, err := r.CreateFrom(t.Context(), s.ID(), engine.FromPaused{Network: sandbar.NetworkOutbound}); sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Error(err)
	}
	if err := r.Stop(t.Context(), s.ID()); err != nil {
		t.Error(err)
	}
}
