package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// as returns a context of a caller.
func as(t testing.TB, tenant string, role sandbar.Role) context.Context {
	return engine.WithClient(t.Context(), sandbar.Client{Name: "of-" + tenant, Tenant: tenant, Role: role})
}

// attempt is a call of a method for a sandbox, with a caller in ctx.
type attempt struct {
	reads bool // a caller that may only read can call it
	call  func(ctx context.Context, r *rig, s *engine.Sandbox) error
}

func attempts() map[string]attempt {
	spec := func(ctx context.Context) sandbar.Spec { return sandbar.Spec{Client: engine.Client(ctx)} }
	file := func(reads bool, call func(ctx context.Context, f sandbar.FS) error) attempt {
		return attempt{reads, func(ctx context.Context, _ *rig, s *engine.Sandbox) error { return call(ctx, s.FS()) }}
	}
	owned := func(call func(ctx context.Context, f sandbar.FS) error) attempt { return file(false, call) }
	cmd := sandbar.Cmd{Args: []string{"exit", "0"}}
	return map[string]attempt{
		"Engine.CreateFrom": {false, func(ctx context.Context, r *rig, s *engine.Sandbox) error {
			_, err := r.CreateFrom(ctx, s.ID(), engine.FromPaused{Client: spec(ctx).Client})
			return err
		}},
		"Engine.Fork": {false, func(ctx context.Context, r *rig, s *engine.Sandbox) error {
			_, err := r.Fork(ctx, s.ID(), 1)
			return err
		}},
		"Engine.Get": {true, func(ctx context.Context, r *rig, s *engine.Sandbox) error {
			_, err := r.Get(ctx, s.ID())
			return err
		}},
		"Engine.Visible": {true, func(ctx context.Context, r *rig, s *engine.Sandbox) error { return found(r.Visible(ctx, s.ID())) }},
		"Engine.List": {true, func(ctx context.Context, r *rig, s *engine.Sandbox) error {
			return found(slices.ContainsFunc(r.List(ctx), func(i engine.Info) bool { return i.ID == s.ID() }))
		}},
		"Engine.Paused": {true, func(ctx context.Context, r *rig, s *engine.Sandbox) error {
			own, err := r.Create(engine.WithClient(context.Background(), s.Info().Spec.Client), sandbar.Spec{})
			if err == nil {
				err = r.Engine.Pause(context.Background(), own.ID())
			}
			if err != nil {
				return err
			}
			listed := slices.ContainsFunc(r.Paused(ctx), func(p engine.Paused) bool { return p.ID == own.ID() })
			return errors.Join(r.Stop(context.Background(), own.ID()), found(listed))
		}},
		"Engine.Pause": {false, func(ctx context.Context, r *rig, s *engine.Sandbox) error { return r.Pause(ctx, s.ID()) }},
		"Engine.Resume": {false, func(ctx context.Context, r *rig, s *engine.Sandbox) error {
			_, err := r.Resume(ctx, s.ID())
			return err
		}},
		"Engine.SetPausedNote": {false, func(ctx context.Context, r *rig, s *engine.Sandbox) error { return r.SetPausedNote(ctx, s.ID(), nil) }},
		"Engine.Stop":          {false, func(ctx context.Context, r *rig, s *engine.Sandbox) error { return r.Stop(ctx, s.ID()) }},
		"Engine.Events": {true, func(ctx context.Context, r *rig, s *engine.Sandbox) error {
			events, err := r.Events(ctx, engine.Oldest)
			if err != nil {
				return err
			}
			ended, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
			defer cancel()
			_, err = events.Next(ended, func(v *engine.Event) bool { return v.Sandbox == s.ID() && v.Type == engine.EventCreated })
			return found(err == nil)
		}},
		"Sandbox.CreateContext": {false, func(ctx context.Context, _ *rig, s *engine.Sandbox) error {
			_, err := s.CreateContext(ctx, engine.ContextSpec{})
			return err
		}},
		"Sandbox.CurrentMemory": {true, func(ctx context.Context, _ *rig, s *engine.Sandbox) error {
			_, err := s.CurrentMemory(ctx)
			return err
		}},
		"Sandbox.Measure": {true, func(ctx context.Context, _ *rig, s *engine.Sandbox) error {
			_, err := s.Measure(ctx)
			return err
		}},
		"Sandbox.DialPort": {false, func(ctx context.Context, _ *rig, s *engine.Sandbox) error {
			_, err := s.DialPort(ctx, 1)
			return err
		}},
		"Sandbox.Exec": {false, func(ctx context.Context, _ *rig, s *engine.Sandbox) error {
			_, err := s.Exec(ctx, cmd, nil, sandbar.Limits{}, nil)
			return err
		}},
		"Sandbox.Reset":    {false, func(ctx context.Context, _ *rig, s *engine.Sandbox) error { return s.Reset(ctx) }},
		"Sandbox.Restrict": {false, func(ctx context.Context, _ *rig, s *engine.Sandbox) error { return s.Restrict(ctx, sandbar.Egress{}) }},
		"Sandbox.Start": {false, func(ctx context.Context, _ *rig, s *engine.Sandbox) error {
			_, err := s.Start(ctx, cmd, nil, sandbar.Limits{})
			return err
		}},
		"Sandbox.StartSink": {false, func(ctx context.Context, _ *rig, s *engine.Sandbox) error {
			_, err := s.StartSink(ctx, cmd, nil, sandbar.Limits{}, nil)
			return err
		}},
		"FS.Open": file(true, func(ctx context.Context, f sandbar.FS) error {
			x, err := f.Open(ctx, "f")
			if err == nil {
				x.Close()
			}
			return err
		}),
		"FS.Create": owned(func(ctx context.Context, f sandbar.FS) error {
			x, err := f.Create(ctx, "g", sandbar.CreateOptions{})
			if err == nil {
				x.Abort()
			}
			return err
		}),
		"FS.Stat":    file(true, func(ctx context.Context, f sandbar.FS) error { _, err := f.Stat(ctx, "f"); return err }),
		"FS.ReadDir": file(true, func(ctx context.Context, f sandbar.FS) error { _, err := f.ReadDir(ctx, ".", "", 9); return err }),
		"FS.Mkdir":   owned(func(ctx context.Context, f sandbar.FS) error { return f.Mkdir(ctx, "d", 0o755, false) }),
		"FS.Remove":  owned(func(ctx context.Context, f sandbar.FS) error { return f.Remove(ctx, "f", false) }),
		"FS.Rename":  owned(func(ctx context.Context, f sandbar.FS) error { return f.Rename(ctx, "f", "h") }),
		"FS.Chmod":   owned(func(ctx context.Context, f sandbar.FS) error { return f.Chmod(ctx, "f", fs.FileMode(0o600), false) }),
		"FS.ReadFiles": file(true, func(ctx context.Context, f sandbar.FS) error {
			_, err := f.(sandbar.BatchReader).ReadFiles(ctx, []string{"f"}, 9)
			return err
		}),
		"FS.Chown":     owned(func(ctx context.Context, f sandbar.FS) error { return f.(sandbar.Owner).Chown(ctx, "f", 1, 1, false) }),
		"FS.RenameNew": owned(func(ctx context.Context, f sandbar.FS) error { return f.(sandbar.Mover).RenameNew(ctx, "f", "h") }),
		"FS.Watch": file(true, func(ctx context.Context, f sandbar.FS) error {
			w, err := f.(sandbar.FileWatcher).Watch(ctx, ".", false)
			if err == nil {
				w.Close()
			}
			return err
		}),
	}
}

