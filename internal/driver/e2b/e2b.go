package e2b

import (
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/driver/sweep"
	"github.com/sandbar-dev/sandbar/internal/linux/daemonid"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

// Name is the driver's name in configuration and in Caps.
const Name = "e2b"

// Factory returns the driver's factory. program is the agent's executable, for Linux on the
// architecture of the service's sandboxes. If it is nil, the agent is this process's own
// executable, which must be a static Linux program that calls agent.Main when agent.IsAgent.
func Factory(program []byte) driver.Factory {
	return driver.Factory{
		Name:    Name,
		Summary: "sandboxes of an E2B service: E2B's cloud, or a host that speaks its protocol",
		Options: optionHelp(),
		New:     func(h driver.Host) (driver.Driver, error) { return New(h, program) },
	}
}

// Driver creates sandboxes of a service. It implements driver.Driver, driver.Collector and
// driver.Closer.
type Driver struct {
	log      *slog.Logger
	service  *service
	owner    string // metadata of all sandboxes of this driver
	program  []byte // the agent's executable
	filters  filters
	caps     driver.Caps
	sweeper  *sweep.Sweeper
	registry driver.Registry
}

// filters are the seccomp filters that the agent installs.
type filters struct{ all, programs []byte }

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Collector = (*Driver)(nil)
	_ driver.Closer    = (*Driver)(nil)
)

// Bounds of calls to the service besides those of single attempts.
const (
	greetBound = 10 * time.Second
	closeBound = 10 * time.Second
	// setupBound is Caps.Setup: the time for a creation with the upload of the agent.
	setupBound = 3 * time.Minute
	// remoteCreates is Caps.RemoteCreates: few, because services limit the rate of creations.
	remoteCreates = 4
)

// New checks that the service answers and accepts the key. Invalid: an option is wrong.
// Unsupported, with a fix: the service cannot be used.
func New(h driver.Host, program []byte) (*Driver, error) {
	o, err := parseOptions(h.Options)
	if err != nil {
		return nil, err
	}
	d := &Driver{log: h.Logger, service: newService(o), owner: daemonid.Owner(), program: program, caps: describe(o)}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.program == nil {
		if d.program, err = client.OwnProgram(runtime.GOARCH); err != nil {
			return nil, err
		}
	}
	// The filters are for the agent, which is built for this processor's architecture.
	if d.filters.all, err = policy.CompileSeccomp(runtime.GOARCH); err == nil {
		d.filters.programs, err = policy.CompilePrograms(runtime.GOARCH, policy.TagRSS)
	}
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Unsupported, "no system-call filter for this processor: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), greetBound)
	defer cancel()
	defer d.service.idle()
	if _, err := d.service.list(ctx, metaOwner, d.owner); err != nil {
		e := *sandbar.AsError(err)
		e.Code = sandbar.Unsupported // the code for a driver that cannot be opened
		return nil, &e
	}
	d.sweeper = sweep.New(d.sweep)
	return d, nil
}

// describe returns the driver's properties.
func describe(o options) driver.Caps {
	none := sandbar.EnforcedNone
	c := driver.Caps{
		Name: Name, Boundary: driver.BoundaryRemote,
		Enforced:     sandbar.Enforcements{Memory: none, CPUs: none, CPUShares: none, PIDs: sandbar.EnforcedRlimit, Disk: none, Inodes: none, Files: sandbar.EnforcedRlimit},
		PrivateFiles: true, PrivateNetwork: true, PrivateProcesses: true,
		Outbound: o.internet, Terminals: true, Setup: setupBound, RemoteCreates: remoteCreates,
		Notes: []string{"the E2B service at " + o.api.Host + ": programs, their files and their input are sent to it",
			"the template decides on memory, processors and disk, so these limits are refused; a template with less of them is a limit"},
	}
	if o.api.Scheme == "http" || o.sandbox != nil && o.sandbox.Scheme == "http" {
		c.Notes = append(c.Notes, "the connection to the service is not encrypted: whoever can read it gets the API key (use https, except on this machine)")
	}
	if o.internet {
		c.Notes = append(c.Notes, "sandboxes with a network have the service's internet access; the daemon's rules for outbound connections do not apply there")
	} else {
		c.Notes = append(c.Notes, "sandboxes have no network: the option "+optionInternet+" gives them the service's")
	}
	return c
}

