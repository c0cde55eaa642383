package kubernetes

import (
	"context"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/driver"
)

// fact returns the fact with this name.
func fact(t *testing.T, facts []driver.Fact, name string) driver.Fact {
	t.Helper()
	for _, f := range facts {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("there is no fact %s in %v", name, facts)
	return driver.Fact{}
}

// The doctor tells what the cluster enforces, and the fix for the rest.
func TestInspect(t *testing.T) {
	c := need(t)
	facts := newDriver(t, testOptions(c)).Inspect(t.Context(), true)
	for name, says := range map[string]string{
		"cluster": "Kubernetes \"v1.", "rights": "the account has all", "network": "NetworkPolicy objects hold",
		"limit of memory": "enforced by cgroup", "limit of processors": "enforced by cgroup", "agent": agentImage, "a sandbox": "created in ",
		"namespace": "default, pod security \"not enforced\"",
	} {
		if f := fact(t, facts, name); !strings.Contains(f.State, says) || (f.Fix != "") != (name == "namespace") {
			t.Errorf("%+v, want %q", f, says)
		}
	}
	if _, err := c.Kubectl(t.Context(), "label", "namespace", "default", enforceLabel+"=restricted"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := c.Kubectl(context.Background(), "label", "namespace", "default", enforceLabel+"-"); err != nil {
			t.Error(err)
		}
	})
	if err := c.Isolate(false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Isolate(true); err != nil {
			t.Error(err)
		}
	})
	facts = newDriver(t, testOptions(c)).Inspect(t.Context(), false)
	if f := fact(t, facts, "network"); !strings.Contains(f.State, "do not hold") || !strings.Contains(f.Fix, "Calico") {
		t.Errorf("%+v", f)
	}
	if f := fact(t, facts, "namespace"); !strings.Contains(f.State, "restricted") || f.Fix != "" {
		t.Errorf("%+v", f)
	}
}
