package kubernetes

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/cluster"
)

// The images of the tests' cluster.
const (
	testImage  = cluster.SandboxImage
	agentImage = cluster.AgentImage
)

func TestMain(m *testing.M) {
	code := cluster.Main(m, 2, cluster.LoadSandboxes)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// testOptions are the driver's options for the tests' cluster.
func testOptions(c *cluster.Cluster) map[string]string {
	return map[string]string{optionKubeconfig: c.Kubeconfig(), optionImage: testImage, optionAgentImage: agentImage, optionPull: "never"}
}

// newDriver opens a driver. It is closed at the test's end.
func newDriver(t testing.TB, options map[string]string) *Driver {
	t.Helper()
	d, err := New(driver.Host{Options: options})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// traces returns a function that lists the objects of all drivers in a cluster. Its connection
// lasts until the test's end.
func traces(t testing.TB, c *cluster.Cluster) func() []string {
	t.Helper()
	a, err := openAPI(options{kubeconfig: c.Kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.close)
	return func() (names []string) {
		for resource, list := range map[string]runtime.Object{pods: &corev1.PodList{}, secrets: &corev1.SecretList{}, leases: &coordinationv1.LeaseList{}, policies: &networkingv1.NetworkPolicyList{}} {
			if err := a.list(context.Background(), resource, "", list); err != nil {
				return []string{err.Error()}
			}
			err := meta.EachListItem(list, func(o runtime.Object) error {
				names = append(names, resource+"/"+o.(metav1.Object).GetName())
				return nil
			})
			if err != nil {
				return []string{err.Error()}
			}
		}
		slices.Sort(names)
		return names
	}
}

// spec returns a Spec with all limits that the driver enforces.
func spec() sandbar.Spec {
	u := int64(sandbar.Unlimited)
	return sandbar.Spec{Image: sandbar.ImageHost, Network: sandbar.NetworkNone, Limits: sandbar.Limits{
		Memory: 128 << 20, CPUs: 1, CPUShares: u, PIDs: 64, Disk: 64 << 20, Inodes: u, Files: 256}}
}