// Caps returns the driver's properties.
func (d *Driver) Caps() driver.Caps {
	c := d.caps
	c.Notes = append([]string(nil), c.Notes...)
	return c
}

// Close ends the driver. All sandboxes must be destroyed. Collect finds what it cannot remove
// because the service does not answer.
func (d *Driver) Close() error {
	if !d.registry.Shut() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeBound)
	defer cancel()
	defer d.service.idle()
	if d.sweeper.Close(ctx) {
		return sandbar.Errorf(sandbar.Unavailable, "the E2B service does not answer; sandboxes of failed creations may stay there until their timeout (%s)", d.service.timeout)
	}
	return nil
}

// Create creates a sandbox. Unsupported: a limit cannot be enforced, or the template cannot be
// used. NotFound: there is no such template. Exhausted: the service's rate or number of sandboxes
// is reached. Unavailable: the service cannot be reached or does not answer in time.
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
	b := &resources{d: d, id: id, end: make(chan struct{})}
	sb, err := b.create(ctx, s)
	if err != nil {
		b.undo(ctx)
		return nil, err
	}
	return sb, nil
}

// refuse returns an error if the driver cannot do or enforce what s requests.
func (d *Driver) refuse(s sandbar.Spec) error {
	switch {
	case s.Network == "" || s.Network == sandbar.NetworkNone:
	case s.Network != sandbar.NetworkOutbound:
		return &sandbar.Error{Code: sandbar.Invalid, Field: "network",
			Message: "network " + sandbar.Quote(string(s.Network), 40) + " is unknown; the networks are \"none\" and \"outbound\""}
	case !d.service.internet:
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "network", Message: "the operator gives sandboxes of the driver e2b no network",
			Fix: "set the option " + optionInternet + " of the driver e2b to true"}
	}
	if err := sandbar.CheckEnv(s.Env); err != nil || s.AllowDegraded {
		return err
	}
	l := s.Limits
	for _, limit := range []struct {
		field string
		set   bool
	}{
		{"limits.memory", l.Memory > 0}, {"limits.cpus", l.CPUs > 0}, {"limits.cpu_shares", l.CPUShares > 0}, {"limits.disk", l.Disk > 0}, {"limits.inodes", l.Inodes > 0},
	} {
		if limit.set {
			return &sandbar.Error{Code: sandbar.Unsupported, Field: limit.field, Message: "the driver e2b cannot enforce " + limit.field + ": the template decides",
				Fix: "use a template with less, or allow degraded limits"}
		}
	}
	return nil
}

// The names of metadata.
const (
	metaDriver  = "dev.sandbar.driver"  // Name
	metaOwner   = "dev.sandbar.owner"   // the driver that created the sandbox, see daemonid.Owner
	metaSandbox = "dev.sandbar.sandbox" // the sandbox's id
)

// sweep ends sandboxes with this driver's metadata that belong to no known sandbox.
func (d *Driver) sweep(ctx context.Context) (found int, err error) {
	list, err := d.service.list(ctx, metaOwner, d.owner)
	if err != nil {
		return 0, err
	}
	for _, l := range list {
		if d.registry.Has(l.Metadata[metaSandbox]) {
			continue
		}
		found++
		if err := d.service.kill(ctx, l.ID); err != nil {
			return found, err
		}
	}
	return found, nil
}

// Collect finds, and with remove ends, the sandboxes of killed daemons. It can determine whether
// daemons of this host are alive. Sandboxes of other hosts, and of earlier boots, end at their
// timeout.
func (d *Driver) Collect(ctx context.Context, remove bool) ([]driver.Leftover, error) {
	defer d.service.idleIfUnused(&d.registry)
	list, err := d.service.list(ctx, metaDriver, Name)
	if err != nil {
		return nil, err
	}
	var found []driver.Leftover
	for _, l := range list {
		if !daemonid.OwnerDead(l.Metadata[metaOwner], daemonid.Scope(), daemonid.Alive) {
			continue
		}
		o := driver.Leftover{Kind: "E2B sandbox", Name: l.ID}
		if remove {
			o.Err = d.service.kill(ctx, l.ID)
		}
		found = append(found, o)
	}
	return found, nil
}
