package kubernetes

import (
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
	testenv.Need(t, testenv.Cluster, testenv.DebianImage)
	c := cluster.Of(t)
	objects := traces(t, c)
	objects() // the connection is open from here on
	drivertest.Run(t, drivertest.Harness{
		Name:    Name,
		Options: testOptions(c),
		Skips:   "testdata/skips.golden",
		Slow:    true,
		Later:   later,
		KnownFailures: map[string]string{
			"escape/43-interfaces":         "a pod always has an interface; the NetworkPolicy denies its use",
			"escape/65-kernel-information": "the container runtime does not hide /proc/config.gz, and a pod cannot ask for it",
			"escape/97-host-metadata":      "nor does it hide zoneinfo, buddyinfo, the list of tty drivers and the boot id in /proc",
		},
		Traces: objects,
		New:    func(h driver.Host) (driver.Driver, error) { return New(h) },
	})
}
