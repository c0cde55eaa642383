package kubernetes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// BenchmarkControlPlane measures how many pods a second the API server stores and the scheduler
// binds, to a node without a kubelet. Both share this machine's processors with etcd and with the
// benchmark. docs/scale.md uses the result.
func BenchmarkControlPlane(b *testing.B) {
	const node, pods, at = "paper", 1000, 16
	c := need(b)
	manifest := filepath.Join(b.TempDir(), "node.json")
	if err := os.WriteFile(manifest, []byte(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "`+node+`", "labels": {"paper": "yes"}},
"status": {"capacity": {"cpu": "1000", "memory": "1Ti", "pods": "100000"}, "allocatable": {"cpu": "1000", "memory": "1Ti", "pods": "100000"}}}`), 0o600); err != nil {
		b.Fatal(err)
	}
	if _, err := c.Kubectl(b.Context(), "create", "-f", manifest); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if _, err := c.Kubectl(context.Background(), "delete", "node", node); err != nil {
			b.Error(err)
		}
	})
	a, err := openAPI(options{kubeconfig: c.Kubeconfig()})
	if err != nil {
		b.Fatal(err)
	}
	defer a.close()
	pod := func(i int) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("paper-%d", i), Labels: map[string]string{"paper": "yes"}},
			Spec: corev1.PodSpec{NodeSelector: map[string]string{"paper": "yes"}, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
	}
	var none int64
	for b.Loop() {
		began := time.Now()
		var all sync.WaitGroup
		for w := range at {
			all.Go(func() {
				for i := w; i < pods; i += at {
					var made corev1.Pod
					if err := a.create(b.Context(), "pods", pod(i), &made); err != nil {
						b.Error(err)
					}
				}
			})
		}
		all.Wait()
		stored := time.Since(began)
		var list corev1.PodList
		for bound := 0; bound < pods && !b.Failed(); time.Sleep(20 * time.Millisecond) {
			if err := a.list(b.Context(), "pods", "paper", &list); err != nil {
				b.Fatal(err)
			}
			bound = 0
			for _, p := range list.Items {
				if p.Spec.NodeName != "" {
					bound++
				}
			}
		}
		b.ReportMetric(pods/stored.Seconds(), "stored/s")
		b.ReportMetric(pods/time.Since(began).Seconds(), "bound/s")
		for _, p := range list.Items {
			if strings.HasPrefix(p.Name, "paper-") {
				if err := a.remove(b.Context(), "pods", p.Name, p.UID, &none); err != nil {
					b.Error(err)
				}
			}
		}
	}
}

// BenchmarkReach measures a program in an open pod, by its address and by the relay that exec of
// the API server starts.
func BenchmarkReach(b *testing.B) {
	c := need(b)
	for _, way := range []string{byAddress, byExec} {
		b.Run(way, func(b *testing.B) {
			o := testOptions(c)
			o[optionReach] = way
			d := newDriver(b, o)
			sb, err := d.Create(b.Context(), sandbar.NewID(), sandbar.Spec{AllowDegraded: true, Limits: sandbar.Limits{Memory: 64 << 20, PIDs: 64}})
			if err != nil {
				b.Fatal(err)
			}
			defer sb.Destroy(context.Background())
			for b.Loop() {
				p, err := sb.Start(b.Context(), sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{})
				if err != nil {
					b.Fatal(err)
				}
				if r, err := p.Wait(); err != nil || r.ExitCode != 0 {
					b.Fatalf("%+v, %v", r, err)
				}
			}
			b.StopTimer()
			block := make([]byte, 16<<20)
			began := time.Now()
			if err := driver.WriteFile(b.Context(), sb.FS(), sandbar.DefaultDir+"/block", block); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(len(block))/time.Since(began).Seconds()/1e6, "MB/s")
		})
	}
}
