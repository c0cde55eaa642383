package v86

import (
	"testing"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/driver/drivertest"
)

// An emulated processor takes minutes for most groups. "make test" runs those of the abilities that
// the driver claims. A pipe carries 1 MB/s on an idle processor and a tenth of it on a busy one, and
// a case sends up to 96 MiB.
func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{
		Name: Name, Slow: true, WaitFactor: 20, Options: testOptions(t), Skips: "testdata/skips.golden",
		New: func(h driver.Host) (driver.Driver, error) { return New(h, nil) },
		Later: []string{"lifecycle/*", "streams/*", "endings/*", "trees/*", "limits/*", "files/*", "races/*", "daemon/*", "escape/*",
			"terminals/all-output", "watches/flood"},
	})
}
