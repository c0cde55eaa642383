package native

import (
	"os"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/image"
	"github.com/sandbar-dev/sandbar/internal/linux/egress/netstack"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

func TestMain(m *testing.M) {
	netstack.Main()
	image.Main()
	if dir := os.Getenv(daemonEnv); dir != "" {
		os.Exit(playDaemon())
	}
	os.Exit(m.Run())
}

// agentBinary is the agent as `make build` builds it. The test binary itself
// cannot be the agent under -race, which needs cgo.
func agentBinary(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile(testenv.Build(t, "cmd/sandbar-agent"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newDriver opens a driver, which is closed at the test's end.
func newDriver(t testing.TB) *Driver {
	t.Helper()
	testenv.Need(t, testenv.UserNS)
	d, err := New(driver.Host{}, agentBinary(t))
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

// spec returns a Spec with all defaults, as the engine passes it to the driver.
func spec(d *Driver) sandbar.Spec {
	s := sandbar.Spec{Image: sandbar.ImageHost, Network: sandbar.NetworkNone, Limits: sandbar.Limits{
		Memory: 128 << 20, CPUs: sandbar.Unlimited, CPUShares: 512, PIDs: 64,
		Disk: 64 << 20, Inodes: 4096, Files: 256,
	}}
	return s
}
