package vm

import (
	"os"
	"testing"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/driver/drivertest"
)

// skips returns the golden file for this user. An ordinary user has no cgroups here, and therefore
// other limits.
func skips() string {
	if os.Geteuid() == 0 {
		return "testdata/skips.root.golden"
	}
	return "testdata/skips.user.golden"
}

func TestConformance(t *testing.T) {
	binary := agentBinary(t)
	drivertest.Run(t, drivertest.Harness{
		Name: Name, Skips: skips(), Slow: true, Options: testOptions(t),
		New: func(h driver.Host) (driver.Driver, error) { return New(h, binary) },
	})
}
