package iii

import (
	"context"
	"os"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/function"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/settings"
)

// HostImages returns an Images that uses the image "host" for every preset whose interpreter the
// host has. It has no other image and pulls none.
func HostImages() function.Images { return hostImages{} }

type hostImages struct{}

// interpreters are the paths of a preset's interpreter in a sandbox of the image "host".
func interpreters(preset string) []string {
	switch preset {
	case "python":
		return []string{"/usr/bin/python3", "/usr/local/bin/python3"}
	case "node":
		return []string{"/usr/bin/node", "/usr/local/bin/node"}
	}
	return nil
}

// Find implements function.Images.
func (hostImages) Find(_ context.Context, image settings.Image) (function.Root, error) {
	if image.Kind == settings.Preset {
		for _, path := range interpreters(image.Name) {
			if i, err := os.Stat(path); err == nil && i.Mode().IsRegular() {
				return function.Root{Image: sandbar.ImageHost, Ref: sandbar.ImageHost, Note: "image " + image.Name +
					" has not been pulled; this sandbox has this host's own programs, among them " + path}, nil
			}
		}
	}
	return function.Root{}, &sandbar.Error{Code: sandbar.NotFound, Field: "image",
		Message: "image " + sandbar.Quote(image.Name, 60) + " is not on this host"}
}

// Pull implements function.Images.
func (hostImages) Pull(_ context.Context, image settings.Image) (function.Root, error) {
	return function.Root{}, &sandbar.Error{Code: sandbar.Unsupported, Field: "image",
		Message: "image " + sandbar.Quote(image.Name, 60) + " is not on this host, and this server pulls no images",
		Fix:     "install its interpreter on the host, or set up an image store"}
}
