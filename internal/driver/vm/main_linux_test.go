package vm

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/egress/netstack"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

func TestMain(m *testing.M) {
	netstack.Main()
	falseQEMU()
	goleak.VerifyTestMain(m)
}

// patience bounds a test that hangs. A boot takes half a minute on a busy machine.
const patience = 5 * time.Minute

// agentBinary is the agent as `make build` builds it.
func agentBinary(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile(testenv.Build(t, "cmd/sandbar-agent"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// testOptions returns the options of the driver. Its snapshots are kept between test runs.
func testOptions(t testing.TB) map[string]string {
	t.Helper()
	testenv.Need(t, testenv.UserNS, testenv.VM)
	options, err := testenv.VMOptions()
	if err != nil {
		t.Fatal(err)
	}
	return options
}

// newDriver opens a driver, which is closed at the test's end.
func newDriver(t testing.TB, options map[string]string) *Driver {
	t.Helper()
	d, err := New(driver.Host{Options: options, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}, agentBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// spec returns a Spec with all defaults, as the engine passes it to the driver. Its memory is that
// of most cases of the conformance suite, so that both use one snapshot.
func spec() sandbar.Spec {
	return sandbar.Spec{Image: sandbar.ImageHost, Network: sandbar.NetworkNone, AllowDegraded: true, Limits: sandbar.Limits{
		Memory: 256 << 20, CPUs: sandbar.Unlimited, CPUShares: 512, PIDs: 64, Disk: 64 << 20, Inodes: 4096, Files: 256,
	}}
}

// newBox creates a sandbox, which is destroyed at the test's end.
func newBox(t testing.TB, d *Driver, id string) driver.Sandbox {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	box, err := d.Create(ctx, sandbar.ID("sb_"+id), spec())
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

// run runs a program and returns its output.
func run(t testing.TB, box driver.Sandbox, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, errs bytes.Buffer
	p, err := box.Start(ctx, sandbar.Cmd{Args: args}, driver.Stdio{Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatalf("starting %q: %v", args, err)
	}
	r, err := p.Wait()
	if err != nil || r.Outcome != sandbar.Exited || r.ExitCode != 0 {
		t.Errorf("%q: %+v, %v: %s", args, r, err, errs.String())
	}
	return out.String()
}
