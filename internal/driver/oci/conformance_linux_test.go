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
	conformance(t, Name, kindRunc, string(kindRunc))
}

func TestConformanceGVisor(t *testing.T) {
	testenv.Need(t, testenv.UserNS, testenv.Python, testenv.Runsc)
	conformance(t, NameGVisor, kindRunsc, testenv.RunscProgram())
}

func conformance(t *testing.T, name string, runtime kind, program string) {
	binary := agentBinary(t)
	drivertest.Run(t, drivertest.Harness{
		Name: name, Skips: skips(runtime), Slow: true,
		Options: map[string]string{optionRuntime: program},
		New:     func(h driver.Host) (driver.Driver, error) { return New(h, name, binary) },
	})
}
