package kubernetes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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
	"github.com/sandbar-dev/sandbar/internal/agent/porter"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/cluster"
)

// The images of the tests' cluster.
const (
	testImage  = "sandbar.test/debian:1"
	agentImage = "sandbar.test/agent:1"
)

func TestMain(m *testing.M) {
	code := cluster.Main(m, 2, load)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// load loads the images into a cluster.
func load(ctx context.Context, c *cluster.Cluster) error {
	if err := testenv.DebianImage.Err(); err != nil {
		return nil // the tests skip
	}
	dir, err := os.MkdirTemp("", "sbki-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var files []cluster.File
	for _, name := range []string{"sandbar-agent", porter.Name} {
		path, err := testenv.Command{Package: "cmd/" + name}.Make(testenv.Cache())
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files = append(files, cluster.File{Path: "/" + name, Mode: 0o755, Content: b})
	}
	archive := filepath.Join(dir, "image.tar")
	if err := cluster.WriteImage(archive, agentImage, "", nil, files...); err != nil {
		return err
	}
	if err := c.Load(ctx, archive); err != nil {
		return err
	}
	if err := cluster.WriteRootImage(archive, testImage, testenv.DebianArchive()); err != nil {
		return err
	}
	return c.Load(ctx, archive)
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
