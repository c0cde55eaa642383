package v86

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/wasm/artefact"
	"github.com/sandbar-dev/sandbar/internal/wasm/v86/image"
)

// Name is the driver's name in configuration.
const Name = "v86"

// The options.
const (
	OptionImage   = "image"        // path of the image; required
	OptionCache   = "cache"        // directory of snapshots; default: sandbar/v86 in the user's cache directory
	OptionModules = "modules"      // directory of the emulator's files; default: the embedded ones
	OptionBoot    = "boot_timeout" // longest duration of a boot, such as "90s"; default: DefaultBootTimeout
)

// DefaultBootTimeout bounds the boot of an image.
const DefaultBootTimeout = 5 * time.Minute

// The range of a memory limit, and the memory of a machine without one, in bytes.
const (
	MinMemory     = 16 << 20
	MaxMemory     = 2 << 30
	DefaultMemory = 512 << 20
)

// Factory returns the driver's factory.
func Factory() driver.Factory {
	return driver.Factory{
		Name:    Name,
		Summary: "a PC emulated by one process: any 32-bit Linux image, on any host, without privileges; slow",
		Options: map[string]string{
			OptionImage:   "path of the image to boot: ISO, raw disk, kernel, bundle of kernel and initrd, or a saved state; required",
			OptionCache:   "directory for snapshots of booted machines; sandbar/v86 in the user's cache directory if empty",
			OptionModules: "directory with the emulator's files; the embedded ones if empty",
			OptionBoot:    "longest duration of a boot; 5m if empty",
		},
		New: func(h driver.Host) (driver.Driver, error) { return New(h, nil) },
	}
}

// Driver creates sandboxes that are processes which emulate a PC.
type Driver struct {
	log      *slog.Logger
	caps     driver.Caps
	snaps    *snapshots
	registry driver.Registry
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Closer    = (*Driver)(nil)
	_ driver.Collector = (*Driver)(nil)
)

// New opens the driver. Invalid: an option or the image cannot be used. Unsupported: the emulator
// is missing or the cache directory cannot be used. progress, if not nil, receives the progress of
// boots as text.
func New(h driver.Host, progress func(text string)) (*Driver, error) {
	for name := range h.Options {
		switch name {
		case OptionImage, OptionCache, OptionModules, OptionBoot:
		default:
			return nil, &sandbar.Error{Code: sandbar.Invalid, Field: name, Message: "the v86 driver has no option " + sandbar.Quote(name, 40) +
				"; its options are " + strings.Join([]string{OptionImage, OptionCache, OptionModules, OptionBoot}, ", ")}
		}
	}
	d := &Driver{log: h.Logger, caps: driver.Caps{
		Name: Name, Boundary: driver.BoundaryVM,
		Enforced: sandbar.Enforcements{
			Memory: sandbar.EnforcedRuntime, CPUs: sandbar.EnforcedNone, CPUShares: sandbar.EnforcedNone,
			PIDs: sandbar.EnforcedNone, Disk: sandbar.EnforcedNone, Inodes: sandbar.EnforcedNone, Files: sandbar.EnforcedNone,
		},
		PrivateFiles: true, PrivateNetwork: true, PrivateProcesses: true, PrivateQuotas: true,
		Terminals: true,
		Notes:     []string{"programs may use the whole machine; only its memory bounds their number and their files"},
	}}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	snaps, err := newSnapshots(h.Options, d.log)
	if err != nil {
		return nil, err
	}
	snaps.progress = func(text string) {
		d.log.Info(text)
		if progress != nil {
			progress(text)
		}
	}
	d.snaps = snaps
	return d, nil
}

