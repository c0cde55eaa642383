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
	conformance(t, Name, kindRunc, string(kindRunc), nil)
}

func TestConformanceGVisor(t *testing.T) {
	testenv.Need(t, testenv.UserNS, testenv.Python, testenv.Runsc)
	conformance(t, NameGVisor, kindRunsc, testenv.RunscProgram(), map[string]string{
		"escape/15-outer-memory": "gVisor tells another user's process the numbers of PID 1's namespaces, which are its own and none of the host's",
		"escape/17-devices":      "/dev has a fuse and a tun that are gVisor's own and no devices of the host",
		"escape/33-thrash":       "the agent looks every 10 ms, and between two looks the sandbox is held by its control group, 48 MiB above its limit",
		"escape/34-realtime":     "gVisor holds nobody to RLIMIT_NICE; the order is among the sandbox's own threads, and the host's scheduler never hears of it",
	})
}

func conformance(t *testing.T, name string, runtime kind, program string, known map[string]string) {
	binary := agentBinary(t)
	drivertest.Run(t, drivertest.Harness{
		Name: name, Skips: skips(runtime), Slow: true,
		Options: map[string]string{optionRuntime: program}, KnownFailures: known,
		New: func(h driver.Host) (driver.Driver, error) { return New(h, name, binary) },
	})
}
