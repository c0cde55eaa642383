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

// Group is the cgroups of one sandbox: one directory per hierarchy. Its methods may be called
// concurrently.
type Group struct {
	m    *Manager
	name string

	mu   sync.Mutex
	fd   int // of the version 2 directory; -1 if not open
	gone bool
	// freezes: the group of frozen processes may exist.
	freezes bool
}

// Create creates a group named after this daemon and id (1 to 64 of A-Z, a-z, 0-9, "_" and "-"),
// with the limits Memory, CPUs, CPUShares and PIDs of l. A limit of 0 or less is not set. Every
// process in the group counts, the sandbox's own init too.
//
// On an error it leaves nothing behind. Unsupported: this host cannot enforce a limit. Exhausted:
// the kernel has reached its number of groups. Exists: the name is taken. Invalid: the id is
// invalid, or CPUs is below MinCPUs.
func (m *Manager) Create(id string, l sandbar.Limits) (*Group, error) {
	if !validName(id) {
		return nil, sandbar.Errorf(sandbar.Invalid, "group name %s: it is 1 to 64 of A-Z, a-z, 0-9, _ and -", sandbar.Quote(id, 80))
	}
	if len(m.hierarchies) == 0 {
		err := sandbar.Errorf(sandbar.Unsupported, "no cgroup can be created: %s", m.reason(memory))
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
			i++ // this directory exists and is removed too
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

// mkdir creates a group. If another daemon has removed the parent on its exit, mkdir creates that
// again.
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

// FD returns a descriptor of the version 2 directory for CLONE_INTO_CGROUP, or -1 on a host without
// version 2. The group owns it; Destroy closes it.
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

// Kill sends SIGKILL to every process in the group and stops further forks if the kernel can:
// atomically in version 2, in passes in version 1. It does not wait for the processes to exit. It
// is a second mechanism: the death of a sandbox's init already kills its whole PID namespace.
func (g *Group) Kill() error { return g.m.kill(g.Dirs()) }

// Destroy kills the remaining processes of the group and removes it. It waits for the last process
// to exit until ctx ends. It is idempotent; a missing group is no error.
func (g *Group) Destroy(ctx context.Context) error {
	g.mu.Lock()
	if g.fd >= 0 {
		unix.Close(g.fd)
	}
	g.fd, g.gone = -1, true
	dirs := g.Dirs()
	if g.freezes {
		dirs = append(dirs, g.frozenDir())
	}
	g.mu.Unlock()
	return g.m.remove(ctx, dirs)
}

// remove kills and removes groups. An exiting process keeps its group for a moment after wait(2)
// has returned, so the first attempts may find the group busy.
func (m *Manager) remove(ctx context.Context, dirs []string) error {
	dirs = slices.Clone(dirs)
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		var failed error
		dirs = slices.DeleteFunc(dirs, func(dir string) bool {
			err := m.sys.Rmdir(dir)
			if err == unix.EBUSY && m.sys.Rmdir(dir+"/"+frozenName) == nil {
				err = m.sys.Rmdir(dir)
			}
			if err == nil || err == unix.ENOENT {
				m.removeFreezerParent(dir)
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

// processes lists some of a group's processes, for an error.
func (m *Manager) processes(dir string) string {
	list, err := m.readWords(dir + "/cgroup.procs")
	if err != nil || len(list) == 0 {
		return "none visible"
	}
	if len(list) > 8 {
		return strings.Join(list[:8], " ") + " and others"
	}
	return strings.Join(list, " ")
}

// kill kills all processes of the groups.
func (m *Manager) kill(dirs []string) error {
	var rest []string
	for _, dir := range dirs {
		switch err := m.sys.WriteFile(dir+"/cgroup.kill", "1"); err {
		case nil, unix.ENODEV: // ENODEV: the group was just removed
		case unix.ENOENT, unix.EOPNOTSUPP:
			rest = append(rest, dir)
		default:
			return kernelError("kill what is in "+dir, err)
		}
	}
	// Stop forks first, by the pids limit or by freezing the group (SIGKILL reaches frozen
	// processes): then two passes suffice.
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

// killEach kills the processes of a group one by one, in passes, until a pass finds no new process.
func (m *Manager) killEach(dir string) error {
	const passes = 1000
	hit := map[string]bool{}
	for range passes {
		list, err := m.readWords(dir + "/cgroup.procs")
		if err == unix.ENOENT || err == unix.ENODEV {
			return nil // the group is gone, and so are its processes
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

// killOne kills a process if it is still in the group: its pid may have been reused since the list
// was read. It never kills this process: one of its threads may be in the group while it clones.
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