// newSnapshots checks the options and opens the cache of snapshots.
func newSnapshots(options map[string]string, log *slog.Logger) (*snapshots, error) {
	s := &snapshots{log: log, boots: map[string]*boot{}, limit: DefaultBootTimeout}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	path := options[OptionImage]
	if path == "" {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: OptionImage, Message: "the v86 driver needs an image",
			Fix: "name one with the driver's option " + OptionImage + "; scripts/v86-image.sh builds one"}
	}
	kind, err := image.Check(path)
	if err != nil {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: OptionImage, Err: err, Message: "the image " + sandbar.Quote(path, 200) + " cannot be used"}
	}
	s.kind = kind
	if text := options[OptionBoot]; text != "" {
		if s.limit, err = time.ParseDuration(text); err != nil || s.limit <= 0 {
			return nil, &sandbar.Error{Code: sandbar.Invalid, Field: OptionBoot, Message: OptionBoot + ": " + sandbar.Quote(text, 40) + " is not a duration such as \"90s\""}
		}
	}
	if s.image, err = filepath.Abs(path); err != nil {
		return nil, sandbar.Errorf(sandbar.Invalid, "the image: %w", err)
	}
	if dir := options[OptionModules]; dir != "" {
		if s.modules, err = filepath.Abs(dir); err != nil {
			return nil, sandbar.Errorf(sandbar.Invalid, "the directory of the emulator: %w", err)
		}
	}
	pc, err := artefact.ReadEmulator(s.modules)
	if err != nil || !pc.Complete() {
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Field: OptionModules, Err: err,
			Message: "this build embeds no PC emulator", Fix: "build with `make build`, which fetches it, or name its directory with the option " + OptionModules}
	}
	s.version = version(pc)
	return s, s.open(options[OptionCache])
}

// Caps returns the driver's properties and what it enforces.
func (d *Driver) Caps() driver.Caps { return d.caps }

// Close cancels boots in progress and waits for them.
func (d *Driver) Close() error {
	d.registry.Shut()
	d.snaps.close()
	return nil
}

// Prepare boots the image for a memory size in bytes, unless a snapshot exists. If the boot fails,
// every Create with this memory size fails too.
func (d *Driver) Prepare(ctx context.Context, memory int64) error {
	_, err := d.snaps.get(ctx, machineMemory(memory))
	return err
}

// machineMemory returns the size of a machine's memory in bytes for a memory limit: whole MiB, and
// DefaultMemory if there is no limit.
func machineMemory(limit int64) int64 {
	if limit <= 0 {
		limit = DefaultMemory
	}
	return limit &^ (1<<20 - 1)
}

// refuse returns an error if the driver cannot do or enforce what s requests.
func (d *Driver) refuse(s sandbar.Spec) error {
	if s.Network != "" && s.Network != sandbar.NetworkNone {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "network",
			Message: "network " + sandbar.Quote(string(s.Network), 40) + " is not supported; the v86 driver has only \"none\""}
	}
	if s.Image != "" && s.Image != sandbar.ImageHost {
		return &sandbar.Error{Code: sandbar.NotFound, Field: "image", Message: "image " + sandbar.Quote(s.Image, 100) + " does not exist; the machine's own image is \"" + sandbar.ImageHost + "\""}
	}
	if err := sandbar.CheckEnv(s.Env); err != nil {
		return err
	}
	if m := s.Limits.Memory; m > 0 && (m < MinMemory || m > MaxMemory) {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "limits.memory",
			Message: "a machine has 16 MiB to 2 GiB of memory", Fix: "ask for a memory limit in this range"}
	}
	if s.AllowDegraded {
		return nil
	}
	l := s.Limits
	for _, f := range []struct {
		field string
		set   bool
	}{{"limits.cpus", l.CPUs > 0}, {"limits.cpu_shares", l.CPUShares > 0}, {"limits.pids", l.PIDs > 0},
		{"limits.disk", l.Disk > 0}, {"limits.inodes", l.Inodes > 0}, {"limits.files", l.Files > 0}} {
		if f.set {
			return &sandbar.Error{Code: sandbar.Unsupported, Field: f.field, Message: "the v86 driver cannot enforce " + f.field,
				Fix: "leave it out, or allow degraded limits; only memory bounds a machine"}
		}
	}
	return nil
}

// Create creates a sandbox. The first one with an image and a memory size waits until the image has
// booted.
func (d *Driver) Create(ctx context.Context, id sandbar.ID, s sandbar.Spec) (driver.Sandbox, error) {
	if err := d.refuse(s); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, sandbar.Errorf(sandbar.Canceled, "creating a sandbox: %w", err)
	}
	snapshot, err := d.snaps.get(ctx, machineMemory(s.Limits.Memory))
	if err != nil {
		return nil, err
	}
	if err := d.registry.Claim(string(id)); err != nil {
		return nil, err
	}
	b := &resources{d: d, id: id}
	sb, err := b.make(ctx, snapshot, s.Env)
	if err != nil {
		b.discard(ctx)
		return nil, err
	}
	return sb, nil
}

// Collect finds, and with remove removes, the leftovers of killed boots. Workers leave nothing:
// they exit with the daemon.
func (d *Driver) Collect(_ context.Context, remove bool) ([]driver.Leftover, error) {
	return d.snaps.collect(remove)
}
