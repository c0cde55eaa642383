package engine_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// together returns n engines that serve the tenant a, with these quotas, and a function that
// returns what it has in all.
func together(t *testing.T, n int, quota engine.TenantLimits) (rigs []*rig, usage func() engine.TenantUsage) {
	sum := func(skip int) (all engine.TenantUsage) {
		for i, r := range rigs {
			if i != skip {
				u, _ := r.TenantUsage("a")
				all.Add(u)
			}
		}
		return all
	}
	var made atomic.Bool
	for i := range n {
		r := newPausing(t, saving(), t.TempDir(), func(c *engine.Config) {
			c.Tenants = map[string]engine.TenantLimits{"a": quota}
			c.Elsewhere = func(_ context.Context, tenant string) (engine.TenantUsage, error) {
				if tenant != "a" || !made.Load() {
					t.Errorf("the usage of %q is asked for", tenant)
				}
				time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
				return sum(i), nil
			}
		})
		rigs = append(rigs, r)
	}
	made.Store(true)
	return rigs, func() engine.TenantUsage { return sum(-1) }
}

// Several engines admit together what the quotas of a tenant allow: never more, whatever the moment
// of the requests, and without other requests all of it.
func TestQuotasTogether(t *testing.T) {
	const most = 7
	for name, quota := range map[string]engine.TenantLimits{
		"sandboxes": {MaxSandboxes: most}, "cpus": {CPUs: most * 0.5}, "memory": {Memory: most * 32 << 20}, "disk": {Disk: most * 16 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			rigs, usage := together(t, 3, quota)
			owner := as(t, "a", sandbar.RoleUser)
			spec := sandbar.Spec{Limits: sandbar.Limits{CPUs: 0.5, Memory: 32 << 20, Disk: 16 << 20}}
			job := command("exit", "0")
			job.Spec = spec
			job.Spec.Client = engine.Client(owner)
			var live, ran atomic.Int64
			began := func() {
				if n := live.Add(1); n > most {
					t.Errorf("%d sandboxes", n)
				}
				ran.Add(1)
			}
			var work sync.WaitGroup
			for i := range 24 {
				work.Go(func() {
					for range 20 {
						r := rigs[i%len(rigs)]
						var err error
						if i < 12 {
							var s *engine.Sandbox
							if s, err = r.Create(owner, spec); err == nil {
								began()
								live.Add(-1)
								err = r.Stop(owner, s.ID())
							}
						} else {
							var x *engine.Execution
							if x, err = r.Admit(job); err == nil {
								began()
								live.Add(-1)
								_, err = x.Run(nil)
							}
						}
						if err != nil && sandbar.CodeOf(err) != sandbar.Exhausted {
							t.Error(err)
						}
					}
				})
			}
			work.Wait()
			if ran.Load() == 0 {
				t.Error("no request was admitted")
			}
			if u := usage(); u != (engine.TenantUsage{}) {
				t.Errorf("afterwards %+v", u)
			}
			for i := range most {
				if _, err := rigs[i%2].Create(owner, spec); err != nil {
					t.Error(err)
				}
			}
			for _, r := range rigs {
				_, err := r.Create(owner, spec)
				if e := sandbar.AsError(err); err == nil || e.Code != sandbar.Exhausted || !strings.Contains(e.Message, `tenant "a" exceeds its quota of `+name) {
					t.Errorf("%v", err)
				}
				if _, err := r.Create(as(t, "b", sandbar.RoleUser), spec); err != nil {
					t.Errorf("another tenant: %v", err)
				}
			}
			if u, l := rigs[0].TenantUsage("a"); u.Sandboxes != 4 || u.CPUs != 2 || u.Memory != 128<<20 || u.Disk != 64<<20 || l != quota {
				t.Errorf("the usage is %+v of %+v", u, l)
			}
		})
	}
}

// The space of paused sandboxes in other engines counts, and bounds what a pause may take.
func TestPausedTogether(t *testing.T) {
	rigs, _ := together(t, 2, engine.TenantLimits{Disk: 50 << 20})
	owner := as(t, "a", sandbar.RoleUser)
	spec := func(disk int64) sandbar.Spec { return sandbar.Spec{Limits: sandbar.Limits{Disk: disk}} }
	s, err := rigs[0].Create(owner, spec(40<<20))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rigs[1].Create(owner, spec(20<<20)); sandbar.CodeOf(err) != sandbar.Exhausted {
		t.Error(err)
	}
	other, err := rigs[1].Create(owner, spec(10<<20))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := rigs[0].Pause(owner, s.ID()); err != nil {
			t.Fatal(err)
		}
		if s, err = rigs[0].Resume(owner, s.ID()); err != nil {
			t.Fatal(err)
		}
	}
	if err := rigs[0].SetTenants(map[string]engine.TenantLimits{"a": {Disk: 10 << 20}}); err != nil {
		t.Fatal(err)
	}
	if err := rigs[0].Pause(owner, s.ID()); sandbar.CodeOf(err) != sandbar.Exhausted {
		t.Errorf("a pause without room: %v", err)
	}
	if err := rigs[1].Stop(owner, other.ID()); err != nil {
		t.Error(err)
	}
	if err := rigs[0].Pause(owner, s.ID()); err != nil {
		t.Error(err)
	}
}

// If the other engines cannot be asked, a request of a tenant with a quota fails, and counts for
// nothing.
func TestElsewhereFails(t *testing.T) {
	down := sandbar.Errorf(sandbar.Unavailable, "the other one does not answer")
	r := newRig(t, faulty.New(), func(c *engine.Config) {
		c.Tenants = map[string]engine.TenantLimits{"a": {MaxSandboxes: 2}, "paced": {Rate: 100}}
		c.Elsewhere = func(context.Context, string) (engine.TenantUsage, error) { return engine.TenantUsage{}, down }
	})
	job := command("exit", "0")
	job.Spec.Client = sandbar.Client{Tenant: "a"}
	for range 3 {
		if _, err := r.Create(as(t, "a", sandbar.RoleUser), sandbar.Spec{}); sandbar.CodeOf(err) != sandbar.Unavailable {
			t.Error(err)
		}
		if _, err := r.Admit(job); sandbar.CodeOf(err) != sandbar.Unavailable {
			t.Error(err)
		}
	}
	if u, _ := r.TenantUsage("a"); u != (engine.TenantUsage{}) {
		t.Errorf("%+v", u)
	}
	for _, tenant := range []string{"", "b", "paced"} {
		job.Spec.Client.Tenant = tenant
		if _, err := r.Run(t.Context(), job, nil); err != nil {
			t.Errorf("tenant %q: %v", tenant, err)
		}
	}
}
