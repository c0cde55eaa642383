package e2e

import (
	"strconv"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/cluster"
)

// E2B's SDK from PyPI works unmodified with a daemon whose sandboxes are pods, of runc and of
// gVisor.
func TestE2BOverPods(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.TestAll, testenv.DebianImage, testenv.PyE2B, testenv.Python)
	if !cluster.Inside(t, 1, cluster.LoadSandboxes) {
		return
	}
	options := map[string]string{"kubeconfig": cluster.Of(t).Kubeconfig(), "image": cluster.SandboxImage, "agent_image": cluster.AgentImage, "pull": "never"}
	for name, class := range map[string]string{"runc": "", "gvisor": cluster.GVisor} {
		t.Run(name, func(t *testing.T) {
			options["runtime_class"] = class
			var pairs []string
			for k, v := range options {
				pairs = append(pairs, k+": "+strconv.Quote(v))
			}
			settings := []string{"SANDBAR_DRIVER=kubernetes", "SANDBAR_DRIVERS={kubernetes: {" + strings.Join(pairs, ", ") + "}}"}
			runE2BOn(t, 13, settings, []string{"PYTHONPATH=" + testenv.PyE2BPath(), "E2B_TEST_LACKS=git saves"}, "/usr/bin/python3", "client.py", "sync")
		})
	}
}
