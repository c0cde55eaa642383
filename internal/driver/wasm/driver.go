package wasm

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/wasm/artefact"
)

// Name is the driver's name in configuration.
const Name = "wasm"

// The options.
const (
	optionModules = "modules"
	optionCache   = "cache"
)

// Factory returns the driver's factory.
func Factory() driver.Factory {
	return driver.Factory{
		Name:    Name,
		Summary: "WebAssembly in a separate process: sh, Python and JavaScript on any host, without privileges",
		Options: map[string]string{
			optionModules: "directory with python.wasm and quickjs.wasm; the embedded ones if empty",
			optionCache:   "directory for compiled modules; sandbar/wasm in the user's cache directory if empty",
		},
		New: func(h driver.Host) (driver.Driver, error) { return New(h) },
	}
}

// Driver creates sandboxes that are processes which run WebAssembly.
type Driver struct {
	log      *slog.Logger
	caps     driver.Caps
	images   driver.Images
	cache    *cache
	registry driver.Registry
	wait     func(what string) (done func())
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Closer    = (*Driver)(nil)
	_ driver.Collector = (*Driver)(nil)
	_ driver.Preparer  = (*Driver)(nil)
)

// New opens the driver. Unsupported: the modules are missing or the cache directory cannot be used.
func New(h driver.Host) (*Driver, error) {
	for name := range h.Options {
		if name != optionModules && name != optionCache {
			return nil, &sandbar.Error{Code: sandbar.Invalid, Field: name,
				Message: "the wasm driver has no option " + sandbar.Quote(name, 40) + "; its options are " + optionModules + " and " + optionCache}
		}
	}
	modules, err := absolute(h.Options[optionModules])
	if err == nil {
		err = checkModules(modules)
	}
	if err != nil {
		return nil, err
	}
	c, err := openCache(h.Options[optionCache], modules)
	if err != nil {
		return nil, err
	}
	d := &Driver{log: h.Logger, caps: describe(c), images: h.Images, cache: c, wait: h.Wait}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	return d, nil
}

// absolute makes a path absolute, unless it is empty.
func absolute(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	return filepath.Abs(path)
}

func checkModules(dir string) error {
	if dir == "" {
		if artefact.Embedded().Complete() {
			return nil
		}
		return &sandbar.Error{Code: sandbar.Unsupported, Message: "this build embeds no WebAssembly modules",
			Fix: "build with `make build`, which fetches them, or name their directory with the option modules"}
	}
	if _, err := artefact.Read(dir); err != nil {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: optionModules, Err: err,
			Message: "the WebAssembly modules cannot be used", Fix: "fetch them with `make build`"}
	}
	return nil
}

// describe returns the driver's Caps, which are the same everywhere, except that the first sandbox
// may have to wait for the compilation.
func describe(cached *cache) driver.Caps {
	c := driver.Caps{
		Name: Name, Boundary: driver.BoundaryWasm,
		Enforced: sandbar.Enforcements{
			Memory: sandbar.EnforcedWatchdog, CPUs: sandbar.EnforcedNone, CPUShares: sandbar.EnforcedNone,
			PIDs: sandbar.EnforcedRuntime, Disk: sandbar.EnforcedRuntime, Inodes: sandbar.EnforcedRuntime, Files: sandbar.EnforcedRuntime,
		},
		PrivateFiles: true, PrivateNetwork: true, PrivateProcesses: true, PrivateQuotas: true,
		Notes: []string{"processor time can be neither limited nor weighed: a sandbox is ordinary processes of the daemon's user"},
	}
	if !cached.there() {
		c.Notes = append(c.Notes, "the interpreters have not been compiled for this host yet; the first sandbox does it, once, and takes some seconds longer; \"sandbar prepare\" does it ahead")
	}
	return c
}

// Preset implements driver.Presets: the single image has this driver's interpreters.
func (d *Driver) Preset(_ context.Context, name string) (image, ref string, ok bool) {
	return sandbar.ImageHost, sandbar.ImageHost, name == "python" || name == "node"
}

// Caps returns the driver's properties and what it enforces.
func (d *Driver) Caps() driver.Caps { return d.caps }

// Close releases the driver's resources.
func (d *Driver) Close() error {
	d.registry.Shut()
	d.cache.close()
	return nil
}

// refuse returns an error if the driver cannot do or enforce what s requests.
func (d *Driver) refuse(s sandbar.Spec) error {
	if s.Network != "" && s.Network != sandbar.NetworkNone {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "network",
			Message: "network " + sandbar.Quote(string(s.Network), 40) + " is not supported; the wasm driver has only \"none\""}
	}
	if err := sandbar.CheckEnv(s.Env); err != nil {
		return err
	}
	if s.AllowDegraded {
		return nil
	}
	for _, l := range []struct {
		field string
		set   bool
	}{{"limits.cpus", s.Limits.CPUs > 0}, {"limits.cpu_shares", s.Limits.CPUShares > 0}} {
		if l.set {
			return &sandbar.Error{Code: sandbar.Unsupported, Field: l.field,
				Message: "the wasm driver cannot enforce " + l.field,
				Fix:     "leave it out, allow degraded limits, or use the native driver"}
		}
	}
	return nil
}

// checkImage refuses images with files of their own.
func (d *Driver) checkImage(ctx context.Context, name string) error {
	if name == "" || name == sandbar.ImageHost {
		return nil
	}
	if d.images == nil {
		return &sandbar.Error{Code: sandbar.NotFound, Field: "image",
			Message: "image " + sandbar.Quote(name, 100) + " does not exist; the wasm driver has only the image \"" + sandbar.ImageHost + "\"",
			Fix:     "use the image \"" + sandbar.ImageHost + "\""}
	}
	image, err := d.images.Open(ctx, name)
	if err != nil {
		return err
	}
	image.Close()
	if image.Dir != "" {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "image",
			Message: "image " + sandbar.Quote(name, 100) + " has programs of its own, which the wasm driver cannot run",
			Fix:     "use the image \"" + sandbar.ImageHost + "\", or the native driver"}
	}
	return nil
}

// Prepare compiles the modules for this machine, unless that is done already.
func (d *Driver) Prepare(ctx context.Context) error {
	_, err := d.cache.ready(ctx, d.log, d.wait)
	return err
}

// Create creates a sandbox. The first one waits until the modules are compiled.
func (d *Driver) Create(ctx context.Context, id sandbar.ID, s sandbar.Spec) (driver.Sandbox, error) {
	if err := d.refuse(s); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, sandbar.Errorf(sandbar.Canceled, "creating a sandbox: %w", err)
	}
	if err := d.checkImage(ctx, s.Image); err != nil {
		return nil, err
	}
	compiled, err := d.cache.ready(ctx, d.log, d.wait)
	if err != nil {
		return nil, err
	}
	if err := d.registry.Claim(string(id)); err != nil {
		return nil, err
	}
	b := &resources{d: d, id: id, setup: plan(s)}
	sb, err := b.make(ctx, compiled)
	if err != nil {
		b.discard(ctx)
		if ctx.Err() != nil { // the end of ctx has ended the worker
			return nil, sandbar.Errorf(sandbar.CodeOfContext(ctx), "creating a sandbox: %w", ctx.Err())
		}
		return nil, err
	}
	return sb, nil
}
