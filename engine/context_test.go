package engine_test

import (
	"context"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// What cannot run contexts is refused, and nothing of it stays. Package client tests contexts over
// a real interpreter.
func TestContextIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spec   engine.ContextSpec
		code   sandbar.Code
		change func(*faulty.Driver)
	}{
		"unknown language":    {spec: engine.ContextSpec{Language: "cobol"}, code: sandbar.Unsupported},
		"no interpreter":      {code: sandbar.Unsupported, change: func(d *faulty.Driver) { d.Missing = []string{"python3"} }},
		"another interpreter": {code: sandbar.Unsupported}, // the faulty driver's python3 does not run the kernel
		"wasm":                {code: sandbar.Unsupported, change: func(d *faulty.Driver) { d.Capabilities.Boundary = driver.BoundaryWasm }},
		"environment":         {spec: engine.ContextSpec{Env: map[string]string{"a=b": ""}}, code: sandbar.Invalid},
		"start fails": {code: sandbar.NoSpace, change: func(d *faulty.Driver) {
			d.OnStart = faulty.FailFirst(-1, sandbar.Errorf(sandbar.NoSpace, "full"))
		}},
	} {
		inBubble(t, name, func(t *testing.T) {
			d := faulty.New()
			if c.change != nil {
				c.change(d)
			}
			r := newRig(t, d, nil)
			s := r.create()
			_, err := s.CreateContext(context.Background(), c.spec)
			wantCode(t, err, c.code)
			if len(s.Contexts()) != 0 || s.Info().Running != 0 {
				t.Errorf("%d contexts, %+v", len(s.Contexts()), s.Info())
			}
			_, err = s.Context("c1")
			wantCode(t, err, sandbar.NotFound)
		})
	}
	inBubble(t, "sandbox has ended", func(t *testing.T) {
		r := newRig(t, faulty.New(), nil)
		s := r.create()
		if err := r.Stop(context.Background(), s.ID()); err != nil {
			t.Fatal(err)
		}
		_, err := s.CreateContext(context.Background(), engine.ContextSpec{})
		wantCode(t, err, sandbar.Gone)
	})
}
