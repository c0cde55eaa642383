package kubernetes

import (
	"maps"
	"testing"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/driver/drivertest"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/cluster"
)

// later are the cases of "make test-all" only. A case takes two seconds, those of a pod. What
// remains are the cases of the driver's own parts, all attacks but the longest, and a few of each
// group that tests the agent.
var later = []string{"abilities/decorated", "contexts/[^esk]*", "dial/bad-ports", "dial/neighbours-port", "endings/[^e]*",
	"escape/03-swap-race", "escape/12-big-trees", "escape/20-fork-bomb", "escape/22-orphans", "escape/25-signal-init", "escape/33-thrash", "escape/34-cpu",
	"escape/66-fuzz", "escape/89-magic-race", "files/[^bcp]*", "lifecycle/c[^s]*-[^s]*", "lifecycle/destroy-during-start", "lifecycle/private-directories",
	"races/[^u]*", "streams/[^bf]*", "trees/[^fp]*", "terminals/[^aks]*", "warm/[^gk]*", "watches/[^e]*"}

func TestConformance(t *testing.T) {
	conformance(t, drivertest.Harness{
		Skips: "testdata/skips.golden",
		KnownFailures: map[string]string{
			"escape/43-interfaces":         "a pod always has an interface; the NetworkPolicy denies its use",
			"escape/65-kernel-information": "the container runtime does not hide /proc/config.gz, and a pod cannot ask for it",
			"escape/97-host-metadata":      "nor does it hide zoneinfo, buddyinfo, the list of tty drivers and the boot id in /proc",
		},
	})
}

// gVisorClass is a RuntimeClass for gVisor.
const gVisorClass = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: gvisor}
handler: runsc
`

func TestConformanceGVisor(t *testing.T) {
	if err := need(t).Apply(t.Context(), gVisorClass); err != nil {
		t.Fatal(err)
	}
	conformance(t, drivertest.Harness{
		Options: map[string]string{optionRuntimeClass: "gvisor"},
		Skips:   "testdata/skips.gvisor.golden",
	})
}

// conformance runs the suite with further options.
func conformance(t *testing.T, h drivertest.Harness) {
	testenv.Need(t, testenv.Cluster, testenv.DebianImage)
	c := cluster.Of(t)
	objects := traces(t, c)
	objects() // the connection is open from here on
	options := testOptions(c)
	maps.Copy(options, h.Options)
	h.Name, h.Options, h.Slow, h.Later, h.Traces = Name, options, true, later, objects
	h.New = func(h driver.Host) (driver.Driver, error) { return New(h) }
	drivertest.Run(t, h)
}
