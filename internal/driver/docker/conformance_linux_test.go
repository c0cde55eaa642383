package docker

import (
	"testing"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/driver/drivertest"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/dockerd"
)

func TestConformance(t *testing.T) {
	testenv.Need(t, testenv.Docker, testenv.DebianImage)
	host := engineHost(t)
	t.Setenv(hostEnv, host)
	binary := agentBinary(t)
	h := drivertest.Harness{
		Name:    Name,
		Options: map[string]string{optionHost: host, optionImage: dockerd.Image},
		Skips:   "testdata/skips.golden",
		Slow:    true,
		Later: []string{"abilities/decorated", "dial/bad-ports", "dial/neighbours-port", "endings/exit-codes", "endings/numbers", "endings/orphans",
			"escape/03-swap-race", "escape/12-big-trees", "escape/22-orphans", "escape/31-memory-children", "escape/33-thrash", "escape/34-cpu", "escape/66-fuzz",
			"files/big-file", "lifecycle/create-destroy-many", "lifecycle/create-empty", "limits/cpu_shares", "races/many-sandboxes", "races/signals-and-ends",
			"streams/one-line", "streams/slow-reader", "trees/busy-neighbours", "trees/many", "warm/once-*", "warm/refuses-*", "warm/strangers-*", "warm/killed-*"},
		New: func(h driver.Host) (driver.Driver, error) { return New(h, binary) },
	}
	if e, ok := shared.Running(); ok { // not in the test binary that plays a daemon
		h.Traces = func() []string { return traces(e) }
	}
	drivertest.Run(t, h)
}
