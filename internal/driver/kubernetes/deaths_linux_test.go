package kubernetes

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/cluster"
)

// podOf returns the pod of the only sandbox of a driver.
func podOf(t *testing.T, d *Driver) *corev1.Pod {
	t.Helper()
	var list corev1.PodList
	if err := d.api.list(t.Context(), pods, d.gateway.selector()+","+labelSandbox, &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("%d pods, %v", len(list.Items), err)
	}
	return &list.Items[0]
}

// dies starts a program that lasts, lets the sandbox die, and checks what its callers are told.
func dies(t *testing.T, d *Driver, b driver.Sandbox, outcome sandbar.Outcome, says string, kill func(*corev1.Pod)) {
	t.Helper()
	p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"sleep", "300"}}, driver.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	kill(podOf(t, d))
	w, _ := driver.As[driver.Watcher](b)
	select {
	case <-w.Dead():
	case <-time.After(3 * time.Minute):
		t.Fatal("the sandbox is not dead")
	}
	if r, err := p.Wait(); err != nil || r.Outcome != outcome {
		t.Errorf("the program: %+v, %v", r, err)
	}
	x, _ := driver.As[driver.Explainer](b)
	if err := x.Death(); sandbar.CodeOf(err) != sandbar.Gone || !strings.Contains(err.Error(), says) {
		t.Errorf("the cause is %v, want %q", err, says)
	}
	_, err = b.Start(t.Context(), sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{})
	if e := sandbar.AsError(err); err == nil || e.Code != sandbar.Gone || !strings.Contains(e.Message, says) || e.Fix == "" {
		t.Errorf("another program: %v, want %q", err, says)
	}
}

// A program over the limit is told as that, and the sandbox goes on. If the kernel kills the whole
// sandbox, because files take the memory, all its callers are told that.
func TestOutOfMemory(t *testing.T) {
	c := need(t)
	for name, class := range map[string]string{"runc": "", "gVisor": cluster.GVisor} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, with(c, optionRuntimeClass, class))
			s := spec()
			s.Limits.Memory, s.Limits.Disk = 64<<20, 1<<30
			b := newSandbox(t, d, s)
			if r, _ := run(t, b, "head -c 200m /dev/zero | tail -c 200m | wc -c; exit 3"); r.OOMKills == 0 || r.Outcome != sandbar.OutOfMemory {
				t.Errorf("a program over the limit: %+v", r)
			}
			if r, _ := run(t, b, "exit 5"); r.ExitCode != 5 {
				t.Errorf("the next program: %+v", r)
			}
			dies(t, d, b, sandbar.OutOfMemory, "ran out of memory", func(*corev1.Pod) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				t.Logf("writing: %v", fill(ctx, b.FS(), sandbar.DefaultDir+"/full", 600<<20))
			})
		})
	}
}

// The reasons for which others end a pod are told.
func TestDeaths(t *testing.T) {
	c := need(t)
	d := newDriver(t, testOptions(c))
	kubectl := func(args ...string) {
		t.Helper()
		if _, err := c.Kubectl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		name, says string
		kill       func(*corev1.Pod)
	}{
		{"deleted", "somebody else deleted its pod", func(p *corev1.Pod) { kubectl("delete", "pod", p.Name, "--wait=false") }},
		{"deadline", "deadline of its lifetime", func(p *corev1.Pod) {
			kubectl("patch", "pod", p.Name, "-p", `{"spec":{"activeDeadlineSeconds":1}}`)
		}},
		{"drained", "drain of the node", func(p *corev1.Pod) {
			kubectl("drain", p.Spec.NodeName, "--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s")
			kubectl("uncordon", p.Spec.NodeName)
		}},
		{"evicted", "evicted its pod", func(p *corev1.Pod) { overfill(t, c, p) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			dies(t, d, newSandbox(t, d, spec()), sandbar.Lost, x.says, x.kill)
		})
	}
}

// overfill writes more into the home directory of a pod than its volume may have, on the node.
func overfill(t *testing.T, c *cluster.Cluster, p *corev1.Pod) {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimPrefix(p.Spec.NodeName, "node"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.OnNode(n, fmt.Sprintf(`set -e
cd %s/node%d/kubelet/pods/%s/volumes/kubernetes.io~empty-dir/home
mount -o remount,size=100m .
head -c 60000000 /dev/zero >full`, c.Dir(), n, p.UID))
	if err != nil || out != "" {
		t.Fatalf("%q, %v", out, err)
	}
}

// Sandboxes of a node whose kubelet does not answer go on, and new ones are on other nodes.
func TestNodeLost(t *testing.T) {
	testenv.Need(t, testenv.TestAll)
	c := need(t)
	d := newDriver(t, testOptions(c))
	b := newSandbox(t, d, spec())
	n, err := strconv.Atoi(strings.TrimPrefix(podOf(t, d).Spec.NodeName, "node"))
	if err != nil {
		t.Fatal(err)
	}
	on := func(script string) {
		t.Helper()
		if out, err := c.OnNode(n, script); err != nil || out != "" {
			t.Fatalf("%q, %v", out, err)
		}
	}
	kubelet := func(signal string) {
		t.Helper()
		on(fmt.Sprintf("kill -%s $(pgrep -f 'kubernetes kubelet .*--hostname-override=node%d ')", signal, n))
	}
	kubelet("STOP")
	defer kubelet("CONT")
	if _, err := c.Kubectl(t.Context(), "wait", "node/node"+strconv.Itoa(n), "--for=condition=Ready=Unknown", "--timeout=120s"); err != nil {
		t.Error(err)
	}
	if r, _ := run(t, b, "exit 5"); r.ExitCode != 5 {
		t.Errorf("a program on a node whose kubelet does not answer: %+v", r)
	}
	newSandbox(t, d, spec()) // on the other node
}
