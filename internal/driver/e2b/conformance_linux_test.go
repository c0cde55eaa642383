package e2b

import (
	"testing"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/driver/drivertest"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/e2bservice"
)

func TestConformance(t *testing.T) {
	testenv.Need(t, e2bservice.Needs()...)
	url := serviceURL(t)
	t.Setenv(urlEnv, url)
	binary := agentBinary(t)
	h := drivertest.Harness{
		Name:    Name,
		Options: serviceOptions(url),
		Skips:   "testdata/skips.golden",
		Slow:    true,
		New:     func(h driver.Host) (driver.Driver, error) { return New(h, binary) },
	}
	if s, ok := shared.Running(); ok { // not in the test binary that plays a daemon
		h.Traces = func() []string {
			ids, err := s.Sandboxes()
			if err != nil {
				return []string{err.Error()}
			}
			return ids
		}
	}
	drivertest.Run(t, h)
}
