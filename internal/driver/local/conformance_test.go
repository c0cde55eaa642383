package local_test

import (
	"testing"

	"github.com/sandbar-dev/sandbar/driver/drivertest"
	"github.com/sandbar-dev/sandbar/internal/driver/local"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

func TestConformance(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	drivertest.Run(t, drivertest.Harness{
		Name:  local.Name,
		New:   local.New,
		Skips: "testdata/skips.golden",
	})
}
