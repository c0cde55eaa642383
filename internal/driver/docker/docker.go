package docker

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/moby/moby/api/types/system"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/driver/sweep"
	"github.com/sandbar-dev/sandbar/internal/linux/daemonid"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

// Name is the driver's name in configuration and in Caps.
const Name = "docker"

// Factory returns the driver's factory. program is the agent's executable, for Linux on the
// engine's architecture. If it is nil, the agent is this process's own executable, which must be a
// static Linux program that calls agent.Main when agent.IsAgent.
func Factory(program []byte) driver.Factory {
	return driver.Factory{
		Name:    Name,
		Summary: "containers of a Docker Engine, on this machine or another",
		Options: optionHelp(),
		New:     func(h driver.Host) (driver.Driver, error) { return New(h, program) },
	}
}

// Driver creates sandboxes that are containers. It implements driver.Driver, driver.Collector and
// driver.Closer.
type Driver struct {
	log      *slog.Logger
	opt      options
	mitigate bool // see wire.Setup
	engine   *engine
	info     system.Info
	local    bool   // the engine's containers are processes of this machine
	owner    string // the label of all objects of this driver
	program  []byte // the agent's executable
	images   driver.Images
	profile  string // seccomp profile, in the engine's format
	filters  filters
	caps     driver.Caps
	threads  atomic.Int64 // number of the agent's threads, as the last agent reported; 0: unknown
	// importing and filling are locks, held while an image or the agent is sent.
	importing, filling chan struct{}
	filled             atomic.Bool // the agent is in its volume
	begun              atomic.Bool // that volume may exist
	sweeper            *sweep.Sweeper
	oom                *oomWatch
	registry           driver.Registry // of ids of sandboxes, and of what else is not left over
}

// filters are the seccomp filters that the agent installs.
type filters struct{ all, programs []byte }

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Collector = (*Driver)(nil)
	_ driver.Closer    = (*Driver)(nil)
)

// New finds the engine and determines what it enforces. Invalid: an option is wrong. Unsupported,
// with a fix: no engine can be used.
func New(h driver.Host, program []byte) (*Driver, error) {
	opt, err := parseOptions(h.Options)
	if err != nil {
		return nil, err
	}
	at, err := findEndpoint(opt, readEnviron())
	if err != nil {
		return nil, err
	}
	api, err := newClient(at)
	if err != nil {
		return nil, err
	}
	d := &Driver{log: h.Logger, opt: opt, mitigate: !h.Speculation, engine: &engine{api: api, at: at}, owner: daemonid.Owner(), program: program, images: h.Images,
		importing: make(chan struct{}, 1), filling: make(chan struct{}, 1)}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if err := d.probe(); err != nil {
		_ = api.Close() // it has only idle connections
		return nil, err
	}
	d.sweeper = sweep.New(d.sweep)
	d.oom = newOOMWatch(d.engine, d.owner)
	return d, nil
}

// probe determines the engine's properties.
func (d *Driver) probe() error {
	info, err := d.engine.probe(context.Background())
	if err != nil {
		e := *sandbar.AsError(err)
		e.Code = sandbar.Unsupported // the code for a driver that cannot be opened
		return &e
	}
	if info.OSType != "linux" {
		return &sandbar.Error{Code: sandbar.Unsupported, Message: "the Docker Engine at " + sandbar.Quote(d.engine.at.host, 200) + " makes containers of " + sandbar.Quote(info.OSType, 40) + ", not of Linux",
			Fix: "switch it to Linux containers"}
	}
	arch, err := goArch(info.Architecture)
	if err != nil {
		return err
	}
	if d.program == nil {
		if d.program, err = client.OwnProgram(arch); err != nil {
			return err
		}
	}
	if d.filters.all, err = policy.CompileSeccomp(arch); err == nil {
		d.filters.programs, err = policy.CompilePrograms(arch, policy.TagLocks)
	}
	if err == nil {
		d.profile, err = profileText(arch)
	}
	if err != nil {
		return sandbar.Errorf(sandbar.Unsupported, "no system-call filter for this processor: %w", err)
	}
	d.info, d.local = info, isLocal(d.engine.at, info)
	d.caps = describe(info, d.engine.at, d.opt, d.local, swapsHere())
	if d.opt.pull {
		if err := d.pullMissing(); err != nil {
			return err
		}
	}
	d.noteImage()
	return nil
}

