package wasm

import (
	"testing"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/driver/drivertest"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

const noFIFO = "the case makes a named pipe, and the files of this driver have none"

func TestConformance(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.WasmModules)
	drivertest.Run(t, drivertest.Harness{
		Name:  Name,
		Skips: "testdata/skips.golden",
		New: func(h driver.Host) (driver.Driver, error) {
			if h.Options == nil {
				h.Options = testOptions(t)
			}
			return New(h)
		},
		KnownFailures: map[string]string{
			"files/errors":    noFIFO,
			"files/read-many": noFIFO,
			"files/remove":    noFIFO,
			"files/stat":      noFIFO,
		},
	})
}
