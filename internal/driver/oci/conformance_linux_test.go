package oci

import (
	"os"
	"testing"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/driver/drivertest"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
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

// skips returns the golden file of a runtime for this user. An ordinary user has no cgroups here,
// and therefore other limits.
func skips(runtime kind) string {
	if os.Geteuid() == 0 {
		return "testdata/skips." + string(runtime) + ".root.golden"
	}
	return "testdata/skips." + string(runtime) + ".user.golden"
}

func TestConformanceRunc(t *testing.T) {
	testenv.Need(t, testenv.UserNS, testenv.Python, testenv.Runc)
	conformance(t, kindRunc, drivertest.Harness{Name: Name, Options: map[string]string{optionRuntime: "runc"}, Later: later()})
}

// later are the cases that are slow with every runtime.
func later() []string {
	return []string{"endings/exit-codes", "endings/numbers", "endings/orphans", "endings/own-signals", "escape/03-swap-race", "escape/12-big-trees", "escape/22-orphans",
		"escape/31-memory-children", "escape/34-cpu", "escape/43-udp", "escape/44-names", "escape/66-fuzz", "files/big-file", "lifecycle/create-destroy-many",
		"limits/cpu_shares", "limits/cpus", "streams/slow-reader", "trees/busy-neighbours", "trees/many"}
}

func TestConformanceGVisor(t *testing.T) {
	testenv.Need(t, testenv.UserNS, testenv.Python, testenv.Runsc)
	conformance(t, kindRunsc, drivertest.Harness{Name: NameGVisor, Options: map[string]string{optionRuntime: testenv.RunscProgram()},
		Later: append(later(), "dial/bad-ports", "endings/parallel-exits", "escape/33-thrash", "files/read-many-bounds", "lifecycle/create-empty",
			"endings/directories", "files/list", "races/many-sandboxes", "streams/both-at-once", "streams/flood", "streams/one-line", "streams/last-bytes", "trees/fork-chain", "trees/left-alone", "trees/mutual-help", "trees/two-trees",
			"warm/once-*", "warm/refuses-*", "warm/strangers-*", "warm/killed-*"),
	})
}

// conformance runs the suite with a runtime.
func conformance(t *testing.T, runtime kind, h drivertest.Harness) {
	binary := agentBinary(t)
	h.Skips, h.Slow = skips(runtime), true
	h.New = func(host driver.Host) (driver.Driver, error) { return New(host, h.Name, binary) }
	drivertest.Run(t, h)
}
