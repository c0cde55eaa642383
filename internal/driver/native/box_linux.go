package native

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/cgroup"
	"github.com/sandbar-dev/sandbar/internal/egress"
)

// undoTimeout bounds the removal of a sandbox that could not be completed.
const undoTimeout = 10 * time.Second

// box is what one sandbox consists of on the host. Its fields are filled in as
// they come to exist, and destroy takes them back in reverse.
type box struct {
	d     *Driver
	id    sandbar.ID
	owner int           // of the user namespace; 0: the daemon
	nice  uint8         // of programs
	image *driver.Image // nil: the host's own programs
	uids  *uidRange
	group *cgroup.Group
	init  *os.Process
	ended chan struct{} // closed when init has been waited for; nil until somebody waits
	link  *egress.Link  // nil if the sandbox does not reach out

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
	setup, err := b.d.plan(s, image)
	if err != nil {
		return nil, err
	}
	b.nice = setup.Nice
	if b.d.ids.ranged {
		if b.uids, err = b.d.uids.take(); err != nil {
			return nil, err
		}
	}
	if b.d.grouped() {
		if b.group, err = b.d.cgroups.Create(string(b.id), b.d.groupLimits(s.Limits)); err != nil {
			return nil, err
		}
	}
	conn, err := b.boot()
	if err != nil {
		return nil, err
	}
	uid, gid := b.hostIDs()
	box, err := client.New(ctx, conn, client.Options{
		Destroy: b.destroy, Usage: b.usage(), Enforced: b.d.caps.Enforced,
		UID: uid, GID: gid, ChownPipes: b.d.ids.ranged,
	})
	if err != nil {
		return nil, err
	}
	threads, err := b.setUp(ctx, box, setup)
	if err == nil && b.group != nil && s.Limits.PIDs > 0 {
		// Exactly as many as was asked for, beside the agent's own.
		err = b.group.SetPIDs(s.Limits.PIDs + int64(threads))
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return box, nil
}

// setUp has the agent build the sandbox.
func (b *box) setUp(ctx context.Context, box *client.Sandbox, setup *wire.Setup) (threads int, err error) {
	if err := b.makeDevice(&setup.Interface); err != nil {
		return 0, err
	}
	var roots []int
	if b.image != nil && b.d.ids.ranged {
		root, err := attachable(b.image.Dir, b.init.Pid)
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
func (b *box) boot() (net.Conn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Exhausted, "making a socket pair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "agent"), os.NewFile(uintptr(pair[1]), "agent")
	defer ours.Close()
	defer theirs.Close()
	b.init, err = b.d.spawner.spawn(b.group, &spawn{
		path: b.d.exe.path(), args: []string{agent.Name, b.d.mode, b.d.owner},
		socket: theirs, attr: b.attr(), owner: b.owner,
	})
	if err != nil {
		return nil, err
	}
	// Guests go first when the host runs out of memory; failure changes nothing
	// but that order.
	_ = os.WriteFile("/proc/"+itoa(b.init.Pid)+"/oom_score_adj", []byte("500"), 0)
	conn, err := net.FileConn(ours)
	if err == nil && b.d.mode == agent.ModeStream {
		conn = struct{ net.Conn }{conn} // no longer one that passes descriptors
	}
	return conn, err
}

// attr is how the kernel is to make the agent's process.
func (b *box) attr() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
			unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
		Setsid:    true,
		Pdeathsig: syscall.SIGKILL,
	}
	b.d.ids.apply(a, b.uids, b.uid())
	return a
}

// hostIDs are the ids of the sandbox's user as the host numbers them.
func (b *box) hostIDs() (uid, gid int) {
	if b.uids == nil {
		return os.Getuid(), os.Getgid()
	}
	return b.uids.first + b.uid(), b.uids.first + b.uid()
}

// uid is the user, and the group, of the sandbox's programs as they see it.
func (b *box) uid() int {
	if b.image != nil {
		return imageUID
	}
	return sandboxUID
}

// usage reads the cgroup's counters, if it has any.
func (b *box) usage() func() client.Usage {
	g := b.group // destroy forgets it, and may do so while this is called
	if g == nil {
		return nil
	}
	return func() client.Usage {
		s, err := g.Stats()
		if err != nil { // the sandbox is on its way out; what was read is right
			b.d.log.Debug("a sandbox's counters could not be read", "sandbox", b.id, "error", err)
		}
		return client.Usage{PeakMemory: s.MemoryPeak, CPU: s.CPUTime, OOMKills: s.OOMKills}
	}
}

// destroy kills everything in the sandbox and takes back what it consists of.
// The death of PID 1 is the death of its namespace: when it has been waited
// for, no process of the sandbox is left.
func (b *box) destroy(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil
	}
	if b.init != nil {
		_ = b.init.Kill() // it may have ended by itself
		if err := b.await(ctx); err != nil {
			return err
		}
		b.init = nil
	}
	if b.link != nil {
		if err := b.link.Close(); err != nil {
			return sandbar.Errorf(sandbar.Internal, "closing the sandbox's network device: %w", err)
		}
		b.link = nil
	}
	if b.group != nil {
		if err := b.group.Destroy(ctx); err != nil {
			return err
		}
		b.group = nil
	}
	if b.uids != nil {
		b.d.uids.giveBack(b.uids)
		b.uids = nil
	}
	if b.image != nil {
		b.image.Close()
		b.image = nil
	}
	b.gone = true
	b.d.release(b.id)
	return nil
}

// await waits, as long as ctx allows, for the end of the agent that was
// killed. Only one goroutine waits, however often this is called.
func (b *box) await(ctx context.Context) error {
	if b.ended == nil {
		ended, init := make(chan struct{}), b.init
		b.ended = ended
		go func() {
			_, _ = init.Wait() // how it ended is of no interest
			close(ended)
		}()
	}
	select {
	case <-b.ended:
		return nil
	case <-ctx.Done():
		return sandbar.Errorf(sandbar.Timeout, "a killed sandbox has not ended yet: %w", ctx.Err())
	}
}
