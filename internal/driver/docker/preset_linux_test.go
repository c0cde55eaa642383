package docker

import (
	"context"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/dockerd"
)

// A preset has its own image, not the driver's default image.
func TestPresets(t *testing.T) {
	testenv.Need(t, testenv.Docker, testenv.DebianImage)
	const node = "sandbar-test-node:1"
	d := newDriver(t, engineHost(t), func(h *driver.Host) { h.Options[optionNode] = node })
	if image, ref, ok := d.Preset(t.Context(), "python"); image != sandbar.ImageHost || ref != dockerd.Image || !ok {
		t.Errorf("python is %s, %s, %v", image, ref, ok)
	}
	s := spec()
	s.Image = "node"
	if _, _, ok := d.Preset(t.Context(), "node"); ok {
		t.Error("an image that the engine lacks stands for node")
	}
	if _, err := d.Create(t.Context(), sandbar.NewID(), s); sandbar.CodeOf(err) != sandbar.NotFound || !strings.Contains(err.Error(), "docker pull "+node) {
		t.Errorf("without the image: %v", err)
	}
	if _, _, ok := d.Preset(t.Context(), "debian"); ok {
		t.Error("debian is a preset")
	}
	if _, err := d.engine.api.ImageTag(t.Context(), client.ImageTagOptions{Source: dockerd.Image, Target: node}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.engine.api.ImageRemove(context.Background(), node, client.ImageRemoveOptions{}) })
	if image, ref, ok := d.Preset(t.Context(), "node"); image != node || ref != node || !ok {
		t.Errorf("node is %s, %s, %v", image, ref, ok)
	}
	for _, name := range []string{"node", node, "python"} {
		s.Image = name
		box, err := d.Create(t.Context(), sandbar.NewID(), s)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if r, out := run(t, box, `echo hello`); r.ExitCode != 0 || out != "hello\n" {
			t.Errorf("%s: %v %q", name, r, out)
		}
		if err := box.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
