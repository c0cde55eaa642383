package kubernetes

import (
	"slices"
	"testing"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/driver/drivertest"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/cluster"
)

// laterGVisor are further such cases on gVisor: there a case takes three seconds, and some up to a
// minute.
var laterGVisor = []string{"abilities/*", "contexts/*", "dial/*", "endings/*", "files/[^r]*", "lifecycle/[^d]*", "races/*", "streams/*", "terminals/*", "trees/[^p]*", "warm/*", "watches/*",
	"escape/0*", "escape/1[^57]*", "escape/2[^0]*", "escape/31-memory-children", "escape/32-pipes", "escape/4*", "escape/5*", "escape/63-known-holes", "escape/65-*", "escape/89-*", "escape/9[01]-*", "limits/two-at-once"}

// later are the cases of "make test-all" only. A case takes two seconds, those of a pod. What
// remains are the cases of the driver's own parts, all attacks but the longest, and a few of each
// group that tests the agent.
var later = []string{"abilities/decorated", "contexts/[^esk]*", "dial/bad-ports", "dial/neighbours-port", "endings/[^e]*",
	"escape/03-swap-race", "escape/12-big-trees", "escape/20-fork-bomb", "escape/22-orphans", "escape/25-signal-init", "escape/33-thrash", "escape/34-cpu",
	"escape/66-fuzz", "escape/89-magic-race", "files/[^bcp]*", "lifecycle/c[^s]*-[^s]*", "lifecycle/destroy-during-start", "lifecycle/private-directories",
	"races/[^u]*", "streams/[^bf]*", "trees/[^fp]*", "terminals/[^aks]*", "warm/[^gk]*", "watches/[^e]*"}

func TestConformance(t *testing.T) {
	conformance(t, drivertest.Harness{Skips: "testdata/skips.golden", Later: later, KnownFailures: map[string]string{
		"escape/43-interfaces":         "a pod always has an interface; the NetworkPolicy denies its use",
		"escape/65-kernel-information": "the container runtime does not hide /proc/config.gz, and a pod cannot ask for it",
		"escape/97-host-metadata":      "nor does it hide zoneinfo, buddyinfo, the list of tty drivers and the boot id in /proc",
	}})
}

func TestConformanceGVisor(t *testing.T) {
	conformance(t, drivertest.Harness{Skips: "testdata/skips.gvisor.golden", Later: append(slices.Clone(later), laterGVisor...), KnownFailures: map[string]string{
		"escape/15-outer-memory": "the agent has the user of the programs, and gVisor lets them list its descriptors, but not open them",
		"escape/17-devices":      "the FUSE and TUN devices of gVisor's own kernel need capabilities, which no program has; the agent may not remove them",
		"escape/25-signal-init":  "gVisor lets a program signal the first process of its sandbox, which has the same user: a program can end its own sandbox",
		"escape/43-interfaces":   "a pod always has an interface; the NetworkPolicy denies its use",
	}}, optionRuntimeClass, cluster.GVisor)
}

// conformance runs the suite with further options, NAME, VALUE.
func conformance(t *testing.T, h drivertest.Harness, pairs ...string) {
	testenv.Need(t, testenv.Cluster, testenv.DebianImage)
	c := cluster.Of(t)
	objects := traces(t, c)
	objects() // the connection is open from here on
	h.Name, h.Options, h.Slow, h.Traces = Name, with(c, pairs...), true, objects
	h.New = func(h driver.Host) (driver.Driver, error) { return New(h) }
	drivertest.Run(t, h)
}
