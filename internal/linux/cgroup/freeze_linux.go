package cgroup

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// Freezing stops the programs of a sandbox without a signal, so that they cannot notice it. It uses
// the freezer of version 2 alone (cgroups(7), cgroup.freeze): a process that the freezer of version
// 1 has stopped cannot be killed, so it would survive the death of its daemon.
//
// The processes to freeze are in a group of their own, which exists from the first Freeze to the
// end of the Group. Processes that they start are in it too. If version 2 enforces limits, that
// group is below the Group, so the limits hold. On a host whose limits are those of version 1, it
// is a group without controllers in the version 2 hierarchy.

// frozenName is the group of frozen processes below a version 2 Group.
const frozenName = "frozen"

// freezer is where groups of frozen processes are created.
type freezer struct {
	parent string  // of groups "INSTANCE.ID"; "" if frozenName below the Group is used
	reason problem // why there is no freezer
}

// findFreezer sets the manager's freezer.
func (d *detection) findFreezer(own *membership) {
	f := &d.m.freezer
	if h := d.m.version2(); h != nil {
		if !d.m.sys.Readable(h.parent + "/cgroup.freeze") {
			f.reason = problem{"the kernel has no cgroup.freeze", "use Linux 5.2 or newer"}
		}
		return
	}
	if len(d.m.hierarchies) == 0 {
		f.reason = problem{"no control group can be created", "run `sandbar doctor` for what is missing"}
		return
	}
	const mountFix = "mount it: mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified"
	if own == nil {
		f.reason = problem{"the kernel has no version 2 hierarchy", "use Linux 5.2 or newer"}
		return
	}
	at, outside, ok := locate(d.mounts, func(m mount) bool { return m.version == 2 && d.visible(m) }, own.path)
	switch {
	case !ok && outside != "":
		f.reason = outsideProblem(own.path, outside)
	case !ok:
		f.reason = problem{"the version 2 hierarchy is not mounted", mountFix}
	case at.mount.readOnly:
		f.reason = problem{at.mount.dir + " is mounted read-only", readOnlyFix}
	case d.m.sys.Writable(at.dir) != nil || d.m.sys.Writable(at.dir+"/cgroup.procs") != nil:
		f.reason = problem{at.dir + " cannot be written to", d.m.delegateFix()}
	default:
		f.parent = at.dir + "/" + parentName
	}
}

// CanFreeze returns nil if Group.Freeze works, otherwise Unsupported with the reason and a fix.
func (m *Manager) CanFreeze() error {
	if m.freezer.reason.reason == "" {
		return nil
	}
	return &sandbar.Error{Code: sandbar.Unsupported, Message: "programs cannot be frozen: " + m.freezer.reason.reason, Fix: m.freezer.reason.fix}
}

// frozenDir returns the directory of the group of frozen processes.
func (g *Group) frozenDir() string {
	if h := g.m.version2(); h != nil {
		return g.dir(h) + "/" + frozenName
	}
	return g.m.freezer.parent + "/" + g.name
}

// Freeze stops every process of the group except keep, and all processes that they start, until
// Thaw. They can still be killed. Unsupported: see CanFreeze. Timeout: they have not stopped before
// the end of ctx; they run again.
func (g *Group) Freeze(ctx context.Context, keep int) error {
	if err := g.m.CanFreeze(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gone {
		return sandbar.Errorf(sandbar.Gone, "control group %s is gone", g.name)
	}
	dir := g.frozenDir()
	if err := g.makeFrozen(dir); err != nil {
		return err
	}
	g.freezes = true
	err := g.gather(ctx, dir, strconv.Itoa(keep))
	if err != nil {
		g.m.sys.WriteFile(dir+"/cgroup.freeze", "0")
	}
	return err
}

// makeFrozen creates the group of frozen processes, if it does not exist.
func (g *Group) makeFrozen(dir string) error {
	for try := 0; ; try++ {
		err := g.m.sys.Mkdir(dir)
		if err == unix.EEXIST {
			return nil
		}
		if err != unix.ENOENT || try == 10 || g.m.freezer.parent == "" {
			return kernelError("make "+dir, err)
		}
		// the parent is removed with its last group, perhaps by another daemon
		if err := g.m.sys.Mkdir(g.m.freezer.parent); err != nil && err != unix.EEXIST {
			return kernelError("make "+g.m.freezer.parent, err)
		}
	}
}

// gather moves all processes into the group of frozen processes, and waits until they have stopped.
// A process stops when it is moved, so each round leaves fewer that can start others.
func (g *Group) gather(ctx context.Context, dir, keep string) error {
	if err := g.m.sys.WriteFile(dir+"/cgroup.freeze", "1"); err != nil {
		return kernelError("freeze "+dir, err)
	}
	from := g.dir(g.m.hierarchies[0])
	if h := g.m.version2(); h != nil {
		from = g.dir(h)
	}
	for wait := 50 * time.Microsecond; ; wait = min(2*wait, 5*time.Millisecond) {
		moved, err := g.moveInto(dir, from, keep)
		if err != nil {
			return err
		}
		if !moved {
			b, err := g.m.sys.ReadFile(dir + "/cgroup.events")
			if err != nil {
				return kernelError("read "+dir, err)
			}
			if strings.Contains(string(b), "frozen 1") {
				// a process that was moved may have started another one before it stopped
				if moved, err = g.moveInto(dir, from, keep); err != nil || !moved {
					return err
				}
			}
		}
		select {
		case <-ctx.Done():
			return &sandbar.Error{Code: sandbar.Timeout, Message: "the programs could not be frozen in time", Err: ctx.Err()}
		case <-time.After(wait):
		}
	}
}

// moveInto moves the processes of from that are not in dir yet.
func (g *Group) moveInto(dir, from, keep string) (moved bool, err error) {
	all, err := g.m.readWords(from + "/cgroup.procs")
	if err != nil {
		return false, kernelError("read "+from, err)
	}
	var already []string
	if g.m.freezer.parent != "" { // otherwise dir's processes are not listed in from
		if already, err = g.m.readWords(dir + "/cgroup.procs"); err != nil {
			return false, kernelError("read "+dir, err)
		}
	}
	for _, pid := range all {
		if pid == keep || pid == "0" || slices.Contains(already, pid) || pid == strconv.Itoa(g.m.sys.Pid()) {
			continue
		}
		switch err := g.m.sys.WriteFile(dir+"/cgroup.procs", pid); err {
		case nil:
			moved = true
		case unix.ESRCH: // it has ended
		default:
			return moved, kernelError(fmt.Sprintf("move process %s to %s", pid, dir), err)
		}
	}
	return moved, nil
}

// Thaw lets the processes of Freeze run again.
func (g *Group) Thaw() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gone || !g.freezes {
		return nil
	}
	dir := g.frozenDir()
	return kernelError("thaw "+dir, g.m.sys.WriteFile(dir+"/cgroup.freeze", "0"))
}

// removeFreezerParent removes the parent of groups of frozen processes, if it is empty.
func (m *Manager) removeFreezerParent(dir string) {
	if m.freezer.parent != "" && path.Dir(dir) == m.freezer.parent {
		m.sys.Rmdir(m.freezer.parent) // EBUSY: it contains other groups
	}
}