// found is nil if something is found, and NotFound otherwise.
func found(ok bool) error {
	if ok {
		return nil
	}
	return sandbar.Errorf(sandbar.NotFound, "not found")
}

// untried are the methods without a caller: they concern the whole engine, or are called after
// another method has found the sandbox.
var untried = []string{"Engine.Admit", "Engine.Available", "Engine.BeginRequest", "Engine.Caps", "Engine.ClientStats", "Engine.Create", "Engine.DriverStats", "Engine.Drivers", "Engine.Languages", "Engine.Limits", "Engine.Owner", "Engine.Probe",
	"Engine.Run", "Engine.Saves", "Engine.SetClients", "Engine.SetTenants", "Engine.Shutdown", "Engine.Stats", "Engine.StatsOf", "Engine.Suspend", "Engine.Templates", "Engine.TenantUsage",
	"Sandbox.Context", "Sandbox.Contexts", "Sandbox.Done", "Sandbox.End", "Sandbox.FS", "Sandbox.Hold", "Sandbox.ID", "Sandbox.Info", "Sandbox.Process", "Sandbox.Processes", "Sandbox.SetNote"}

// Every method that finds or uses a sandbox refuses it to other tenants as one that does not exist,
// and changes nothing for a caller that may only read. The operator may call all of them. A new
// method must be added here.
func TestOwners(t *testing.T) {
	all := attempts()
	r := newPausing(t, saving(), t.TempDir(), nil)
	owner := as(t, "a", sandbar.RoleUser)
	s, err := r.Create(owner, sandbar.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	for of, v := range map[string]any{"Engine": r.Engine, "Sandbox": s, "FS": s.FS()} {
		for i := range reflect.TypeOf(v).NumMethod() {
			name := of + "." + reflect.TypeOf(v).Method(i).Name
			if _, ok := all[name]; !ok && !slices.Contains(untried, name) {
				t.Errorf("%s is not tried", name)
			}
		}
	}
	save(t, s, "f", "kept")
	for name, x := range all {
		for _, role := range append(sandbar.Roles, sandbar.RoleNone, "unknown") {
			want := sandbar.NotFound
			if err := x.call(as(t, "b", role), r, s); sandbar.CodeOf(err) != want {
				t.Errorf("%s by %s of another tenant: %v, want %s", name, role, err, want)
			}
		}
		for _, other := range []sandbar.Client{{Role: sandbar.RoleUser}, {Role: sandbar.RoleReadOnly}, {Role: sandbar.RoleNone},
			{Tenant: "a", Role: sandbar.RoleNone}, {Tenant: "a", Role: "unknown"}, {Tenant: "a", Role: sandbar.RoleUser, Sandbox: sandbar.NewID()}} {
			if err := x.call(engine.WithClient(t.Context(), other), r, s); sandbar.CodeOf(err) != sandbar.NotFound {
				// The secret of a sandbox opens no other one, and makes none.
				if name != "Engine.CreateFrom" || sandbar.CodeOf(err) != sandbar.Denied {
					t.Errorf("%s by %+v: %v, want not_found", name, other, err)
				}
			}
		}
		err := x.call(as(t, "a", sandbar.RoleReadOnly), r, s)
		if denied := sandbar.CodeOf(err) == sandbar.Denied; denied == x.reads || x.reads && sandbar.CodeOf(err) == sandbar.NotFound {
			t.Errorf("%s by a reader of the tenant: %v", name, err)
		}
	}
	if got := content(t, s, "f"); got != "kept" || len(s.Processes())+len(s.Contexts())+len(r.Paused(t.Context())) > 0 || len(r.List(t.Context())) != 1 {
		t.Errorf("something has changed: %q, %v", got, r.List(t.Context()))
	}
	for name, x := range all {
		for who, ctx := range map[string]context.Context{"operator": engine.WithClient(t.Context(), sandbar.Client{Role: sandbar.RoleAdmin}), "user": owner} {
			s, err := r.Create(owner, sandbar.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			save(t, s, "f", "kept")
			switch name {
			case "Engine.Resume", "Engine.SetPausedNote", "Engine.CreateFrom":
				err = r.Pause(ctx, s.ID())
			}
			if err == nil {
				err = x.call(ctx, r, s)
			}
			if code := sandbar.CodeOf(err); code == sandbar.NotFound || code == sandbar.Denied {
				t.Errorf("%s by the %s: %v", name, who, err)
			}
			if err := r.Stop(t.Context(), s.ID()); err != nil && sandbar.CodeOf(err) != sandbar.NotFound {
				t.Error(err)
			}
		}
		for _, i := range r.List(t.Context()) {
			if i.ID != s.ID() {
				if err := r.Stop(t.Context(), i.ID); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// A sandbox belongs to the caller that creates it, whatever its Spec says, and so do its copies,
// also those that the operator makes. A caller that may only read creates none.
func TestOwnerOfNew(t *testing.T) {
	r := newPausing(t, saving(), t.TempDir(), nil)
	s, err := r.Create(as(t, "a", sandbar.RoleUser), sandbar.Spec{Client: sandbar.Client{Tenant: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	forks, err := r.Fork(t.Context(), s.ID(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []*engine.Sandbox{s, forks[0]} {
		if c, ok := r.Owner(x.ID()); !ok || c.Tenant != "a" {
			t.Errorf("the owner is %+v, %v", c, ok)
		}
	}
	for _, c := range []sandbar.Client{{Tenant: "a", Role: sandbar.RoleReadOnly}, {Role: sandbar.RoleNone}, {Tenant: "a", Role: sandbar.RoleUser, Sandbox: s.ID()}} {
		if _, err := r.Create(engine.WithClient(t.Context(), c), sandbar.Spec{}); sandbar.CodeOf(err) != sandbar.Denied {
			t.Errorf("%+v: %v", c, err)
		}
		job := command("exit", "0")
		if job.Spec.Client = c; c.Sandbox == "" {
			if _, err := r.Admit(job); sandbar.CodeOf(err) != sandbar.Denied {
				t.Errorf("%+v: %v", c, err)
			}
		}
	}
}

// Paused sandboxes keep their owner over a restart, and count towards its quota of disk.
func TestOwnersOverRestart(t *testing.T) {
	dir, d := t.TempDir(), saving()
	quota := func(c *engine.Config) { c.Tenants = map[string]engine.TenantLimits{"a": {Disk: 100 << 20}} }
	spec := sandbar.Spec{Limits: sandbar.Limits{Disk: 60 << 20}}
	owner := as(t, "a", sandbar.RoleUser)
	var id sandbar.ID
	t.Run("first", func(t *testing.T) {
		r := newPausing(t, d, dir, quota)
		s, err := r.Create(owner, spec)
		if err != nil {
			t.Fatal(err)
		}
		save(t, s, "f", "kept")
		if err := r.Pause(owner, s.ID()); err != nil {
			t.Fatal(err)
		}
		id = s.ID()
	})
	r := newPausing(t, d, dir, quota)
	if p := r.Paused(as(t, "b", sandbar.RoleAdmin)); len(p) > 0 {
		t.Error("another tenant sees", p)
	}
	if _, err := r.Resume(as(t, "b", sandbar.RoleAdmin), id); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Error(err)
	}
	if p := r.Paused(owner); len(p) != 1 || p[0].ID != id {
		t.Fatal("the owner sees", p)
	}
	s, err := r.Resume(owner, id)
	if err != nil {
		t.Fatal(err)
	}
	if got := content(t, s, "f"); got != "kept" {
		t.Error(got)
	}
	_, err = r.Create(owner, spec) // the resumed one takes 60 of 100 MiB, and not its state any more
	if e := sandbar.AsError(err); e.Code != sandbar.Exhausted || !strings.Contains(e.Message, "in use 60 MiB, allowed 100 MiB") {
		t.Error(err)
	}
}

// Of simultaneous requests exactly as many are admitted as the quotas of a tenant allow, whatever
// the kind of the sandbox. Others are Exhausted, with the numbers; other tenants are not affected.
// What ends frees its part.
func TestQuotas(t *testing.T) {
	limits := sandbar.Limits{CPUs: 0.5, Memory: 32 << 20, Disk: 16 << 20}
	for name, x := range map[string]struct {
		quota   engine.TenantLimits
		most    int
		message string
	}{
		"sandboxes": {engine.TenantLimits{MaxSandboxes: 3}, 3, `tenant "a" exceeds its quota of sandboxes: asked 1, in use 3, allowed 3`},
		"cpus":      {engine.TenantLimits{CPUs: 2.2}, 4, `tenant "a" exceeds its quota of cpus: asked 0.5, in use 2, allowed 2.2`},
		"memory":    {engine.TenantLimits{Memory: 100 << 20}, 3, `tenant "a" exceeds its quota of memory: asked 32 MiB, in use 96 MiB, allowed 100 MiB`},
		"disk":      {engine.TenantLimits{Disk: 40 << 20}, 2, `tenant "a" exceeds its quota of disk: asked 16 MiB, in use 32 MiB, allowed 40 MiB`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, faulty.New(), func(c *engine.Config) { c.Tenants = map[string]engine.TenantLimits{"a": x.quota} })
			spec := sandbar.Spec{Limits: limits}
			crowd := func() (ids []sandbar.ID) {
				var mu sync.Mutex
				var work sync.WaitGroup
				for range 20 {
					work.Go(func() {
						s, err := r.Create(as(t, "a", sandbar.RoleUser), spec)
						mu.Lock()
						defer mu.Unlock()
						if err == nil {
							ids = append(ids, s.ID())
						} else if e := sandbar.AsError(err); e.Code != sandbar.Exhausted || e.Message != x.message {
							t.Error(err)
						}
					})
				}
				work.Wait()
				return ids
			}
			ids := crowd()
			if len(ids) != x.most {
				t.Errorf("%d sandboxes, want %d", len(ids), x.most)
			}
			job := command("exit", "0")
			job.Spec = spec
			job.Spec.Client = sandbar.Client{Tenant: "a"}
			if _, err := r.Admit(job); sandbar.CodeOf(err) != sandbar.Exhausted {
				t.Error("an execution beyond the quota:", err)
			}
			for _, c := range []sandbar.Client{{}, {Tenant: "b"}} {
				job.Spec.Client = c
				if _, err := r.Run(t.Context(), job, nil); err != nil {
					t.Errorf("%+v: %v", c, err)
				}
			}
			for _, id := range ids {
				if err := r.Stop(t.Context(), id); err != nil {
					t.Error(err)
				}
			}
			job.Spec.Client = sandbar.Client{Tenant: "a"}
			if _, err := r.Run(t.Context(), job, nil); err != nil {
				t.Error("after the end of all:", err)
			}
			if err := r.SetTenants(map[string]engine.TenantLimits{"a": {MaxSandboxes: 1}}); err != nil {
				t.Fatal(err)
			}
			s, err := r.Create(as(t, "a", sandbar.RoleUser), spec)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Create(as(t, "a", sandbar.RoleAdmin), spec); sandbar.CodeOf(err) != sandbar.Exhausted {
				t.Error("beyond the new quota:", err)
			}
			if got := r.StatsOf(as(t, "a", sandbar.RoleUser)); got.Sandboxes != 1 || got.Capacity != 1 {
				t.Errorf("%+v", got)
			}
			if got := r.ClientStats(as(t, "a", sandbar.RoleReadOnly)); len(got) != 1 || got[0].Tenant != "a" || got[0].Name != "" || got[0].Sandboxes != 1 {
				t.Errorf("the clients of the tenant are %+v", got)
			}
			if got := r.ClientStats(as(t, "b", sandbar.RoleUser)); slices.ContainsFunc(got, func(c engine.ClientStats) bool { return c.Tenant != "b" }) {
				t.Errorf("another tenant sees the clients %+v", got)
			}
			if got := r.ClientStats(t.Context()); !slices.ContainsFunc(got, func(c engine.ClientStats) bool { return c.Tenant == "a" && c.Sandboxes == 1 }) {
				t.Errorf("the daemon itself sees the clients %+v", got)
			}
			if got := r.StatsOf(as(t, "b", sandbar.RoleUser)); got.Sandboxes != 0 {
				t.Errorf("%+v", got)
			}
			if err := r.Stop(t.Context(), s.ID()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A sandbox without a limit cannot be counted, so a quota refuses it.
func TestQuotaNeedsLimits(t *testing.T) {
	r := newRig(t, faulty.New(), func(c *engine.Config) { c.Tenants = map[string]engine.TenantLimits{"a": {CPUs: 4}} })
	_, err := r.Create(as(t, "a", sandbar.RoleUser), sandbar.Spec{Limits: sandbar.Limits{CPUs: sandbar.Unlimited}})
	if e := sandbar.AsError(err); e.Code != sandbar.Invalid || e.Field != "limits.cpus" {
		t.Error(err)
	}
	for _, bad := range []map[string]engine.TenantLimits{{"": {MaxSandboxes: 1}}, {"a": {CPUs: -1}}, {"a": {Memory: -1}}, {"a": {Rate: -1}}} {
		if err := r.SetTenants(bad); sandbar.CodeOf(err) != sandbar.Invalid {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// The rate of a tenant is that of all its tokens together.
func TestRateOfTenant(t *testing.T) {
	r := newRig(t, faulty.New(), func(c *engine.Config) { c.Tenants = map[string]engine.TenantLimits{"a": {Rate: 0.001, Burst: 2}} })
	var codes []string
	for i := range 3 {
		job := command("exit", "0")
		job.Spec.Client = sandbar.Client{Tenant: "a", Name: fmt.Sprint(i)}
		_, err := r.Run(t.Context(), job, nil)
		codes = append(codes, string(sandbar.CodeOf(err)))
	}
	if got := strings.Join(codes, " "); got != "  exhausted" {
		t.Errorf("%q", got)
	}
}
