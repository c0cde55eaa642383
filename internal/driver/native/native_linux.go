package native

import (
	"context"
	"errors"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
	"github.com/sandbar-dev/sandbar/internal/linux/sandboxes"
	"github.com/sandbar-dev/sandbar/internal/linux/spawn"
)

// Name is the driver's name in configuration.
const Name = "native"

// Factory returns the native driver's factory. binary is the agent's program;
// nil has the running binary start itself as the agent (it must then call
// agent.Main when agent.IsAgent).
func Factory(binary []byte) driver.Factory {
	return driver.Factory{
		Name:    Name,
		Summary: "Linux namespaces, with this machine's own programs; nothing to install",
		Options: map[string]string{
			optionPaths: "colon-separated directories of this machine that sandboxes see read-only, besides /usr, /bin and /lib*; for interpreters in /opt, say",
		},
		New: func(h driver.Host) (driver.Driver, error) { return New(h, binary) },
	}
}

// Driver makes sandboxes out of namespaces.
type Driver struct {
	sandboxes.Base
	cookies     bool   // the kernel gives forks core scheduling cookies of their own
	mode        string // how the agent is spoken to: agent.ModeSocket, and in tests also agent.ModeStream
	machineCode bool   // python.Config.MachineCode of templates; false in a test only
	layout      hostenv.Layout
	net         network
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Collector = (*Driver)(nil)
	_ driver.Closer    = (*Driver)(nil)
)

// New makes the driver, or says with Unsupported what this host lacks and how
// to get it.
func New(h driver.Host, binary []byte) (*Driver, error) {
	extra, err := parseOptions(h.Options)
	if err != nil {
		return nil, err
	}
	if err := hostenv.Probe(Name); err != nil {
		return nil, err
	}
	d := &Driver{Base: sandboxes.New(h), mode: agent.ModeSocket, machineCode: true}
	d.cookies = d.Mitigate && coreScheduling()
	if d.layout, err = hostenv.ReadLayout(extra); err != nil {
		return nil, err
	}
	if err := d.open(h, binary); err != nil {
		return nil, errors.Join(err, d.release())
	}
	return d, nil
}

// open opens what release closes.
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
	if err = d.Compile(policy.TagLocks); err != nil {
		return err
	}
	return d.Start()
}

// release closes what open has opened.
func (d *Driver) release() error { return errors.Join(d.net.close(), d.Release()) }

// Close releases what the driver holds; all its sandboxes must be destroyed.
func (d *Driver) Close() error {
	if !d.Registry.Shut() {
		return nil
	}
	return d.release()
}

// Caps tells what this driver is and can enforce on this host.
func (d *Driver) Caps() driver.Caps {
	c := d.Facts
	c.Outbound = d.canReachOut()
	return c
}

// refuse returns an error if s asks for what cannot be done or enforced here.
func (d *Driver) refuse(s sandbar.Spec) error {
	if err := d.refuseNetwork(s.Network); err != nil {
		return err
	}
	return d.Refuse(s)
}

// Create makes a sandbox.
func (d *Driver) Create(ctx context.Context, id sandbar.ID, s sandbar.Spec) (driver.Sandbox, error) {
	sandbox, _, err := d.create(ctx, id, s, 0)
	if err != nil {
		return nil, err
	}
	return sandbox, nil
}

// create is Create with another owner of the sandbox's user namespace than an id of the
// sandbox's own range, if owner is not 0.
func (d *Driver) create(ctx context.Context, id sandbar.ID, s sandbar.Spec, owner int) (sandbox *client.Sandbox, r *resources, err error) {
	if err := d.refuse(s); err != nil {
		return nil, nil, err
	}
	r = &resources{Resources: sandboxes.Resources{ID: id}, d: d, owner: owner}
	err = d.Build(ctx, &r.Resources, func() (err error) {
		sandbox, err = r.build(ctx, s)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return sandbox, r, nil
}

// Collect finds, and with remove ends, what daemons that were killed have left:
// agents that have not noticed yet, and the groups of their sandboxes.
func (d *Driver) Collect(ctx context.Context, remove bool) ([]driver.Leftover, error) {
	return spawn.Collect(ctx, d.Groups, spawn.Agents, remove)
}
