package v86

import (
	"bytes"
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/testenv"
	"github.com/sandbar-dev/sandbar/internal/v86/worker"
)

func TestMain(m *testing.M) {
	if worker.IsWorker() {
		worker.Main()
	}
	goleak.VerifyTestMain(m)
}

// patience ends a test that hangs: a machine boots for a minute where nothing
// else runs.
const patience = 10 * time.Minute

// machineMemory is the default of the protocol.
const machineMemory = 64 << 20

func testOptions() map[string]string {
	return map[string]string{OptionImage: testenv.V86Image(), OptionCache: testenv.V86Cache(), OptionModules: testenv.V86Modules()}
}

func newDriver(t *testing.T, options map[string]string) *Driver {
	t.Helper()
	testenv.Need(t, testenv.Linux, testenv.V86)
	d, err := New(driver.Host{Options: options}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func testSpec() sandbar.Spec {
	return sandbar.Spec{Limits: sandbar.Limits{Memory: machineMemory}}
}

func newBox(t *testing.T) driver.Sandbox {
	t.Helper()
	d := newDriver(t, testOptions())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	box, err := d.Create(ctx, "box", testSpec())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return box
}

type outcome struct {
	sandbar.Result
	stdout, stderr string
}

func run(t *testing.T, box driver.Sandbox, script string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, errs bytes.Buffer
	p, err := box.Start(ctx, sandbar.Cmd{Args: []string{"sh", "-c", script}}, driver.Stdio{Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatalf("starting %q: %v", script, err)
	}
	r, err := p.Wait()
	if err != nil {
		t.Fatalf("waiting for %q: %v", script, err)
	}
	return outcome{r, out.String(), errs.String()}
}
