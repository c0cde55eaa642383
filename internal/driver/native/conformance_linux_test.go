package native

import (
	"os"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/driver/drivertest"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// guestEnv is the environment variable that tells this test binary that it runs in a guest of
// package qemu, whose processor is emulated.
const guestEnv = "NATIVE_TEST_GUEST"

// skips returns the golden file of the cases that are impossible for this user. An ordinary user
// has cgroups only in a guest, and without them sandboxes cannot be saved.
func skips() string {
	if os.Geteuid() == 0 || os.Getenv(guestEnv) != "" {
		return "testdata/skips.root.golden"
	}
	return "testdata/skips.user.golden"
}

func TestConformance(t *testing.T) { conformance(t, agent.ModeSocket, skips()) }

// The same suite with an agent that cannot pass descriptors and sends all data in frames. It has
// the same boundary, so the attacks are not repeated.
func TestConformanceStream(t *testing.T) {
	golden := skips()
	if golden == "testdata/skips.root.golden" {
		golden = "testdata/skips.root.stream.golden" // files are saved through a descriptor
	}
	conformance(t, agent.ModeStream, golden, "escape/*", "limits/*", "trees/many", "races/many-sandboxes")
}

// The same suite in sandboxes of a Debian image.
func TestConformanceImage(t *testing.T) {
	testenv.Need(t, testenv.UserNS, testenv.DebianImage)
	binary := agentBinary(t)
	images := &shelf{dirs: map[string]string{"debian": debianImage(t)}}
	drivertest.Run(t, drivertest.Harness{
		Name:  Name,
		Skips: skips(),
		Trim:  trim,
		New: func(h driver.Host) (driver.Driver, error) {
			h.Images = images
			d, err := New(h, binary)
			if err != nil {
				return nil, err
			}
			return d.withAbilities(), nil
		},
		Spec:  func(s *sandbar.Spec) { s.Image = "debian" },
		Slow:  true, // TestConformance runs the slow cases
		Later: []string{"streams/*", "dial/*", "endings/*", "trees/*", "races/*", "limits/cpu*", "escape/66-fuzz", "escape/34-cpu", "escape/31-memory-children", "escape/46-outbound-forms"},
	})
	if n := images.left(); n != 0 {
		t.Errorf("%d images are left open", n)
	}
}

// trim drops the idle slots.
func trim(d driver.Driver) {
	if n, ok := driver.As[interface{ dropIdle() }](d); ok {
		n.dropIdle()
	}
}

func conformance(t *testing.T, mode, skips string, later ...string) {
	testenv.Need(t, testenv.UserNS, testenv.Python)
	binary := agentBinary(t)
	drivertest.Run(t, drivertest.Harness{
		Name:     Name,
		Skips:    skips,
		Trim:     trim,
		Later:    later,
		Emulated: os.Getenv(guestEnv) != "",
		New: func(h driver.Host) (driver.Driver, error) {
			d, err := New(h, binary)
			if err != nil {
				return nil, err
			}
			d.mode = mode
			return d.withAbilities(), nil
		},
	})
}
