package oci

import (
	"os"
	"testing"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/driver/drivertest"
	"github.com/sandbar-dev/sandbar/internal/testenv"
)

// agentBinary is the agent as `make build` builds it.
func agentBinary(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile(testenv.Build(t, "cmd/sandbar-agent"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// skips is the golden file of a runtime for this host's user: an ordinary one
// has no cgroups here, and so other limits.
func skips(runtime kind) string {
	if os.Geteuid() == 0 {
		return "testdata/skips." + string(runtime) + ".root.golden"
	}
	return "testdata/skips." + string(runtime) + ".user.golden"
}

func TestConformanceRunc(t *testing.T) {
	testenv.Need(t, testenv.UserNS, testenv.Python, testenv.Runc)
	conformance(t, kindRunc, drivertest.Harness{Name: Name, Options: map[string]string{optionRuntime: "runc"}})
}

func TestConformanceGVisor(t *testing.T) {
	testenv.Need(t, testenv.UserNS, testenv.Python, testenv.Runsc)
	conformance(t, kindRunsc, drivertest.Harness{Name: NameGVisor, Options: map[string]string{optionRuntime: testenv.RunscProgram()},
		KnownFailures: map[string]string{
			"escape/15-outer-memory": "gVisor tells another user's process the numbers of PID 1's namespaces, which are its own and none of the host's",
			"escape/17-devices":      "/dev has a fuse and a tun that are gVisor's own and no devices of the host",
			"escape/33-thrash":       "the agent looks every 10 ms, and between two looks the sandbox is held by its control group, 48 MiB above its limit",
			"escape/34-realtime":     "gVisor holds nobody to RLIMIT_NICE; the order is among the sandbox's own threads, and the host's scheduler never hears of it",
		},
		Later: []string{"endings/exit-codes", "endings/orphans", "escape/03-swap-race", "escape/22-orphans", "escape/34-cpu", "escape/66-fuzz",
			"files/big-file", "lifecycle/create-destroy-many", "streams/slow-reader", "trees/busy-neighbours", "trees/many"},
	})
}

// conformance runs the suite with a runtime; the rest of h is the caller's.
func conformance(t *testing.T, runtime kind, h drivertest.Harness) {
	binary := agentBinary(t)
	h.Skips, h.Slow = skips(runtime), true
	h.New = func(host driver.Host) (driver.Driver, error) { return New(host, h.Name, binary) }
	drivertest.Run(t, h)
}
