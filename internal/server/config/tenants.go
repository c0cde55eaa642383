package config

import (
	"go.yaml.in/yaml/v4"

	"github.com/sandbar-dev/sandbar"
)

// Tenant has the quotas of one tenant. Zero is none.
type Tenant struct {
	Name                string
	MaxSandboxes, Burst int64
	CPUs, Rate          float64
	Memory, Disk        int64 // bytes
}

var tenantKeys = []string{"name", "max_sandboxes", "cpus", "memory", "disk", "rate", "burst"}

// show returns the set fields of a tenant.
func (t Tenant) show() map[string]any {
	m := map[string]any{"name": t.Name}
	for key, n := range map[string]int64{"max_sandboxes": t.MaxSandboxes, "burst": t.Burst} {
		if n != 0 {
			m[key] = n
		}
	}
	for key, n := range map[string]float64{"cpus": t.CPUs, "rate": t.Rate} {
		if n != 0 {
			m[key] = n
		}
	}
	for key, n := range map[string]int64{"memory": t.Memory, "disk": t.Disk} {
		if n != 0 {
			m[key] = FormatSize(n)
		}
	}
	return m
}

func readTenant(n *yaml.Node) (Tenant, error) {
	var t Tenant
	counts, sizes := bounds[int64]{lo: 1, hi: 1000000}, bounds[int64]{lo: 1 << 20, hi: maxSize}
	numbers := bounds[float64]{lo: 0.001, hi: 1000000}
	err := readParts(n, "a tenant", tenantKeys, map[string]value{
		"name":          text(&t.Name, checkName),
		"max_sandboxes": measure("max_sandboxes", &t.MaxSandboxes, count, counts, "", "").value,
		"cpus":          measure("cpus", &t.CPUs, cpus, numbers, "", "").value,
		"memory":        measure("memory", &t.Memory, size, sizes, "", "").value,
		"disk":          measure("disk", &t.Disk, size, sizes, "", "").value,
		"rate":          measure("rate", &t.Rate, cpus, numbers, "", "").value,
		"burst":         measure("burst", &t.Burst, count, counts, "", "").value,
	})
	switch {
	case err != nil:
	case t.Name == "":
		err = &fault{line: n.Line, why: "needs a name"}
	case t.Name == sandbar.DefaultTenant:
		err = &fault{line: n.Line, got: sandbar.Quote(t.Name, 60), why: "is the operator's tenant, which has the limits of clients"}
	case t.Burst != 0 && t.Rate == 0:
		err = &fault{line: n.Line, why: "has a burst without a rate"}
	}
	return t, err
}
