package kubernetes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/cluster"
)

// apart takes the routes to the pods from this process, as on a machine outside of the cluster. The
// API server still reaches the nodes.
func apart(t *testing.T) {
	t.Helper()
	for n := 1; n <= 2; n++ {
		route := fmt.Sprintf("10.97.%d.0/24", n)
		if out, err := exec.CommandContext(t.Context(), "ip", "route", "del", route).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		t.Cleanup(func() {
			if out, err := exec.Command("ip", "route", "add", route, "via", fmt.Sprintf("10.99.0.%d", n)).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// A daemon that cannot reach the addresses of pods finds that out, and connects through the API
// server. Everything works, and all are told when a pod ends.
func TestRelay(t *testing.T) {
	c := need(t)
	apart(t)
	for name, options := range map[string][]string{"runc": {optionReach, byAuto}, "gVisor": {optionReach, byExec, optionRuntimeClass, cluster.GVisor}} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, with(c, options...))
			if f := fact(t, d.Inspect(t.Context(), false), "connections"); !strings.Contains(f.State, "exec") || !strings.Contains(strings.Join(d.Caps().Notes, "\n"), "exec") {
				t.Errorf("%+v, notes %q", f, d.Caps().Notes)
			}
			b := newSandbox(t, d, spec())
			if r, out := run(t, b, "echo $((6*7)); exit 3"); r.ExitCode != 3 || out != "42\n" {
				t.Errorf("%+v, %q", r, out)
			}
			sent := bytes.Repeat([]byte("sandbar\x00\xff\n"), 1<<20)
			h := sha256.New()
			p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"cat"}}, driver.Stdio{Stdin: bytes.NewReader(sent), Stdout: h})
			if err != nil {
				t.Fatal(err)
			}
			if r, err := p.Wait(); err != nil || r.ExitCode != 0 || [32]byte(h.Sum(nil)) != sha256.Sum256(sent) {
				t.Errorf("10 MiB through cat: %+v, %v", r, err)
			}
			dies(t, d, b, sandbar.Lost, "somebody else deleted its pod", func(p *corev1.Pod) {
				if err := d.removePod(t.Context(), p.Name, p.UID); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// When a daemon's connection ends, the relay ends, and with it the agent and the pod.
func TestRelayEnds(t *testing.T) {
	c := need(t)
	d := newDriver(t, with(c, optionReach, byExec))
	id := sandbar.NewID()
	if err := d.registry.Claim(string(id)); err != nil {
		t.Fatal(err)
	}
	made := d.newResources(id)
	b, err := made.create(t.Context(), spec())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"sleep", "300"}}, driver.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	if err := made.conn.Close(); err != nil { // as the kernel does for a daemon that was killed
		t.Fatal(err)
	}
	if r, err := p.Wait(); err != nil || r.Outcome != sandbar.Lost {
		t.Errorf("the program: %+v, %v", r, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = d.pods.wait(ctx, made.name, func(p *corev1.Pod) (bool, error) {
		return p != nil && (p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded), nil
	})
	if err != nil {
		t.Errorf("the pod goes on: %v", err)
	}
}

// Where the addresses are out of reach and the option demands them, the error tells the next step.
func TestUnreachable(t *testing.T) {
	c := need(t)
	d := newDriver(t, with(c, optionReach, byAddress))
	apart(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := d.Create(ctx, sandbar.NewID(), spec())
	if e := sandbar.AsError(err); e == nil || e.Code != sandbar.Timeout || !strings.Contains(e.Error(), "pod's address") || !strings.Contains(e.Error(), "set the option reach to exec") {
		t.Errorf("%v", err)
	}
}
