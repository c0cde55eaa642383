package native

import (
	"context"
	"errors"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/linux/egress"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/linux/netuse"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
	"github.com/sandbar-dev/sandbar/internal/linux/sandboxes"
	"github.com/sandbar-dev/sandbar/internal/linux/spawn"
)

// Name is the driver's name in configuration.
const Name = "native"

// Factory returns the native driver's factory. binary is the agent's program. nil means the running
// binary, which must then call agent.Main when agent.IsAgent.
func Factory(binary []byte) driver.Factory {
	return driver.Factory{
		Name:    Name,
		Summary: "Linux namespaces, with this machine's own programs; nothing to install",
		Options: map[string]string{
			optionPaths: "colon-separated directories of this machine that sandboxes see read-only, besides /usr, /bin and /lib*, such as /opt with interpreters",
			optionReuse: "what the sandboxes of single programs share in succession: slots (an id range, a user namespace and control groups, which programs cannot write to, and a network namespace that no program has used), or none; default: slots as root with control groups of version 1, or of version 2 and Linux 6.12, else none",
		},
		New: func(h driver.Host) (driver.Driver, error) {
			d, err := New(h, binary)
			if err != nil {
				return nil, err
			}
			return d.withAbilities(), nil
		},
	}
}

// Driver creates sandboxes from namespaces. It is safe for concurrent use.
type Driver struct {
	sandboxes.Base
	cookies bool   // the kernel gives forks core scheduling cookies of their own
	mode    string // agent.ModeSocket; agent.ModeStream in tests
	layout  hostenv.Layout
	net     network
	reuse   bool // optionReuse is "slots"
	slots   slots
	sockets *netuse.Watcher // nil: slots do not keep network namespaces
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Collector = (*Driver)(nil)
	_ driver.Closer    = (*Driver)(nil)
)

// New opens the driver. binary is as for Factory. Unsupported: this host lacks a requirement; the
// error's Fix says how to provide it. Invalid: an option is malformed.
func New(h driver.Host, binary []byte) (*Driver, error) {
	o, err := parseOptions(h.Options)
	if err != nil {
		return nil, err
	}
	if err := hostenv.Probe(Name); err != nil {
		return nil, err
	}
	d := &Driver{Base: sandboxes.New(h), mode: agent.ModeSocket, reuse: o.slots}
	d.cookies = d.Mitigate && coreScheduling()
	if d.layout, err = hostenv.ReadLayout(o.extra); err != nil {
		return nil, err
	}
	if err := d.open(h, binary); err != nil {
		return nil, errors.Join(err, d.release())
	}
	return d, nil
}

// open opens the resources that release closes.
func (d *Driver) open(h driver.Host, binary []byte) (err error) {
	if err = d.Open(binary); err != nil {
		return err
	}
	if d.net, err = openNetwork(h, d.IDs); err != nil {
		return err
	}
	d.Describe(Name, driver.BoundaryNamespaces)
	for _, note := range []string{hostenv.ImageNote(), hostenv.LocalNote(), d.net.note} {
		if note != "" {
			d.Facts.Notes = append(d.Facts.Notes, note)
		}
	}
	if err := d.Groups.CanFreeze(); err != nil {
		d.Facts.Notes = append(d.Facts.Notes, "sandboxes can be neither paused nor forked: "+err.Error())
	}
	d.Facts.Notes = append(d.Facts.Notes, d.wayNote())
	if d.reuse && d.hasSlots() {
		if d.sockets, err = netuse.New(d.Groups.Unified()); err != nil {
			d.Facts.Notes = append(d.Facts.Notes, "slots make a new network namespace for every program, for a quarter more processor time: "+err.Error()+" (it takes Linux 5.14, CAP_BPF, CAP_NET_ADMIN and a version 2 cgroup that the daemon may write to)")
		}
	}
	if err = d.Compile(policy.TagLocks); err != nil {
		return err
	}
	return d.Start()
}

// release closes the resources that open has opened.
func (d *Driver) release() error {
	err := errors.Join(d.net.close(), d.Release())
	if d.sockets != nil {
		d.sockets.Close()
	}
	return err
}

// Close releases the driver's resources. All its sandboxes must be destroyed.
func (d *Driver) Close() error {
	if !d.Registry.Shut() {
		return nil
	}
	d.closeSlots()
	return d.release()
}

// Caps returns the driver's properties and the limits that it can enforce on this host.
func (d *Driver) Caps() driver.Caps {
	c := d.Facts
	c.Outbound = d.noNetwork() == ""
	c.Egress = c.Outbound
	return c
}

// refuse returns Unsupported if s asks for a network or a limit that this host cannot provide.
func (d *Driver) refuse(s sandbar.Spec) error {
	if err := egress.Refuse(Name, s.Network, d.noNetwork()); err != nil {
		return err
	}
	return d.Refuse(s)
}

// Create creates a sandbox; see driver.Driver.
func (d *Driver) Create(ctx context.Context, id sandbar.ID, s sandbar.Spec) (driver.Sandbox, error) {
	return d.createFrom(ctx, id, s, nil)
}

// createFrom is Create, with the files of a saved sandbox if saved is not nil.
func (d *Driver) createFrom(ctx context.Context, id sandbar.ID, s sandbar.Spec, saved *state) (driver.Sandbox, error) {
	sandbox, r, err := d.createWith(ctx, id, s, 0, saved)
	if err != nil {
		return nil, err
	}
	if !d.savesFiles() {
		return sandbox, nil
	}
	return &savable{Sandbox: sandbox, r: r, limits: s.Limits, imageID: r.imageID(), saving: make(chan struct{}, 1)}, nil
}

// create is Create, with the host's uid owner as the owner of the sandbox's user namespace. If
// owner is 0, it is spawn's own choice.
func (d *Driver) create(ctx context.Context, id sandbar.ID, s sandbar.Spec, owner int) (sandbox *client.Sandbox, r *resources, err error) {
	return d.createWith(ctx, id, s, owner, nil)
}

func (d *Driver) createWith(ctx context.Context, id sandbar.ID, s sandbar.Spec, owner int, saved *state) (sandbox *client.Sandbox, r *resources, err error) {
	if err := d.refuse(s); err != nil {
		return nil, nil, err
	}
	r = &resources{Resources: sandboxes.Resources{ID: id}, d: d, owner: owner, saved: saved}
	err = d.Build(ctx, &r.Resources, func() (err error) {
		sandbox, err = r.build(ctx, s)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return sandbox, r, nil
}

// Collect lists the agents and cgroups that killed daemons have left. With remove it also removes
// them.
func (d *Driver) Collect(ctx context.Context, remove bool) ([]driver.Leftover, error) {
	return spawn.Collect(ctx, d.Groups, spawn.AgentOwner, remove)
}
