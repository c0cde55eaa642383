package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
)

func TestTenants(t *testing.T) {
	const setting = "tenants:\n  - {name: team-a, max_sandboxes: 2, cpus: 1.5, memory: 1 GiB, disk: 2 GiB, rate: 0.5, burst: 4}\n  - {name: b}\n"
	c, err := load(t, setting, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []Tenant{{Name: "team-a", MaxSandboxes: 2, CPUs: 1.5, Memory: 1 << 30, Disk: 2 << 30, Rate: 0.5, Burst: 4}, {Name: "b"}}
	if diff := cmp.Diff(want, c.Tenants); diff != "" {
		t.Error(diff)
	}
	again, err := load(t, c.YAML(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, again.Tenants); diff != "" {
		t.Error("the printed configuration differs:", diff)
	}
	for in, part := range map[string]string{
		"tenants: a":                                "is text where a list is needed",
		"tenants: [{cpus: 1}]":                      "needs a name",
		"tenants: [{name: default}]":                "is the operator's tenant",
		"tenants: [{name: a b}]":                    "a b",
		"tenants: [{name: a, cpu: 1}]":              "cpus",
		"tenants: [{name: a, cpus: 0}]":             "cpus",
		"tenants: [{name: a, memory: 1}]":           "memory",
		"tenants: [{name: a, burst: 1}]":            "has a burst without a rate",
		"tenants: [{name: a}, {name: a, cpus: 1}]":  "is the name of two tenants",
		"tenants: [{name: a, max_sandboxes: none}]": "max_sandboxes",
	} {
		if _, err := load(t, in, nil); sandbar.CodeOf(err) != sandbar.Invalid || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, which lacks %q", in, err, part)
		}
	}
}