// pullMissing makes the engine pull those of the operator's images that it lacks.
func (d *Driver) pullMissing() error {
	for _, ref := range append([]string{d.opt.image}, d.opt.images...) {
		if ref == anyImage {
			continue
		}
		_, found, err := d.engine.image(context.Background(), ref)
		if err == nil && !found {
			d.log.Info("the engine pulls an image", "image", ref)
			err = d.engine.pull(context.Background(), ref)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// goArch returns the GOARCH of an engine's architecture.
func goArch(name string) (string, error) {
	switch name {
	case "x86_64", "amd64":
		return "amd64", nil
	case "aarch64", "arm64":
		return "arm64", nil
	}
	return "", &sandbar.Error{Code: sandbar.Unsupported, Message: "the engine's processor is " + sandbar.Quote(name, 40) + "; the supported ones are x86_64 and aarch64",
		Fix: "use an engine on a supported processor"}
}

// isLocal reports whether an engine's containers are processes of this machine, as far as this
// process can tell. Users of the result verify it again (see usage).
func isLocal(at endpoint, info system.Info) bool {
	name, err := os.Hostname()
	return err == nil && strings.HasPrefix(at.host, "unix://") && info.Name == name && info.KernelVersion == kernelRelease()
}

// noteImage warns the operator if the default image is missing.
func (d *Driver) noteImage() {
	ctx, cancel := context.WithTimeout(context.Background(), greetBound)
	defer cancel()
	if _, found, err := d.engine.image(ctx, d.opt.image); err == nil && !found {
		d.caps.Notes = append(d.caps.Notes, "the engine lacks the default image of sandboxes, "+d.opt.image+": docker pull "+d.opt.image)
	}
}

// Caps returns the driver's properties and what the engine enforces.
func (d *Driver) Caps() driver.Caps {
	c := d.caps
	c.Notes = append([]string(nil), c.Notes...)
	return c
}

// closeBound bounds the time in which Close removes what could not be removed before.
const closeBound = 10 * time.Second

// Close removes the agent's volume from the engine. All sandboxes must be destroyed. Collect finds
// what it cannot remove because the engine does not answer.
func (d *Driver) Close() error {
	if !d.registry.Shut() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeBound)
	defer cancel()
	var err error
	if d.sweeper.Close(ctx) {
		err = sandbar.Errorf(sandbar.Unavailable, "the Docker Engine at %s does not answer; containers of failed creations may stay there until the next start", sandbar.Quote(d.engine.at.host, 200))
	}
	d.oom.close()
	if d.begun.Load() && err == nil {
		err = d.engine.removeVolume(ctx, d.volume())
	}
	_ = d.engine.api.Close() // idle connections; it cannot fail
	return err
}

// Create creates a sandbox. Unsupported: the engine does not enforce a limit. NotFound: it lacks
// the image. Unavailable: it cannot be reached or does not answer in time.
func (d *Driver) Create(ctx context.Context, id sandbar.ID, s sandbar.Spec) (driver.Sandbox, error) {
	if _, err := sandbar.ParseID(string(id)); err != nil {
		return nil, err
	}
	if err := d.refuse(s); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, sandbar.Errorf(sandbar.CodeOfContext(ctx), "creating a sandbox: %w", err)
	}
	if err := d.registry.Claim(string(id)); err != nil {
		return nil, err
	}
	b := &resources{d: d, id: id}
	sb, err := b.create(ctx, s)
	if err != nil {
		b.undo(ctx)
		return nil, err
	}
	return sb, nil
}
