package kubernetes

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/cluster"
)

// with returns options with changes, NAME, VALUE.
func with(c *cluster.Cluster, pairs ...string) map[string]string {
	o := maps.Clone(testOptions(c))
	for i := 0; i < len(pairs); i += 2 {
		o[pairs[i]] = pairs[i+1]
	}
	return o
}

// need returns the cluster, or skips.
func need(t testing.TB) *cluster.Cluster {
	t.Helper()
	testenv.Need(t, testenv.Cluster, testenv.DebianImage)
	return cluster.Of(t)
}

// run runs a shell script in a sandbox and returns its result and output.
func run(t *testing.T, b driver.Sandbox, script string) (sandbar.Result, string) {
	t.Helper()
	var out strings.Builder
	p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", script}}, driver.Stdio{Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return r, out.String()
}

// newSandbox makes a sandbox that is destroyed at the test's end.
func newSandbox(t *testing.T, d *Driver, s sandbar.Spec) driver.Sandbox {
	t.Helper()
	b, err := d.Create(t.Context(), sandbar.NewID(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// wantLost waits until a sandbox is dead, whose program must be lost.
func wantLost(t *testing.T, b driver.Sandbox, p driver.Process) {
	t.Helper()
	w, _ := driver.As[driver.Watcher](b)
	select {
	case <-w.Dead():
	case <-time.After(time.Minute):
		t.Fatal("the sandbox is not dead")
	}
	if r, err := p.Wait(); err != nil || r.Outcome != sandbar.Lost {
		t.Errorf("the program: %+v, %v", r, err)
	}
}

// The agent can be copied by an init container.
func TestCopied(t *testing.T) {
	d := newDriver(t, with(need(t), optionAgentBy, byCopy))
	if r, out := run(t, newSandbox(t, d, spec()), "echo up; id -u"); r.ExitCode != 0 || !strings.HasPrefix(out, "up\n") {
		t.Errorf("%+v, %q", r, out)
	}
}

// noVolumes forbids pods with an image volume. The API server applies a policy a moment after it
// exists.
const noVolumes = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-image-volumes}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{expression: "!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.image))"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-image-volumes}
spec: {policyName: no-image-volumes, validationActions: [Deny]}`

// moreMemory raises the memory limit of pods.
const moreMemory = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: more-memory}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        [JSONPatch{op: "replace", path: "/spec/containers/1/resources/limits/memory", value: "199Mi"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: more-memory}
spec: {policyName: more-memory}`

// apply applies a policy for the rest of the test, and waits until the API server obeys it: until
// it creates a pod otherwise than without it.
func apply(t *testing.T, c *cluster.Cluster, policy string, obeyed func() bool) {
	t.Helper()
	if err := c.Apply(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	await := func(want bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); obeyed() != want; time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the API server does not notice the policy, or its end: %v", want)
			}
		}
	}
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), policy); err != nil {
			t.Error(err)
		}
		await(false)
	})
	await(true)
}

// dryRun creates the pod of a sandbox without storing it.
func dryRun(t *testing.T, d *Driver) (*corev1.Pod, error) {
	t.Helper()
	var made corev1.Pod
	err := d.api.core.Post().Namespace(d.api.namespace).Resource(pods).Param("dryRun", "All").Body(d.pod("sandbar-dry-run", "sb_dry", spec(), 123456)).Do(context.Background()).Into(&made)
	return &made, err
}

// If the cluster refuses image volumes, an init container copies the agent by itself.
func TestAgentAuto(t *testing.T) {
	c := need(t)
	first := newDriver(t, testOptions(c))
	if first.opt.agentBy != byVolume {
		t.Errorf("the agent is put into pods by %s", first.opt.agentBy)
	}
	apply(t, c, noVolumes, func() bool { _, err := dryRun(t, first); return err != nil })
	d := newDriver(t, testOptions(c))
	if r, _ := run(t, newSandbox(t, d, spec()), "exit 5"); d.opt.agentBy != byCopy || r.ExitCode != 5 {
		t.Errorf("by %s: %+v", d.opt.agentBy, r)
	}
	if d, err := New(driver.Host{Options: with(c, optionAgentBy, byVolume)}); sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Errorf("with %s: %v", byVolume, err)
		if err == nil {
			_ = d.Close()
		}
	}
}

