package kubernetes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/kubernetes/agentimage"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/cluster"
)

// podPrograms returns the programs of the agent's image.
func podPrograms(t testing.TB) agentimage.Programs {
	t.Helper()
	read := func(name string) []byte {
		b, err := os.ReadFile(testenv.Build(t, "cmd/"+name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	return agentimage.Programs{Agent: read("sandbar-agent"), Porter: read("sandbar-porter")}
}

// loadImage loads an image into the cluster, as "sandbar kubernetes image load" makes it.
func loadImage(t *testing.T, c *cluster.Cluster, built *agentimage.Image) {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "image.tar")
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := built.WriteArchive(f, "latest"); err != nil {
		t.Fatal(err)
	}
	if err := c.Load(t.Context(), archive); err != nil {
		t.Fatal(err)
	}
}

// A node finds the image of an imported archive by its digest, as a volume and as a container. With
// other programs the default is another image, whose error tells the command.
func TestAgentImage(t *testing.T) {
	testenv.Need(t, testenv.Cluster, testenv.DebianImage)
	c := cluster.Of(t)
	programs := podPrograms(t)
	built, err := agentimage.Build(programs)
	if err != nil {
		t.Fatal(err)
	}
	loadImage(t, c, built)
	o := testOptions(c)
	delete(o, optionAgentImage)
	delete(o, optionPull)
	d, err := Factory(programs).New(driver.Host{Options: o})
	if err != nil {
		t.Fatal(err)
	}
	if got := d.(*Driver).opt.agentImage; got != built.Name() || o[optionAgentImage] != "" {
		t.Errorf("the driver uses %s; options %v", got, o)
	}
	if err := d.(*Driver).Close(); err != nil {
		t.Error(err)
	}

	programs.Agent = append(programs.Agent, 0)
	for _, by := range []string{byVolume, byCopy} {
		o := testOptions(c)
		delete(o, optionAgentImage)
		o[optionAgentBy] = by
		_, err = Factory(programs).New(driver.Host{Options: o})
		if e := sandbar.AsError(err); e == nil || e.Code != sandbar.Unsupported || !strings.Contains(e.Fix, "sandbar kubernetes image load") {
			t.Errorf("%s, an image that no node has: %v", by, err)
		}
	}
}
