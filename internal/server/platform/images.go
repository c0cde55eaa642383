package platform

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/image"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/doctor"
)

// ImageStore opens the image store. Invalid: no directory is configured.
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

// ImageCatalogue returns the presets and all images of the store, for callers with full rights:
// commands on this host, and clients with the daemon's token. Protocols restrict their callers
// further.
func ImageCatalogue(cfg *config.Config) (*image.Catalogue, error) {
	store, err := ImageStore(cfg)
	if err != nil {
		return nil, err
	}
	return image.NewCatalogue(image.CatalogueConfig{Store: store, AutoInstall: cfg.Images.AutoInstall, Pull: PullOptions(cfg),
		OnHost: OnHost, Unrestricted: true})
}

// PullOptions returns the settings for pulling images.
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

// Substitute is the image that a driver uses for a preset that is not installed.
type Substitute struct {
	// Image is the name for a Spec, Ref the reference for display.
	Image, Ref string
	// Note is a sentence about it for the user of the preset.
	Note string
}

// FindSubstitute returns the substitute of a preset with a driver: the host's own program if the
// driver supports the image "host", or an image of the driver itself.
func FindSubstitute(ctx context.Context, d driver.Driver, p image.Preset) (s Substitute, ok bool) {
	with := ""
	if d.Caps().HostPrograms {
		s, ok, with = Substitute{Image: sandbar.ImageHost, Ref: sandbar.ImageHost}, OnHost(p.Program), "this host's own "+p.Program
	} else if own, is := driver.As[driver.Presets](d); is {
		s.Image, s.Ref, ok = own.Preset(ctx, p.Name)
		with = "the " + p.Program + " of the driver " + d.Caps().Name
		if s.Ref != sandbar.ImageHost {
			with = "the image " + s.Ref + " of the driver " + d.Caps().Name
		}
	}
	s.Note = "image " + p.Name + " has not been pulled; this sandbox has " + with + " (`sandbar images pull " + p.Name + "` installs the image)"
	return s, ok
}

// PresetStates returns the presets of the iii protocol with a driver.
func PresetStates(ctx context.Context, cfg *config.Config, d driver.Driver) []doctor.Preset {
	var all []doctor.Preset
	for _, p := range image.Presets() {
		state := doctor.Preset{Name: p.Name, Source: "missing", Ref: p.Ref}
		s, ok := FindSubstitute(ctx, d, p)
		switch {
		case installed(cfg, p.Ref):
			state.Source = "installed"
		case ok && cfg.III.StandsIn() && s.Ref == sandbar.ImageHost:
			state.Source, state.Ref = "host", s.Ref
		case ok && cfg.III.StandsIn():
			state.Source, state.Ref = "driver", s.Ref
		case cfg.III.AutoInstall:
			state.Source = "pull"
		}
		all = append(all, state)
	}
	return all
}

// installed reports whether the store has an image. It does not create a store.
func installed(cfg *config.Config, ref string) bool {
	if dir := cfg.ImagesDir(); dir == "" {
		return false
	} else if _, err := os.Stat(dir); err != nil {
		return false
	}
	store, err := ImageStore(cfg)
	if err != nil {
		return false
	}
	_, err = store.Find(ref)
	return err == nil
}

// images provides image roots to drivers. It opens the store only when a sandbox with an image is
// requested.
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
