package native

import (
	"context"
	"net"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/egress"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/linux/sandboxes"
)

// resources are what one sandbox holds on the host.
type resources struct {
	sandboxes.Resources
	d     *Driver
	owner int          // of the user namespace, if not 0: a template
	nice  uint8        // of programs
	link  *egress.Link // nil if the sandbox does not reach out
	pids  int64        // the limit of programs' processes and threads; not positive: none
	own   int          // processes and threads of the agent
}

// build builds the sandbox.
func (r *resources) build(ctx context.Context, s sandbar.Spec) (_ *client.Sandbox, err error) {
	if r.Image, err = r.d.openImage(ctx, s.Image); err != nil {
		return nil, err
	}
	setup, err := r.d.plan(s, r.Image)
	if err != nil {
		return nil, err
	}
	r.nice, r.pids, r.Ended = setup.Nice, s.Limits.PIDs, r.closeLink
	if err := r.TakeRange(); err != nil {
		return nil, err
	}
	if err := r.TakeGroup(hostenv.GroupLimits(r.d.Groups.Caps(), s.Limits, agentTasks)); err != nil {
		return nil, err
	}
	conn, err := r.boot()
	if err != nil {
		return nil, err
	}
	uid, gid := r.HostIDs(r.uid())
	sandbox, err := client.New(ctx, conn, client.Options{
		Destroy: r.Destroy, Usage: r.Usage(), Enforced: r.d.Facts.Enforced,
		UID: uid, GID: gid, ChownPipes: r.d.IDs.Ranged, Blocks: true,
	})
	if err != nil {
		return nil, err
	}
	r.own, err = r.setUp(ctx, sandbox, setup)
	if err == nil {
		err = r.allow(0)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return sandbox, nil
}

// allow sets the group's limit of processes and threads so that programs have exactly their limit,
// beside the agent's own and more others.
func (r *resources) allow(more int) error {
	if r.Group == nil || r.pids <= 0 {
		return nil
	}
	return r.Group.SetPIDs(r.pids + int64(r.own+more))
}

// setUp has the agent build the sandbox.
func (r *resources) setUp(ctx context.Context, sandbox *client.Sandbox, setup *wire.Setup) (threads int, err error) {
	if err := r.makeDevice(&setup.Interface); err != nil {
		return 0, err
	}
	var roots []int
	if r.Image != nil && r.d.IDs.Ranged {
		root, err := r.Init.Show(r.Image.Dir)
		if err != nil {
			return 0, err
		}
		defer unix.Close(root)
		roots = append(roots, root)
	}
	threads, tun, err := sandbox.Setup(ctx, setup, roots...)
	if err == nil && tun >= 0 {
		err = r.attach(tun)
	}
	return threads, err
}

// boot starts the agent in fresh namespaces and returns the connection to it.
func (r *resources) boot() (net.Conn, error) {
	request := r.d.IDs.Request(r.d.mode, r.Range, r.uid())
	if r.owner != 0 {
		request.Owner = uint32(r.owner)
	}
	conn, err := r.Boot(request)
	if err == nil && r.d.mode == agent.ModeStream {
		conn = struct{ net.Conn }{conn} // hides the ability to pass descriptors
	}
	return conn, err
}

// uid is the user, and the group, of the sandbox's programs as they see it.
func (r *resources) uid() int {
	if r.Image != nil {
		return imageUID
	}
	return sandboxUID
}

// closeLink closes the sandbox's network device, if it has one.
func (r *resources) closeLink() error {
	if r.link == nil {
		return nil
	}
	if err := r.link.Close(); err != nil {
		return sandbar.Errorf(sandbar.Internal, "closing the sandbox's network device: %w", err)
	}
	r.link = nil
	return nil
}
