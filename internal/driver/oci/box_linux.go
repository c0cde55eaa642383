package oci

import (
	"context"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/linux/cgroup"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/linux/spawn"
)

// undoTimeout bounds the removal of a sandbox that could not be completed.
const undoTimeout = 10 * time.Second

// box is what one sandbox consists of on the host. Its fields are filled in as
// they come to exist, and destroy takes them back in reverse.
type box struct {
	d     *Driver
	id    sandbar.ID
	image *driver.Image // nil: the host's own programs
	uids  *spawn.Range
	group *cgroup.Group
	init  *spawn.Child // the stage, then the runtime
	said  *complaint   // what the runtime says
	// held is the memory that the runtime and the agent had when no program had
	// run yet.
	held int64

	mu   sync.Mutex
	gone bool
}

// make builds the sandbox. On error the caller calls destroy.
func (b *box) make(ctx context.Context, s sandbar.Spec) (*client.Sandbox, error) {
	image, err := b.d.openImage(ctx, s.Image)
	if err != nil {
		return nil, err
	}
	b.image = image
	p, err := b.d.plan(b.id, s, image)
	if err != nil {
		return nil, err
	}
	if err := b.take(s.Limits); err != nil {
		return nil, err
	}
	conn, err := b.boot(p)
	if err != nil {
		return nil, err
	}
	uid, gid := b.hostIDs(p.setup.UID)
	box, err := client.New(ctx, conn, client.Options{
		Destroy: b.destroy, Usage: b.usage(), Enforced: b.d.caps.Enforced,
		UID: uid, GID: gid, ChownPipes: b.d.ids.Ranged, UsageOnly: b.d.runtime.guestKernel(),
	})
	if err != nil {
		return nil, b.explain(ctx, err)
	}
	_, _, err = box.Setup(ctx, p.setup)
	if err == nil {
		err = b.limit(s.Limits)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return box, nil
}

// take takes the ids and makes the group.
func (b *box) take(l sandbar.Limits) (err error) {
	if b.d.ids.Ranged {
		if b.uids, err = b.d.uids.Take(); err != nil {
			return err
		}
	}
	if !b.d.cgroups.Caps().Any() {
		return nil
	}
	limits := hostenv.GroupLimits(b.d.cgroups.Caps(), l, runtimeTasks)
	limits.Memory = 0 // see limit
	if b.d.runtime.guestKernel() {
		limits.PIDs = 0 // the programs are none of the host's processes
	}
	b.group, err = b.d.cgroups.Create(string(b.id), limits)
	return err
}

// boot starts the stage, tells it what to build and returns the connection,
// which is the agent's as soon as there is one.
func (b *box) boot(p *plan) (net.Conn, error) {
	ours, theirs, err := spawn.SocketPair()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	defer theirs.Close()
	if b.init, err = b.d.spawner.Start(b.d.ids.Request(agent.ModeStage, b.uids, 0), b.group, theirs); err != nil {
		return nil, err
	}
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "connecting to the stage: %w", err)
	}
	if err := b.prepare(conn, p); err != nil {
		conn.Close()
		return nil, err
	}
	if !b.d.runtime.passes() {
		conn = struct{ net.Conn }{conn} // no longer one that passes descriptors
	}
	return conn, nil
}

// prepare sends the plan with all that it needs.
func (b *box) prepare(conn net.Conn, p *plan) error {
	listen, speak, err := os.Pipe()
	if err != nil {
		return sandbar.Errorf(sandbar.Exhausted, "making a pipe: %w", err)
	}
	defer speak.Close()
	b.said = hear(listen)
	fds := []int{int(b.d.program.Fd()), int(speak.Fd())}
	if b.image != nil && b.d.ids.Ranged {
		root, err := b.init.Show(b.image.Dir)
		if err != nil {
			return err
		}
		defer unix.Close(root)
		fds = append(fds, root)
	}
	return client.Prepare(conn, p.stage, fds...)
}

