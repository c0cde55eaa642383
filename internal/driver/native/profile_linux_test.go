package native

import (
	"context"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/warm/python"
)

// Exit handlers that imports register may block or print anything: time and output of a profile run
// are bounded.
func TestProfileIsBounded(t *testing.T) {
	d := newDriver(t)
	tmpl := newTemplate(t, d, pythonTemplate(d)).(*template)
	run := func(limit time.Duration, code string) []byte {
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
	run(time.Second, "import atexit, time\natexit.register(time.sleep, 10_000)")
	if n := len(run(profileTime, "print('x' * 3_000_000)")); n != python.MaxProfile {
		t.Errorf("the output has %d bytes", n)
	}
}
