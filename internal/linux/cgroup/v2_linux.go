package cgroup

import (
	"cmp"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// leafName is the group that this process moves to when it has a group to
// itself. A group of version 2 that has processes cannot limit groups below it.
const leafName = "sandbar-daemon"

// wanted2 is the controllers that version 2 has to be asked for.
func wantedV2() []string { return []string{memory, cpu, pids} }

// version2 tries the version 2 hierarchy. Controllers that are in use in
// version 1 hierarchies do not appear in it.
func (d *detection) version2(own membership) {
	var open []string
	for _, c := range wantedV2() {
		if _, known := d.found[c]; !known {
			open = append(open, c)
		}
	}
	if len(open) == 0 {
		return
	}
	fits := func(m mount) bool { return m.version == 2 && d.visible(m) }
	at, outside, ok := locate(d.mounts, fits, own.path)
	switch {
	case outside != "" && !ok:
		d.refuse(open, outsideProblem(own.path, outside))
		return
	case !ok:
		d.refuse(open, problem{"the version 2 hierarchy is not mounted",
			"mount it: mkdir -p /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup"})
		return
	}
	offered, err := d.m.readWords(at.mount.dir + "/cgroup.controllers")
	if err != nil {
		d.refuse(open, problem{fmt.Sprintf("%s cannot be read: %v", at.mount.dir, err), ""})
		return
	}
	// What the top does not offer is nowhere below either: finish says so.
	open = common(open, offered)
	if len(open) == 0 {
		return
	}
	if at.mount.readOnly {
		d.refuse(open, problem{at.mount.dir + " is mounted read-only", readOnlyFix})
		return
	}
	d.chooseVersion2(at, open)
}

// chooseVersion2 takes the candidate with most controllers, the nearest of
// those that have equally many; when the kernel refuses it all the same, the next.
func (d *detection) chooseVersion2(at location, open []string) {
	candidates := d.m.candidates(at, open)
	slices.SortStableFunc(candidates, func(a, b candidate) int { return len(b.usable) - len(a.usable) })
	for _, c := range candidates {
		if len(c.usable) == 0 {
			break
		}
		h, err := d.m.setUp(c)
		if err != nil {
			d.refuse(open, problem{fmt.Sprintf("no group can be made in %s: %v", c.dir, err), d.m.delegateFix()})
			continue
		}
		d.use(h)
		d.refuse(open, problem{"it is not passed down to " + h.base, d.m.enableFix(h.base)})
		return
	}
	if _, refused := d.found[open[0]]; refused {
		return
	}
	// None is usable: the nearest tells most about what to do.
	nearest := slices.MaxFunc(candidates, func(a, b candidate) int { return len(a.dir) - len(b.dir) })
	d.refuse(open, nearest.problem)
}

// candidate is a group in which groups might be made.
type candidate struct {
	dir       string
	exclusive bool     // it is this process's own, and nobody else is in it
	missing   []string // controllers to be enabled
	usable    []string // controllers that then work
	problem   problem  // why usable is not all that is open
}

// candidates looks at this process's own group and those above it, nearest
// first. It only reads.
func (m *Manager) candidates(at location, open []string) []candidate {
	var list []candidate
	for dir := at.dir; ; dir = path.Dir(dir) {
		// The leaf is one that this process, or the one it was before an exec,
		// made; the group above it is set up.
		if path.Base(dir) != leafName {
			list = append(list, m.candidate(dir, dir == at.dir, open))
		}
		if dir == at.mount.dir {
			return list
		}
	}
}

func (m *Manager) candidate(dir string, own bool, open []string) candidate {
	c := candidate{dir: dir}
	// To make groups; to bring processes from below dir into them.
	for _, name := range []string{dir, dir + "/cgroup.procs"} {
		if err := m.sys.Writable(name); err != nil {
			c.problem = problem{fmt.Sprintf("%s cannot be written to: %v", name, err), m.delegateFix()}
			return c
		}
	}
	available, err := m.readWords(dir + "/cgroup.controllers")
	if err != nil {
		c.problem = problem{fmt.Sprintf("%s cannot be read: %v", dir, err), m.delegateFix()}
		return c
	}
	enabled, _ := m.readWords(dir + "/cgroup.subtree_control")
	procs, _ := m.readWords(dir + "/cgroup.procs")
	available = common(open, available)
	c.usable = common(available, enabled)
	for _, name := range available {
		if !slices.Contains(c.usable, name) {
			c.missing = append(c.missing, name)
		}
	}
	if len(c.missing) > 0 {
		c.exclusive = own && len(procs) == 1 && procs[0] == strconv.Itoa(m.sys.Pid())
		switch {
		case m.sys.Writable(dir+"/cgroup.subtree_control") != nil:
			c.problem = problem{"controllers cannot be enabled in " + dir, m.delegateFix()}
		case len(procs) > 0 && !c.exclusive && !m.top(dir):
			c.problem = problem{"other processes are in " + dir + ", so that it cannot limit groups below it", m.crowdFix(dir)}
		default:
			c.usable = available
		}
	}
	if len(c.usable) < len(open) && c.problem.reason == "" {
		c.problem = problem{"not every controller is available in " + dir, m.enableFix(dir)}
	}
	return c
}

// top reports whether dir is the top of the whole hierarchy, which may have
// processes and enabled controllers at once. It is the one group that has no type.
func (m *Manager) top(dir string) bool {
	_, err := m.sys.ReadFile(dir + "/cgroup.type")
	return err == unix.ENOENT
}

// adopt sets the candidate up: this process out of the way, controllers
// enabled, the parent made. On error all of it is undone.
func (m *Manager) setUp(c candidate) (*hierarchy, error) {
	h := &hierarchy{version: 2, base: c.dir, parent: c.dir + "/" + parentName}
	if c.exclusive {
		h.leaf = c.dir + "/" + leafName
		if err := m.sys.Mkdir(h.leaf); err != nil && err != unix.EEXIST {
			return nil, err
		}
		if err := m.sys.WriteFile(h.leaf+"/cgroup.procs", strconv.Itoa(m.sys.Pid())); err != nil {
			m.sys.Rmdir(h.leaf)
			return nil, err
		}
	}
	h.controllers = c.usable
	err := m.makeParent(h)
	on, _ := m.readWords(h.parent + "/cgroup.subtree_control")
	h.controllers = common(c.usable, on)
	if c.exclusive { // what was enabled here is what Close gives back
		on, _ = m.readWords(h.base + "/cgroup.subtree_control")
		h.enabled = common(c.missing, on)
	}
	if len(h.controllers) > 0 {
		err = m.probe2(h) // the others are reported as missing
	}
	if err != nil {
		m.release(h)
		return nil, err
	}
	return h, nil
}

// probe2 makes a group in h and removes it.
func (m *Manager) probe2(h *hierarchy) error {
	dir := h.parent + "/" + m.instance + ".probe"
	if err := m.sys.Mkdir(dir); err != nil && err != unix.EEXIST {
		return err
	}
	return m.sys.Rmdir(dir)
}

// makeParent makes the directory that holds the groups, or finds it, and on
// version 2 enables in it what h uses. It is called again when the directory
// is gone: another daemon that closes removes it while no group is in it.
func (m *Manager) makeParent(h *hierarchy) error {
	var enabled error
	if h.version == 2 {
		enabled = m.enable(h.base, h.controllers)
	}
	switch err := m.sys.Mkdir(h.parent); err {
	case nil:
		m.setParentWeight(h)
	case unix.EEXIST: // made by another daemon, or by one before
	default:
		return err
	}
	if h.version == 2 {
		return cmp.Or(enabled, m.enable(h.parent, h.controllers))
	}
	if h.has(memory) {
		m.useHierarchy(h.parent)
	}
	return nil
}

// weigh gives the parent the weight of one ordinary process on each processor,
// where it competes with single processes rather than with other groups: on
// version 1 and at the top of version 2. By itself it would weigh as much as
// one process, with all sandboxes in it. A failure leaves it at that.
func (m *Manager) setParentWeight(h *hierarchy) {
	n := int64(runtime.NumCPU())
	switch {
	case !h.has(cpu):
	case h.version == 1:
		m.sys.WriteFile(h.parent+"/cpu.shares", strconv.FormatInt(clampShares(1024*n), 10))
	case m.top(h.base):
		m.sys.WriteFile(h.parent+"/cpu.weight", strconv.FormatInt(min(100*n, 10_000), 10))
	}
}

// enable switches controllers on for the groups below dir, each by itself: one
// that the kernel refuses does not stop the others. It returns the first error.
func (m *Manager) enable(dir string, controllers []string) error {
	on, err := m.readWords(dir + "/cgroup.subtree_control")
	if err != nil {
		return err
	}
	var first error
	for _, c := range controllers {
		if slices.Contains(on, c) {
			continue
		}
		if err := m.sys.WriteFile(dir+"/cgroup.subtree_control", "+"+c); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// accountTree makes a version 1 group count what the groups below it use.
// Kernels since 5.11 always do; before, limits above would not hold otherwise.
func (m *Manager) useHierarchy(dir string) {
	b, err := m.sys.ReadFile(dir + "/memory.use_hierarchy")
	if err == nil && strings.TrimSpace(string(b)) == "0" {
		m.sys.WriteFile(dir+"/memory.use_hierarchy", "1")
	}
}

// words reads a file of words.
func (m *Manager) readWords(name string) ([]string, error) {
	b, err := m.sys.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(b)), nil
}

// common returns those of a that are in b.
func common(a, b []string) []string {
	var both []string
	for _, s := range a {
		if slices.Contains(b, s) {
			both = append(both, s)
		}
	}
	return both
}

// systemd reports whether this host was booted with it (sd_booted(3)).
func (m *Manager) systemd() bool {
	_, err := m.sys.Subdirs("/run/systemd/system")
	return err == nil
}

// delegateFix says how to get a group of one's own.
func (m *Manager) delegateFix() string {
	uid := m.sys.Uid()
	switch {
	case uid == 0:
		return "in a container start with docker run --privileged; in a systemd service add Delegate=yes to the unit"
	case m.systemd():
		return "start it in a delegated scope: systemd-run --user --scope -p Delegate=yes sandbar …; in a service add Delegate=yes to the unit"
	}
	return fmt.Sprintf("as root, make a group for this user and move its shell there: mkdir /sys/fs/cgroup/user-%d && "+
		"chown %d /sys/fs/cgroup/user-%d /sys/fs/cgroup/user-%d/cgroup.* && echo SHELL_PID > /sys/fs/cgroup/user-%d/cgroup.procs", uid, uid, uid, uid, uid)
}

// crowdFix says how to have a group to oneself.
func (m *Manager) crowdFix(dir string) string {
	if m.systemd() {
		scope := "systemd-run --scope -p Delegate=yes sandbar …"
		if m.sys.Uid() != 0 {
			scope = "systemd-run --user --scope -p Delegate=yes sandbar …"
		}
		return "start it in a scope of its own: " + scope
	}
	return fmt.Sprintf("start sandbar as the container's only process, or first move the others: "+
		"mkdir %s/others && for p in $(cat %s/cgroup.procs); do echo $p > %s/others/cgroup.procs; done", dir, dir, dir)
}

// enableFix says how to get a controller that is not passed down to dir.
func (m *Manager) enableFix(dir string) string {
	if m.systemd() && m.sys.Uid() != 0 {
		return "as root, write \"[Service]\\nDelegate=cpu memory pids\" to /etc/systemd/system/user@.service.d/delegate.conf, " +
			"run systemctl daemon-reload and log in again"
	}
	if m.systemd() {
		return "start it in a delegated scope: systemd-run --scope -p Delegate=yes sandbar …"
	}
	return "enable it in the groups above: echo +NAME > cgroup.subtree_control, from the top down to " + dir
}
