package kubernetes

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/cluster"
)

// Pods on gVisor have the same limits, each of which New has tried. The node's kernel counts what
// they use of the processors.
func TestGVisor(t *testing.T) {
	c := need(t)
	d := newDriver(t, with(c, optionRuntimeClass, cluster.GVisor))
	caps := d.Caps()
	want := sandbar.Enforcements{Memory: sandbar.EnforcedWatchdog, CPUs: sandbar.EnforcedRuntime, CPUShares: sandbar.EnforcedNone, PIDs: sandbar.EnforcedRlimit,
		Disk: sandbar.EnforcedMount, Inodes: sandbar.EnforcedNone, Files: sandbar.EnforcedRlimit}
	if caps.Boundary != driver.BoundaryGVisor || caps.Enforced != want {
		t.Errorf("caps %+v", caps)
	}
	s := spec()
	s.Limits.CPUs = 0.1
	b := newSandbox(t, d, s)
	pod := podOf(t, d)
	used := func() time.Duration {
		t.Helper()
		n, err := strconv.Atoi(strings.TrimPrefix(pod.Spec.NodeName, "node"))
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.OnNode(n, fmt.Sprintf("cat /sys/fs/cgroup/cpuacct/*-%d/kubepods/burstable/pod%s/cpuacct.usage", n, pod.UID))
		if err != nil {
			t.Fatal(err)
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		return time.Duration(ns)
	}
	before, began := used(), time.Now()
	run(t, b, "for i in 1 2 3 4; do (while :; do :; done) & done; sleep 4; kill $(jobs -p)")
	if share := float64(used()-before) / float64(time.Since(began)); share > 0.15 || share < 0.01 {
		t.Errorf("busy programs with a limit of 0.1 processors had %.3f", share)
	}
}

// A runtime class whose name does not tell that it is gVisor's is found out.
func TestGVisorByAnotherName(t *testing.T) {
	c := need(t)
	if err := c.Apply(t.Context(), "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: strict}, handler: runsc}"); err != nil {
		t.Fatal(err)
	}
	d := newDriver(t, with(c, optionRuntimeClass, "strict"))
	if caps := d.Caps(); caps.Boundary != driver.BoundaryGVisor || caps.Enforced.CPUs == sandbar.EnforcedNone {
		t.Errorf("caps %+v", caps)
	}
}
