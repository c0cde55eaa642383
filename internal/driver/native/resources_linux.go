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

// resources are the resources of one sandbox on the host.
type resources struct {
	sandboxes.Resources
	d            *Driver
	owner        int          // uid on the host of the user namespace's owner; 0: spawn's choice
	nice         uint8        // nice value of programs
	saved        *state       // whose files the sandbox begins with; nil: none
	link         *egress.Link // nil: the sandbox has no network
	egress       *sandbar.Egress
	pids         int64 // limit of programs' processes and threads; not positive: none
	agentThreads int   // number of the agent's processes and threads
}

// build builds the sandbox.
func (r *resources) build(ctx context.Context, s sandbar.Spec) (_ *client.Sandbox, err error) {
	if r.Image, err = r.d.openImage(ctx, s.Image); err != nil {
		return nil, err
	}
	if r.saved != nil {
		if err := r.saved.fits(r.imageID()); err != nil {
			return nil, err
		}
	}
	setup, err := r.d.plan(s, r.Image, r.files())
	if err != nil {
		return nil, err
	}
	r.nice, r.pids, r.OnEnd, r.egress = setup.Nice, s.Limits.PIDs, r.closeLink, s.Egress
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
		Destroy: r.Destroy, Usage: r.Usage(), Use: r.Use(), Enforced: r.d.Facts.Enforced,
		UID: uid, GID: gid, ChownPipes: r.d.IDs.Ranged, Blocks: true, Restrict: r.restrict(s),
	})
	if err != nil {
		return nil, err
	}
	r.agentThreads, err = r.setUp(ctx, sandbox, setup)
	if err == nil {
		err = r.allow()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return sandbox, nil
}

// allow sets the cgroup's limit of processes and threads to the programs' limit, plus the agent's
// own.
func (r *resources) allow() error {
	if r.Group == nil || r.pids <= 0 {
		return nil
	}
	return r.Group.SetPIDs(r.pids + int64(r.agentThreads))
}

// setUp lets the agent build the sandbox. It returns the number of the agent's processes and
// threads.
func (r *resources) setUp(ctx context.Context, sandbox *client.Sandbox, setup *wire.Setup) (threads int, err error) {
	if err := r.makeDevice(&setup.Interface); err != nil {
		return 0, err
	}
	var roots []int
	if r.Image != nil && r.d.IDs.Ranged {
		root, err := r.Init.IDMappedMount(r.Image.Dir)
		if err != nil {
			return 0, err
		}
		defer unix.Close(root)
		roots = append(roots, root)
	}
	if r.saved != nil {
		roots = append(roots, int(r.saved.files.Fd()))
	}
	threads, tun, err := sandbox.Setup(ctx, setup, roots...)
	if err == nil && tun >= 0 {
		err = r.attach(tun)
	}
	return threads, err
}

// boot starts the agent in new namespaces and returns the connection to it.
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

// uid returns the uid and gid of programs, as seen in the sandbox.
func (r *resources) uid() int {
	if r.Image != nil {
		return imageUID
	}
	return sandboxUID
}

// closeLink closes the sandbox's network device, if it has one. Further calls do nothing.
func (r *resources) closeLink() error {
	if r.link == nil {
		return nil
	}
	if err := r.link.Close(); err != nil {
		return sandbar.Errorf(sandbar.Internal, "closing the sandbox's network device: %w", err)
	}
	return nil
}
