package kubernetes

import (
	"cmp"
	"context"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

var _ driver.Presets = (*Driver)(nil)

// The presets of package image.
const (
	presetPython = "python"
	presetNode   = "node"
)

// DefaultNode is the default image of the preset node.
const DefaultNode = "node:22-slim"

// preset returns the image of a preset, "" for another name.
func (o options) preset(name string) string {
	switch name {
	case presetPython:
		return cmp.Or(o.python, o.image)
	case presetNode:
		return cmp.Or(o.node, DefaultNode)
	}
	return ""
}

// Preset returns the image of a preset: that of its option. Whether the nodes can get it is known
// only when they start a pod.
func (d *Driver) Preset(_ context.Context, name string) (image, ref string, ok bool) {
	ref = d.opt.preset(name)
	switch ref {
	case "":
		return "", "", false
	case d.opt.image:
		return sandbar.ImageHost, ref, true // it shares ready sandboxes with the default image
	}
	return name, ref, true
}
