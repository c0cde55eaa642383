package native

import (
	"os"
	"testing"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/driver/drivertest"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/testenv"
)

// goldenEnv, when set to "none", leaves the golden files out: in a guest, only a
// part of the suite runs.
const goldenEnv = "NATIVE_TEST_GOLDEN"

// skips is the golden file for this host's user: an ordinary one has no
// cgroups here, and so other limits.
func skips() string {
	if os.Getenv(goldenEnv) == "none" {
		return ""
	}
	if os.Geteuid() == 0 {
		return "testdata/skips.root.golden"
	}
	return "testdata/skips.user.golden"
}

func TestConformance(t *testing.T) { conformance(t, agent.ModeSocket, skips()) }

// The same suite with an agent that cannot pass descriptors: everything then
// travels in frames.
func TestConformanceStream(t *testing.T) { conformance(t, agent.ModeStream, skips()) }

func conformance(t *testing.T, mode, skips string) {
	testenv.Need(t, testenv.UserNS, testenv.Python)
	binary := agentBinary(t)
	drivertest.Run(t, drivertest.Harness{
		Name:  Name,
		Skips: skips,
		New: func(h driver.Host) (driver.Driver, error) {
			d, err := New(h, binary)
			if err != nil {
				return nil, err
			}
			d.mode = mode
			return d, nil
		},
	})
}