// A pod whose limits the cluster changes is refused.
func TestChangedLimit(t *testing.T) {
	c := need(t)
	d := newDriver(t, testOptions(c))
	apply(t, c, moreMemory, func() bool {
		p, err := dryRun(t, d)
		return err == nil && p.Spec.Containers[1].Resources.Limits.Memory().Value() == 199<<20
	})
	b, err := d.Create(t.Context(), sandbar.NewID(), spec())
	if e := sandbar.AsError(err); err == nil || e.Code != sandbar.Unsupported || !strings.Contains(e.Message, "199Mi instead of 128Mi") || e.Fix == "" {
		t.Errorf("got %v", err)
		if err == nil {
			_ = b.Destroy(t.Context())
		}
	}
}

// A pod has no credentials of the cluster and none of the daemon, and its root is read-only.
func TestInside(t *testing.T) {
	d := newDriver(t, testOptions(need(t)))
	_, out := run(t, newSandbox(t, d, spec()), `
ls /var/run/secrets /run/secrets /run/sandbar-keys 2>/dev/null
env | grep -i -e kube -e pod_uid -e gomaxprocs
env | grep -e SANDBAR_TEST -e ^HOME | sort
touch /x 2>/dev/null && echo writable
grep -e CapEff -e NoNewPrivs -e Seccomp: /proc/self/status`)
	if want := "HOME=/home/user\n" + cluster.SandboxEnv + "\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

// Without a network that obeys policies, the driver says so and refuses sandboxes, unless the
// caller accepts that.
func TestPolicyIgnored(t *testing.T) {
	c := need(t)
	if err := c.Isolate(false); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Isolate(true); err != nil {
			t.Error(err)
		}
	}()
	d := newDriver(t, testOptions(c))
	if caps := d.Caps(); caps.PrivateNetwork || !strings.Contains(strings.Join(caps.Notes, "\n"), "NetworkPolicy") {
		t.Errorf("caps %+v", caps)
	}
	_, err := d.Create(t.Context(), sandbar.NewID(), spec())
	if e := sandbar.AsError(err); err == nil || e.Code != sandbar.Unsupported || e.Field != "network" || e.Fix == "" {
		t.Errorf("got %v", err)
	}
	s := spec()
	s.AllowDegraded = true
	if r, _ := run(t, newSandbox(t, d, s), "exit 5"); r.ExitCode != 5 {
		t.Errorf("%+v", r)
	}
}

// What the cluster cannot do is a typed error, and nothing remains of it.
func TestRefused(t *testing.T) {
	c := need(t)
	d := newDriver(t, with(c, optionImages, "sandbar.test/missing:1"))
	objects := traces(t, c)
	before := len(objects())
	for name, x := range map[string]struct {
		change func(*sandbar.Spec)
		code   sandbar.Code
	}{
		"unknown image":   {func(s *sandbar.Spec) { s.Image = "other" }, sandbar.NotFound},
		"missing image":   {func(s *sandbar.Spec) { s.Image = "sandbar.test/missing:1" }, sandbar.NotFound},
		"no room":         {func(s *sandbar.Spec) { s.Limits.Memory = 1 << 50 }, sandbar.Exhausted},
		"a network":       {func(s *sandbar.Spec) { s.Network = sandbar.NetworkOutbound }, sandbar.Unsupported},
		"inodes":          {func(s *sandbar.Spec) { s.Limits.Inodes = 100 }, sandbar.Unsupported},
		"too little":      {func(s *sandbar.Spec) { s.Limits.Memory = 1 << 20 }, sandbar.Unsupported},
		"too many files":  {func(s *sandbar.Spec) { s.Limits.Files = 1 << 40 }, sandbar.Unsupported},
		"unknown network": {func(s *sandbar.Spec) { s.Network = "moon" }, sandbar.Invalid},
	} {
		s := spec()
		x.change(&s)
		b, err := d.Create(t.Context(), sandbar.NewID(), s)
		if err == nil {
			_ = b.Destroy(t.Context())
		}
		if sandbar.CodeOf(err) != x.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := objects(); len(after) != before {
		t.Errorf("objects remain: %v", after)
	}
}

// A pod that somebody else deletes is a dead sandbox, whose callers are told.
func TestDeleted(t *testing.T) {
	c := need(t)
	d := newDriver(t, testOptions(c))
	b := newSandbox(t, d, spec())
	p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"sleep", "300"}}, driver.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Kubectl(t.Context(), "delete", "pods", "-l", d.gateway.selector(), "--wait=false"); err != nil {
		t.Fatal(err)
	}
	wantLost(t, b, p)
	if _, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{}); sandbar.CodeOf(err) != sandbar.Gone {
		t.Errorf("another program: %v", err)
	}
}

