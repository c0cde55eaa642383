package native

import (
	"context"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/warm/python"
)

// What an import does at the end of a program, which may be anything, holds up no
// template, and what it prints is not kept.
func TestRehearsalIsBounded(t *testing.T) {
	d := newDriver(t)
	tmpl := newTemplate(t, d, pythonTemplate(d)).(*template)
	perform := func(limit time.Duration, code string) []byte {
		f, err := tmpl.fork(t.Context(), sandbar.NewID(), true)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		output, err := f.profile(ctx, code)
		if err != nil {
			t.Error(err)
		}
		if err := f.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		return output
	}
	perform(time.Second, "import atexit, time\natexit.register(time.sleep, 10_000)")
	if n := len(perform(profileTime, "print('x' * 3_000_000)")); n != python.MaxProfile {
		t.Errorf("it keeps %d bytes", n)
	}
}
