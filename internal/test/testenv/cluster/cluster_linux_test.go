package cluster_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/cluster"
)

// podManifest is a pod on each node with each runtime.
const podManifest = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: gvisor}
handler: runsc
---
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec:
  nodeName: node1
  restartPolicy: Never
  containers: [{name: main, image: "sandbar.test/pause:1", imagePullPolicy: Never}]
---
apiVersion: v1
kind: Pod
metadata: {name: guarded}
spec:
  nodeName: node2
  runtimeClassName: gvisor
  restartPolicy: Never
  containers: [{name: main, image: "sandbar.test/pause:1", imagePullPolicy: Never}]
`

// A cluster runs pods on both nodes with both runtimes, and when it is stopped nothing of it
// remains on the host.
func TestLife(t *testing.T) {
	testenv.Need(t, testenv.Cluster)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	before := hostState(t)
	abandoned := ofDeadProcess(t)
	c, err := cluster.Start(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		if left := remains(c.Dir()); len(left) > 0 {
			t.Errorf("this remains of the cluster: %v", left)
		}
		if after := hostState(t); after != before {
			t.Errorf("the cluster has changed the host:\n%s\nbefore:\n%s", after, before)
		}
	}()
	if left := remains(abandoned); len(left) > 0 {
		t.Errorf("this remains of a cluster whose process was killed: %v", left)
	}
	if err := c.Apply(ctx, podManifest); err != nil {
		t.Fatal(err)
	}
	if out, err := c.OnNode(2, "echo here; ip -br addr show eth0"); err != nil || !strings.HasPrefix(out, "here\n") || !strings.Contains(out, "10.99.0.2") {
		t.Errorf("a script on node 2: %q, %v", out, err)
	}
	for _, pod := range []string{"plain", "guarded"} {
		if _, err := c.Kubectl(ctx, "wait", "pod/"+pod, "--for=condition=Ready", "--timeout=60s"); err != nil {
			out, _ := c.Kubectl(ctx, "describe", "pod", pod)
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// A cluster has one or two nodes.
func TestNodes(t *testing.T) {
	for _, n := range []int{-1, 0, 3} {
		if _, err := cluster.Start(context.Background(), n); err == nil {
			t.Errorf("a cluster of %d nodes started", n)
		}
	}
}

// ClusterDir and HelmProgram name the versions of the modules from which "make cluster" builds.
func TestVersions(t *testing.T) {
	for module, line := range map[string]string{"kubernetes": "k8s.io/kubernetes v", "containerd": "github.com/containerd/containerd/v2 v", "helm": "helm.sh/helm/v4 v"} {
		b, err := os.ReadFile(filepath.Join("testdata", module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, ok := strings.Cut(string(b), line)
		version, _, _ := strings.Cut(rest, "\n")
		built := testenv.ClusterDir() + testenv.HelmProgram()
		if !ok || !strings.Contains(built, "-"+version+"-") && !strings.Contains(built, "-"+version+"/") {
			t.Errorf("%s does not name version %q of %s", built, version, module)
		}
	}
}

// ofDeadProcess makes the directory and a cgroup of a cluster whose process has ended.
func ofDeadProcess(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", cluster.Prefix, cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join("/sys/fs/cgroup/memory", filepath.Base(dir)+"-1", "pod"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// hostState returns the settings of the host that a kubelet or a cluster's network would change.
func hostState(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, name := range []string{"/proc/net/route", "/proc/sys/net/ipv4/ip_forward",
		"/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/panic", "/proc/sys/kernel/panic_on_oops"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
	}
	return b.String()
}

// remains lists what of the host names the directory of a cluster.
func remains(dir string) (left []string) {
	if _, err := os.Stat(dir); err == nil {
		left = append(left, dir)
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		args, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		groups, _ := os.ReadFile(filepath.Join(p, "cgroup"))
		mounts, _ := os.ReadFile(filepath.Join(p, "mountinfo"))
		name := []byte(filepath.Base(dir))
		if bytes.Contains(args, name) || bytes.Contains(groups, name) || bytes.Contains(mounts, name) {
			left = append(left, p)
		}
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), filepath.Base(dir)) {
			left = append(left, path)
		}
		return nil
	})
	slices.Sort(left)
	return left
}
