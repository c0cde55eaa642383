package v86

import (
	"testing"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/driver/drivertest"
)

// An emulated processor takes minutes for most groups. "make test" runs those of the abilities that
// the driver claims.
func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{
		Name: Name, Slow: true, Emulated: true, Options: testOptions(t), Skips: "testdata/skips.golden",
		New: func(h driver.Host) (driver.Driver, error) { return New(h, nil) },
		Later: []string{"lifecycle/*", "streams/*", "endings/*", "trees/*", "limits/*", "files/*", "races/*", "daemon/*", "escape/*",
			"terminals/all-output", "watches/flood"},
	})
}
