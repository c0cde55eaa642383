package cgroup

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// Group is the control groups of one sandbox: one directory in each hierarchy
// that is in use. Its methods may be called concurrently.
type Group struct {
	m    *Manager
	name string

	mu   sync.Mutex
	fd   int // of the version 2 directory; -1 when not open
	gone bool
}

// Create makes a group named after this daemon and id (1 to 64 of A-Z, a-z,
// 0-9, "_" and "-") and gives it its limits: Memory, CPUs, CPUShares and PIDs
// of l. A limit that is 0 or less is not set; the other fields are not this
// package's. Everything in the group counts, the sandbox's own process 1 too.
//
// On error nothing is left. Unsupported: a limit cannot be held here.
// Exhausted: the kernel has no room for another group. Exists: there is one of
// this name. Invalid: the id, or fewer CPUs than MinCPUs.
func (m *Manager) Create(id string, l sandbar.Limits) (*Group, error) {
	if !validName(id) {
		return nil, sandbar.Errorf(sandbar.Invalid, "group name %s: it is 1 to 64 of A-Z, a-z, 0-9, _ and -", sandbar.Quote(id, 80))
	}
	if len(m.hierarchies) == 0 {
		err := sandbar.Errorf(sandbar.Unsupported, "no control group can be made: %s", m.reason(memory))
		err.Fix = m.fix(memory)
		return nil, err
	}
	if err := m.check(l); err != nil {
		return nil, err
	}
	g := &Group{m: m, name: m.instance + "." + id, fd: -1}
	for i, h := range m.hierarchies {
		err := m.mkdir(h, g.dir(h))
		if err == nil {
			i++ // this one is there to be removed
			err = m.apply(h, g.dir(h), l)
		}
		if err != nil {
			for _, made := range m.hierarchies[:i] {
				m.sys.Rmdir(g.dir(made))
			}
			return nil, err
		}
	}
	return g, nil
}

// mkdir makes a group, and its parent when another daemon that closed has
// removed that.
func (m *Manager) mkdir(h *hierarchy, dir string) error {
	for try := 0; ; try++ {
		err := m.sys.Mkdir(dir)
		if err != unix.ENOENT || try == 10 {
			return kernelError("make "+dir, err)
		}
		if err := m.makeParent(h); err != nil {
			return kernelError("make "+h.parent, err)
		}
	}
}

// Name returns "INSTANCE.ID".
func (g *Group) Name() string { return g.name }

// Dirs returns the group's directories, for logs.
func (g *Group) Dirs() []string {
	var dirs []string
	for _, h := range g.m.hierarchies {
		dirs = append(dirs, g.dir(h))
	}
	return dirs
}

func (g *Group) dir(h *hierarchy) string { return h.parent + "/" + g.name }

// FD returns a descriptor of the version 2 directory for CLONE_INTO_CGROUP, or
// -1 on a host where version 2 is not in use. It belongs to the group and is
// closed by Destroy.
func (g *Group) FD() (int, error) {
	h := g.m.version2()
	if h == nil {
		return -1, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gone {
		return -1, sandbar.Errorf(sandbar.Gone, "control group %s is gone", g.name)
	}
	if g.fd < 0 {
		fd, err := retry(func() (int, error) {
			return unix.Open(g.dir(h), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		})
		if err != nil {
			return -1, kernelError("open "+g.dir(h), err)
		}
		g.fd = fd
	}
	return g.fd, nil
}

// Kill sends SIGKILL to every process in the group, and prevents that more are
// made where the kernel can: at once on version 2, in passes on version 1. It
// does not wait for their end. It is the belt to the braces: the death of a
// sandbox's process 1 already kills everything in its PID namespace.
func (g *Group) Kill() error { return g.m.kill(g.Dirs()) }

// Destroy kills what is left in the group and removes it, waiting for the last
// process to be gone as long as ctx allows. It is idempotent; a group that is
// gone is no error.
func (g *Group) Destroy(ctx context.Context) error {
	g.mu.Lock()
	if g.fd >= 0 {
		unix.Close(g.fd)
	}
	g.fd, g.gone = -1, true
	g.mu.Unlock()
	return g.m.remove(ctx, g.Dirs())
}

// remove kills and removes groups. A dying process keeps its group for a
// moment after it can be waited for, so that the first tries may find it busy.
func (m *Manager) remove(ctx context.Context, dirs []string) error {
	dirs = slices.Clone(dirs)
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		var failed error
		dirs = slices.DeleteFunc(dirs, func(dir string) bool {
			err := m.sys.Rmdir(dir)
			if err == nil || err == unix.ENOENT {
				return true
			}
			if err != unix.EBUSY {
				failed = kernelError("remove "+dir, err)
			}
			return false
		})
		if len(dirs) == 0 || failed != nil {
			return failed
		}
		if err := m.kill(dirs); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return &sandbar.Error{
				Code:    sandbar.Timeout,
				Message: fmt.Sprintf("control group %s still has processes: %s", dirs[0], m.processes(dirs[0])),
				Err:     ctx.Err(),
			}
		case <-time.After(wait):
		}
	}
}

// processes names a few of a group's processes.
func (m *Manager) processes(dir string) string {
	list, err := m.readWords(dir + "/cgroup.procs")
	if err != nil || len(list) == 0 {
		return "none that can be seen"
	}
	if len(list) > 8 {
		return strings.Join(list[:8], " ") + " and others"
	}
	return strings.Join(list, " ")
}

// kill kills everything in the groups.
func (m *Manager) kill(dirs []string) error {
	var rest []string
	for _, dir := range dirs {
		switch err := m.sys.WriteFile(dir+"/cgroup.kill", "1"); err {
		case nil, unix.ENODEV: // ENODEV: it was removed just now
		case unix.ENOENT, unix.EOPNOTSUPP:
			rest = append(rest, dir)
		default:
			return kernelError("kill what is in "+dir, err)
		}
	}
	// Forking is stopped first, where there is a limit of processes or the
	// group can be frozen (SIGKILL reaches the frozen): then two passes do.
	for _, dir := range rest {
		m.sys.WriteFile(dir+"/pids.max", "0")
		m.sys.WriteFile(dir+"/cgroup.freeze", "1")
	}
	for _, dir := range rest {
		if err := m.killEach(dir); err != nil {
			return kernelError("kill what is in "+dir, err)
		}
	}
	return nil
}

// killEach kills the processes of a group one by one, in passes until one
// finds no process that was not there before.
func (m *Manager) killEach(dir string) error {
	const passes = 1000
	hit := map[string]bool{}
	for range passes {
		list, err := m.readWords(dir + "/cgroup.procs")
		if err == unix.ENOENT || err == unix.ENODEV {
			return nil // it is gone, and so are they
		}
		if err != nil {
			return err
		}
		fresh := false
		for _, pid := range list {
			if m.killOne(dir, pid) && !hit[pid] {
				hit[pid], fresh = true, true
			}
		}
		if !fresh {
			return nil
		}
	}
	return unix.EAGAIN
}

// killOne kills a process if it is in the group still: between the reading of
// the list and the signal its number may have come to name another process.
// This process itself is never killed: one of its threads may be in the group
// for the moment of starting something.
func (m *Manager) killOne(dir, pid string) bool {
	n, err := strconv.Atoi(pid)
	if err != nil || n <= 0 || n == m.sys.Pid() {
		return false
	}
	fd, err := unix.PidfdOpen(n, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if list, err := m.readWords(dir + "/cgroup.procs"); err != nil || !slices.Contains(list, pid) {
		return false
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}
