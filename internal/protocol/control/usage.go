package control

import (
	"encoding/json"
	"net/http"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/engine"
)

// usage serves GET /usage: of the caller's tenant, or of one that the operator names.
func (s *Server) usage(r *http.Request) (wire.Usage, error) {
	q, err := query(r, []string{"tenant"})
	if err != nil {
		return wire.Usage{}, err
	}
	c := engine.Client(r.Context())
	tenant := q.Get("tenant")
	switch {
	case c.Tenant != "" && (tenant == "" || tenant == c.Tenant):
		tenant = c.Tenant
	case !c.Operator():
		return wire.Usage{}, &sandbar.Error{Code: sandbar.Denied, Message: "only the operator may read the usage of other tenants", Fix: "leave out the parameter tenant, with a token of the tenant"}
	case tenant == "" || tenant == sandbar.DefaultTenant:
		return wire.Usage{}, invalid("tenant", "the default tenant has no quotas", "name another tenant")
	}
	here, quota := s.engine.TenantUsage(tenant)
	if s.options.Others != nil {
		_, bodies, err := s.options.Others(r)
		if err != nil {
			return wire.Usage{}, err
		}
		others, err := SumUsage(bodies)
		if err != nil {
			return wire.Usage{}, err
		}
		here.Add(others)
	}
	return wire.Usage{Tenant: tenant, Sandboxes: here.Sandboxes, CPUs: here.CPUs, Memory: here.Memory, Disk: here.Disk, Deciding: here.Deciding,
		Quota: wire.Quota{Sandboxes: quota.MaxSandboxes, CPUs: quota.CPUs, Memory: quota.Memory, Disk: quota.Disk}}, nil
}

// SumUsage adds the answers of other daemons to GET /usage. Unavailable: one cannot be read.
func SumUsage(bodies [][]byte) (sum engine.TenantUsage, err error) {
	for _, b := range bodies {
		var u wire.Usage
		if err := json.Unmarshal(b, &u); err != nil {
			return sum, sandbar.Errorf(sandbar.Unavailable, "another daemon answers with a usage that cannot be read: %w", err)
		}
		sum.Add(engine.TenantUsage{Sandboxes: u.Sandboxes, CPUs: u.CPUs, Memory: u.Memory, Disk: u.Disk, Deciding: u.Deciding})
	}
	return sum, nil
}
