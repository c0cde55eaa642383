package native

import (
	"context"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/cgroup"
	"github.com/sandbar-dev/sandbar/internal/linux/egress"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/linux/spawn"
)

// undoTimeout bounds the removal of a sandbox that could not be completed.
const undoTimeout = 10 * time.Second

// box is what one sandbox consists of on the host. Its fields are filled in as
// they come to exist, and destroy takes them back in reverse.
type resources struct {
	d     *Driver
	ID    sandbar.ID
	owner int           // of the user namespace, if not 0: a template
	nice  uint8         // of programs
	Image *driver.Image // nil: the host's own programs
	Range  *spawn.Range
	Group *cgroup.Group
	Init  *spawn.Child
	link  *egress.Link // nil if the sandbox does not reach out
	pids  int64        // what programs may have; not positive: no limit
	own   int          // processes and threads of the agent's

	Mu   sync.Mutex
	gone bool
}

// make builds the sandbox. On error the caller calls destroy.
func (b *resources) make(ctx context.Context, s sandbar.Spec) (*client.Sandbox, error) {
	image, err := b.d.openImage(ctx, s.Image)
	if err != nil {
		return nil, err
	}
	b.Image = image
	setup, err := b.d.plan(s, image)
	if err != nil {
		return nil, err
	}
	b.nice = setup.Nice
	if b.d.IDs.Ranged {
		if b.Range, err = b.d.Ranges.Take(); err != nil {
			return nil, err
		}
	}
	if b.d.grouped() {
		if b.Group, err = b.d.Groups.Create(string(b.ID), hostenv.GroupLimits(b.d.Groups.Caps(), s.Limits, agentTasks)); err != nil {
			return nil, err
		}
	}
	conn, err := b.boot()
	if err != nil {
		return nil, err
	}
	uid, gid := b.hostIDs()
	box, err := client.New(ctx, conn, client.Options{
		Destroy: b.destroy, Usage: b.usage(), Enforced: b.d.Facts.Enforced,
		UID: uid, GID: gid, ChownPipes: b.d.IDs.Ranged, Holds: true,
	})
	if err != nil {
		return nil, err
	}
	b.pids = s.Limits.PIDs
	b.own, err = b.setUp(ctx, box, setup)
	if err == nil {
		err = b.allow(0)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return box, nil
}

// allow lets the programs have exactly as many processes as was asked for, beside
// the agent's own and more of ours.
func (b *resources) allow(more int) error {
	if b.Group == nil || b.pids <= 0 {
		return nil
	}
	return b.Group.SetPIDs(b.pids + int64(b.own+more))
}

// setUp has the agent build the sandbox.
func (b *resources) setUp(ctx context.Context, box *client.Sandbox, setup *wire.Setup) (threads int, err error) {
	if err := b.makeDevice(&setup.Interface); err != nil {
		return 0, err
	}
	var roots []int
	if b.Image != nil && b.d.IDs.Ranged {
		root, err := b.Init.Show(b.Image.Dir)
		if err != nil {
			return 0, err
		}
		defer unix.Close(root)
		roots = append(roots, root)
	}
	threads, tun, err := box.Setup(ctx, setup, roots...)
	if err == nil && tun >= 0 {
		err = b.attach(tun)
	}
	return threads, err
}

// boot starts the agent in fresh namespaces and returns the connection to it.
func (b *resources) boot() (net.Conn, error) {
	ours, theirs, err := spawn.SocketPair()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	defer theirs.Close()
	request := b.d.IDs.Request(b.d.mode, b.Range, b.uid())
	if b.owner != 0 {
		request.Owner = uint32(b.owner)
	}
	b.Init, err = b.d.Spawner.Start(request, b.Group, theirs)
	if err != nil {
		return nil, err
	}
	conn, err := net.FileConn(ours)
	if err == nil && b.d.mode == agent.ModeStream {
		conn = struct{ net.Conn }{conn} // no longer one that passes descriptors
	}
	return conn, err
}

// hostIDs are the ids of the sandbox's user as the host numbers them.
func (b *resources) hostIDs() (uid, gid int) {
	if b.Range == nil {
		return os.Getuid(), os.Getgid()
	}
	return b.Range.First + b.uid(), b.Range.First + b.uid()
}

// uid is the user, and the group, of the sandbox's programs as they see it.
func (b *resources) uid() int {
	if b.Image != nil {
		return imageUID
	}
	return sandboxUID
}

// usage reads the cgroup's counters, if it has any.
func (b *resources) usage() func() client.Usage {
	g := b.Group // destroy forgets it, and may do so while this is called
	if g == nil {
		return nil
	}
	return func() client.Usage {
		s, err := g.Totals()
		if err != nil { // the sandbox is on its way out; what was read is right
			b.d.Log.Debug("a sandbox's counters could not be read", "sandbox", b.ID, "error", err)
		}
		return client.Usage{PeakMemory: s.MemoryPeak, CPU: s.CPUTime, OOMKills: s.OOMKills}
	}
}

// destroy kills everything in the sandbox and takes back what it consists of.
// The death of PID 1 is the death of its namespace: when it has been waited
// for, no process of the sandbox is left.
func (b *resources) destroy(ctx context.Context) error {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if b.gone {
		return nil
	}
	if b.Init != nil {
		if err := b.Init.End(ctx); err != nil {
			return err
		}
		b.Init = nil
	}
	if b.link != nil {
		if err := b.link.Close(); err != nil {
			return sandbar.Errorf(sandbar.Internal, "closing the sandbox's network device: %w", err)
		}
		b.link = nil
	}
	if b.Group != nil {
		if err := b.Group.Destroy(ctx); err != nil {
			return err
		}
		b.Group = nil
	}
	if b.Range != nil {
		b.d.Ranges.GiveBack(b.Range)
		b.Range = nil
	}
	if b.Image != nil {
		b.Image.Close()
		b.Image = nil
	}
	b.gone = true
	b.d.Roster.Release(string(b.ID))
	return nil
}
