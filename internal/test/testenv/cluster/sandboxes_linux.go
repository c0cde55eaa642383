package cluster

import (
	"context"
	"os"
	"path/filepath"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// The images of LoadSandboxes: that of sandboxes, with Debian's programs, and that of the agent.
const (
	SandboxImage = "sandbar.test/debian:1"
	AgentImage   = "sandbar.test/agent:1"
)

// GVisor is the RuntimeClass of gVisor that LoadSandboxes makes.
const GVisor = "gvisor"

// SandboxEnv is a variable of SandboxImage.
const SandboxEnv = "SANDBAR_TEST_IMAGE=debian"

// LoadSandboxes loads the images of sandboxes into a cluster, and makes the RuntimeClass. Without
// testenv.DebianImage it does nothing: the tests skip.
func LoadSandboxes(ctx context.Context, c *Cluster) error {
	if err := testenv.DebianImage.Err(); err != nil {
		return nil
	}
	if err := c.Apply(ctx, "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: "+GVisor+"}, handler: runsc}"); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sbki-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var files []File
	for _, name := range []string{"sandbar-agent", "sandbar-porter"} {
		path, err := testenv.Command{Package: "cmd/" + name}.Make(testenv.Cache())
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files = append(files, File{Path: "/" + name, Mode: 0o755, Content: b})
	}
	archive := filepath.Join(dir, "image.tar")
	if err := WriteImage(archive, AgentImage, "", nil, files...); err != nil {
		return err
	}
	if err := c.Load(ctx, archive); err != nil {
		return err
	}
	if err := WriteRootImage(archive, SandboxImage, testenv.DebianArchive(), SandboxEnv); err != nil {
		return err
	}
	return c.Load(ctx, archive)
}
