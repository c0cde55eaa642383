package main

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/image"
	"github.com/sandbar-dev/sandbar/internal/protocol/control"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/doctor"
	"github.com/sandbar-dev/sandbar/internal/server/httpd"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

// aboutDaemon returns what the control API tells of the daemon. settings returns the settings in
// force.
func (a *app) aboutDaemon(cfg *config.Config, d platform.Drivers, metrics *httpd.Metrics, settings func() []config.Setting) control.Daemon {
	about := control.Daemon{Version: thisBuild().Version, Started: time.Now(), Count: metrics.Counts,
		Doctor:        (&examiner{app: a, cfg: cfg, driver: d.First.Caps().Name}).report,
		Configuration: func() wire.Configuration { return shownSettings(settings()) },
		Images: func(ctx context.Context, all bool) ([]wire.Image, error) {
			return usableImages(ctx, cfg, d.First, all)
		}}
	for _, s := range d.Skipped {
		about.Skipped = append(about.Skipped, wire.DriverState{Name: s.Name, State: wire.DriverSkipped, Error: s.Err.Error()})
	}
	return about
}

// examineTime bounds the wait for the doctor. It opens every driver, and some ask programs of the
// host.
const examineTime = 30 * time.Second

// examiner makes the doctor's report for a running daemon, one at a time.
type examiner struct {
	app    *app
	cfg    *config.Config
	driver string // of the daemon
	busy   sync.Mutex
}

// report returns a doctor.Report without a trial. Exhausted: another one is being made. Timeout: a
// driver does not answer.
func (x *examiner) report(ctx context.Context) (any, error) {
	if !x.busy.TryLock() {
		return nil, &sandbar.Error{Code: sandbar.Exhausted, Message: "the doctor examines this host for another request", Fix: "try again in some seconds"}
	}
	ctx, cancel := context.WithTimeout(ctx, examineTime)
	languages, err := x.cfg.Catalogue()
	if err != nil {
		cancel()
		x.busy.Unlock()
		return nil, err
	}
	chosen := x.driver
	if i := slices.IndexFunc(x.app.factories, func(f driver.Factory) bool { return f.Name == chosen && f.OnlyNamed }); i >= 0 {
		chosen = "" // examining it would create objects outside of this host
	}
	made := make(chan doctor.Report, 1)
	go func() {
		defer x.busy.Unlock()
		defer cancel()
		r := doctor.Examine(ctx, doctor.Input{Version: thisBuild().Version, Factories: x.app.factories, Chosen: chosen, Languages: languages, NoTrial: true,
			Host: func(name string) driver.Host { return platform.Host(x.cfg, name, slog.New(slog.DiscardHandler)) },
			Presets: func(ctx context.Context, d driver.Driver) []doctor.Preset {
				return platform.PresetStates(ctx, x.cfg, d)
			}})
		r.Driver, r.OK = x.driver, true // this daemon's sandboxes prove it
		made <- r
	}()
	select {
	case r := <-made:
		return r, nil
	case <-ctx.Done():
	}
	select {
	case r := <-made: // it has ended, and ctx with it
		return r, nil
	default:
		return nil, &sandbar.Error{Code: sandbar.Timeout, Message: "the doctor did not finish within " + examineTime.String(), Fix: "run \"sandbar doctor\" on the daemon's host"}
	}
}

// shownSettings describes settings for clients.
func shownSettings(settings []config.Setting) wire.Configuration {
	all := wire.Configuration{Settings: []wire.Setting{}}
	for _, s := range settings {
		if s.Origin == "" {
			s.Origin = "default"
		}
		all.Settings = append(all.Settings, wire.Setting{Name: s.Name, Value: s.Value, Default: s.Default, Source: s.Origin, Secret: s.Secret, Live: s.Live,
			Variable: s.Variable, Allowed: s.Allowed, Help: s.Doc})
	}
	return all
}

// usableImages returns the image "host", if the driver has it, and the presets; with all also the
// images of the store.
func usableImages(ctx context.Context, cfg *config.Config, d driver.Driver, all bool) ([]wire.Image, error) {
	images := []wire.Image{}
	if d.Caps().HostPrograms {
		images = append(images, wire.Image{Name: sandbar.ImageHost, Ref: sandbar.ImageHost, Source: wire.ImageOfHost})
	}
	for _, p := range platform.PresetStates(ctx, cfg, d) {
		images = append(images, wire.Image{Name: p.Name, Ref: p.Ref, Source: p.Source, Preset: true})
	}
	if !all || cfg.ImagesDir() == "" {
		return images, nil
	}
	store, err := platform.ImageStore(cfg)
	if err != nil {
		return nil, err
	}
	kept, err := store.List()
	if err != nil {
		return nil, err
	}
	for _, i := range kept {
		images = appendNames(images, i)
	}
	return images, nil
}

// appendNames appends an installed image under each of its names.
func appendNames(images []wire.Image, i image.Image) []wire.Image {
	for _, name := range i.Names {
		images = append(images, wire.Image{Name: name, Ref: name, Source: wire.ImageInstalled, ID: i.ID, Size: i.Size, Added: i.Added.UTC(), InUse: i.InUse})
	}
	return images
}
