package platform

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/config"
	"github.com/sandbar-dev/sandbar/internal/image"
)

// ImageStore opens the store of images. Invalid where there is no directory for
// it.
func ImageStore(cfg *config.Config) (*image.Store, error) {
	dir := cfg.ImagesDir()
	if dir == "" {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "images.dir",
			Message: "there is no directory to keep images in", Fix: "set state_dir, or images.dir"}
	}
	if cfg.Images.Dir == "" {
		if err := config.PrivateDir(cfg.StateDir, "state_dir"); err != nil {
			return nil, err
		}
	}
	return image.OpenStore(dir, image.Limits{Bytes: cfg.Images.MaxBytes, Entries: cfg.Images.MaxEntries, Time: cfg.Images.Timeout})
}

// ImageCatalogue is the presets and whatever the store has, for those who own
// it: whoever runs a command on this host, and clients with the daemon's token.
// What a protocol allows its callers is less, and its own affair.
func ImageCatalogue(cfg *config.Config) (*image.Catalogue, error) {
	store, err := ImageStore(cfg)
	if err != nil {
		return nil, err
	}
	return image.NewCatalogue(image.CatalogueConfig{Store: store, AutoInstall: cfg.Images.AutoInstall, Pull: PullOptions(cfg),
		OnHost: OnHost, Unrestricted: true})
}

// PullOptions are how images are fetched.
func PullOptions(cfg *config.Config) image.PullOptions {
	return image.PullOptions{Registries: cfg.Images.Registries, InsecureRegistries: cfg.Images.InsecureRegistries}
}

// OnHost reports whether sandboxes of the image "host" have a program.
func OnHost(program string) bool {
	for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
		if info, err := os.Stat(filepath.Join(dir, program)); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}

// images is what drivers get roots from. Nothing is opened, or made, before a
// sandbox of an image is asked for.
type images struct {
	catalogue func() (*image.Catalogue, error)
}

func newImages(cfg *config.Config) driver.Images {
	return images{sync.OnceValues(func() (*image.Catalogue, error) { return ImageCatalogue(cfg) })}
}

// Open implements driver.Images.
func (i images) Open(ctx context.Context, name string) (driver.Image, error) {
	c, err := i.catalogue()
	if err != nil {
		return driver.Image{}, err
	}
	return c.Open(ctx, name)
}
