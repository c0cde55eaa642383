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

// StandIn is what a preset is on a driver where no image of its name is installed.
type StandIn struct {
	// Image is what a Spec names, Ref the reference by which people know it.
	Image, Ref string
	// Note is a sentence about that for whoever asked for the preset.
	Note string
}

// FindStandIn returns what stands in for a preset on a driver: the host's own
// program, where the image "host" is the host's, or an image of the driver's own.
func FindStandIn(ctx context.Context, d driver.Driver, p image.Preset) (s StandIn, ok bool) {
	with := ""
	if d.Caps().HostPrograms {
		s, ok, with = StandIn{Image: sandbar.ImageHost, Ref: sandbar.ImageHost}, OnHost(p.Program), "this host's own "+p.Program
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

// PresetStates are the presets as the iii protocol has them on a driver.
func PresetStates(ctx context.Context, cfg *config.Config, d driver.Driver) []doctor.Preset {
	var all []doctor.Preset
	for _, p := range image.Presets() {
		state := doctor.Preset{Name: p.Name, Source: "missing", Ref: p.Ref}
		s, ok := FindStandIn(ctx, d, p)
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

// installed reports whether the store has an image. It makes no store.
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
