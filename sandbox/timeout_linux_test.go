package sandbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/sandbox"
)

// SANDBOX_TIMEOUT_SEC overrides longer and shorter limits of requests.
func TestTimeoutOverride(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.Python)
	box := open(t, "SANDBOX_TYPE=local", "SANDBOX_TIMEOUT_SEC=1.5")
	for _, asked := range []time.Duration{0, time.Millisecond, time.Minute} {
		r, err := box.Execute(context.Background(), sandbox.Request{Code: "import time\ntime.sleep(60)", Timeout: asked})
		if err != nil {
			t.Fatal(err)
		}
		if !r.TimedOut || r.Meta.Limits.TimeoutSec != 1.5 {
			t.Errorf("asked for %v: timed out: %v, after %v s", asked, r.TimedOut, r.Meta.Limits.TimeoutSec)
		}
	}
	// Meta has the driver, the versions and the limits.
	if r, err := box.Execute(context.Background(), sandbox.Request{Code: "pass"}); err != nil || r.Meta.Runtime != "local" || r.Meta.Versions["sandbar"] == "" || r.Meta.Versions["kernel"] == "" {
		t.Errorf("%+v, %v", r.Meta, err)
	}
	// Without the variable the request's limit applies.
	box = open(t, "SANDBOX_TYPE=local")
	r, err := box.Execute(context.Background(), sandbox.Request{Code: "pass", Timeout: 7 * time.Second})
	if err != nil || r.Meta.Limits.TimeoutSec != 7 {
		t.Errorf("%+v, %v", r.Meta, err)
	}
}