// limit sets the limits of what the host counts: so much as was asked for,
// beside what the runtime and the agent have now, before any program.
func (b *box) limit(l sandbar.Limits) error {
	if b.group == nil {
		return nil
	}
	now, err := b.group.Stats()
	if err != nil {
		return err
	}
	b.held = now.MemoryCurrent
	if l.Memory > 0 && b.d.cgroups.Caps().Memory != sandbar.EnforcedNone {
		if err := b.group.SetMemory(l.Memory + b.held + b.d.slack(l.Memory)); err != nil {
			return err
		}
	}
	if l.PIDs > 0 && !b.d.runtime.guestKernel() {
		return b.group.SetPIDs(l.PIDs + now.PIDsCurrent)
	}
	return nil
}

// hostIDs are the ids of the sandbox's user as the host numbers them.
func (b *box) hostIDs(inside uint32) (uid, gid int) {
	if b.uids == nil {
		return os.Getuid(), os.Getgid()
	}
	return b.uids.First + int(inside), b.uids.First + int(inside)
}

// usage reads the control group's counters, if there is one.
func (b *box) usage() func() client.Usage {
	g := b.group // destroy forgets it, and may do so while this is called
	if g == nil {
		return nil
	}
	return func() client.Usage {
		s, err := g.Totals()
		if err != nil { // the sandbox is on its way out; what was read is right
			b.d.log.Debug("a sandbox's counters could not be read", "sandbox", b.id, "error", err)
		}
		return client.Usage{PeakMemory: max(0, s.MemoryPeak-b.held), CPU: s.CPUTime, OOMKills: s.OOMKills}
	}
}

// explain adds to an error what the runtime has said of it.
func (b *box) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil || sandbar.CodeOf(err) != sandbar.Internal || b.said == nil {
		return err
	}
	if said := b.said.wait(ctx); said != "" {
		return &sandbar.Error{Code: sandbar.Unsupported, Err: err,
			Message: string(b.d.runtime.kind) + " did not make the container: " + sandbar.Quote(said, 500),
			Fix:     "run `sandbar doctor`; another runtime, or another driver, may work here"}
	}
	return err
}

// destroy kills everything in the sandbox and takes back what it consists of.
// The runtime is PID 1 of a namespace that the container is within: when it has
// been waited for, no process of either is left, nor a mount, nor a file.
func (b *box) destroy(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil
	}
	if b.init != nil {
		if err := b.init.End(ctx); err != nil {
			return err
		}
		b.init = nil
	}
	if b.said != nil {
		b.said.close()
		b.said = nil
	}
	if b.group != nil {
		if err := b.group.Destroy(ctx); err != nil {
			return err
		}
		b.group = nil
	}
	if b.uids != nil {
		b.d.uids.GiveBack(b.uids)
		b.uids = nil
	}
	if b.image != nil {
		b.image.Close()
		b.image = nil
	}
	b.gone = true
	b.d.roster.Release(string(b.id))
	return nil
}

// complaint is what a runtime writes to its standard error output. Only the
// beginning is kept, and the rest read and forgotten: the container's first
// program has that output as well.
type complaint struct {
	from *os.File
	done chan struct{}
	mu   sync.Mutex
	text []byte
}

// maxComplaint is how much of it is kept, in bytes.
const maxComplaint = 4 << 10

// hear takes over the reading end of a pipe.
func hear(from *os.File) *complaint {
	c := &complaint{from: from, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		var buf [512]byte
		for {
			n, err := from.Read(buf[:])
			c.mu.Lock()
			c.text = append(c.text, buf[:min(n, maxComplaint-len(c.text))]...)
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return c
}

// complaintTime is how long a runtime that has failed may take to say why.
const complaintTime = 2 * time.Second

// wait returns what was said, when all is or ctx ends.
func (c *complaint) wait(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, complaintTime)
	defer cancel()
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.TrimSpace(string(c.text))
}

func (c *complaint) close() {
	c.from.Close()
	<-c.done
}