// The Lease of a daemon on another host is dead after its duration without a renewal, and not
// before.
func TestDeadLease(t *testing.T) {
	c := need(t)
	d := newDriver(t, testOptions(c))
	other, err := newGateway(d.api, d.log)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := other.close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	// by its annotation the process is this one, so it is alive
	other.lease.Annotations = nil
	if err := other.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	isDead := func(age time.Duration) bool {
		t.Helper()
		if _, err := d.gateway.dead(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.gateway.mu.Lock()
		s := d.gateway.seen[other.lease.UID]
		s.first = s.first.Add(-age)
		d.gateway.seen[other.lease.UID] = s
		d.gateway.mu.Unlock()
		dead, err := d.gateway.dead(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(dead) == 1 && dead[0].UID == other.lease.UID
	}
	if isDead(leaseDuration / 2) {
		t.Error("a Lease is dead before its duration")
	}
	if err := other.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if isDead(leaseDuration - time.Second) {
		t.Error("a Lease is dead although it was renewed")
	}
	if !isDead(2 * time.Second) {
		t.Error("a Lease is alive after its duration")
	}
	left, err := d.Collect(t.Context(), true)
	if err != nil || len(left) != 1 || left[0].Err != nil {
		t.Errorf("collected %v, %v", left, err)
	}
	var gone coordinationv1.Lease
	if err := d.api.get(t.Context(), leases, other.name, &gone); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("the Lease: %v", err)
	}
}

// A daemon whose Lease was deleted, as after it was stopped for minutes, loses its sandboxes, tells
// their callers, and goes on with another Lease.
func TestLeaseDeleted(t *testing.T) {
	c := need(t)
	d := newDriver(t, testOptions(c))
	b := newSandbox(t, d, spec())
	p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"sleep", "300"}}, driver.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Kubectl(t.Context(), "delete", "leases", d.gateway.name); err != nil {
		t.Fatal(err)
	}
	d.gateway.round(t.Context())
	wantLost(t, b, p)
	if r, _ := run(t, newSandbox(t, d, spec()), "exit 5"); r.ExitCode != 5 {
		t.Errorf("a program after the loss: %+v", r)
	}
}

// A cluster that cannot be reached is an error with a fix.
func TestNoCluster(t *testing.T) {
	c := need(t)
	objects := traces(t, c)
	before := len(objects())
	for name, o := range map[string]map[string]string{
		"no file":      with(c, optionKubeconfig, "/nonexistent"),
		"no context":   with(c, optionContext, "nobody"),
		"no namespace": with(c, optionNamespace, "nowhere"),
		"no agent":     with(c, optionAgentImage, "sandbar.test/missing:1"),
	} {
		d, err := New(driver.Host{Options: o})
		if err == nil {
			_ = d.Close()
		}
		if sandbar.CodeOf(err) != sandbar.Unsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := objects(); len(after) != before {
		t.Errorf("objects remain: %v", after)
	}
}

// A creation whose caller gives up leaves no pod.
func TestCanceled(t *testing.T) {
	c := need(t)
	d := newDriver(t, testOptions(c))
	objects := traces(t, c)
	before := len(objects())
	for _, after := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		b, err := d.Create(ctx, sandbar.NewID(), spec())
		cancel()
		if err == nil {
			if err := b.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		} else if sandbar.CodeOf(err) != sandbar.Timeout {
			t.Errorf("after %v: %v", after, err)
		}
	}
	end := time.Now().Add(time.Minute)
	for len(objects()) != before || d.sweeper.Owes() {
		if time.Now().After(end) {
			t.Fatalf("objects remain: %v", objects())
		}
		time.Sleep(50 * time.Millisecond)
	}
}
