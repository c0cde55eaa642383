package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// leafName is the group that this process moves to if it is alone in its group. A version 2 group
// with processes cannot limit groups below it (cgroups(7), "no internal processes" rule).
const leafName = "sandbar-daemon"

// wantedV2 are the controllers that must be enabled in version 2.
func wantedV2() []string { return []string{memory, cpu, pids} }

// version2 tries the version 2 hierarchy. Controllers that are in use in version 1 do not appear in
// it.
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
	// A controller that the root does not offer is nowhere below either; finish reports it.
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

// chooseVersion2 uses the candidate with the most controllers, and of several the nearest. If the
// kernel refuses it, the next one is tried.
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
	// None is usable; the problem of the nearest group says most about a fix.
	nearest := slices.MaxFunc(candidates, func(a, b candidate) int { return len(a.dir) - len(b.dir) })
	d.refuse(open, nearest.problem)
}

// candidate is a group in which groups might be created.
type candidate struct {
	dir       string
	exclusive bool     // this process's own group, and it is the only process there
	missing   []string // controllers to enable
	usable    []string // controllers that work after that
	problem   problem  // why usable is not complete
}

// candidates returns this process's own group and its ancestors, nearest first. It changes nothing.
func (m *Manager) candidates(at location, open []string) []candidate {
	var list []candidate
	for dir := at.dir; ; dir = path.Dir(dir) {
		// This process, or the one before an execve(2), has created the leaf; the group above it is
		// set up already.
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
	// The directory, to create groups; cgroup.procs, because moving a process needs write access to
	// that of the common ancestor (cgroups(7), delegation).
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

// top reports whether dir is the root of the hierarchy, the only group that may have both processes
// and enabled controllers, and the only one without cgroup.type.
func (m *Manager) top(dir string) bool {
	_, err := m.sys.ReadFile(dir + "/cgroup.type")
	return err == unix.ENOENT
}

// setUp prepares the candidate: it moves this process out of the way, enables controllers and
// creates the parent. On an error it undoes all of that.
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
	// While the probe exists, no other daemon can remove the parent.
	dir, perr := m.makeProbe(h)
	on, _ := m.readWords(h.parent + "/cgroup.subtree_control")
	h.controllers = common(c.usable, on)
	if c.exclusive { // Close disables what was enabled here
		on, _ = m.readWords(h.base + "/cgroup.subtree_control")
		h.enabled = common(c.missing, on)
	}
	if perr == nil {
		perr = m.sys.Rmdir(dir)
	}
	if len(h.controllers) > 0 || err == nil {
		err = perr // controllers that could not be enabled are reported as missing
	}
	if err != nil {
		m.release(h)
		return nil, err
	}
	return h, nil
}

// makeProbe creates the group with which Detect verifies h. A killed daemon may have left it.
func (m *Manager) makeProbe(h *hierarchy) (dir string, err error) {
	dir = h.parent + "/" + m.instance + ".probe"
	if err = m.mkdir(h, dir); errors.Is(err, unix.EEXIST) {
		err = nil
	}
	return dir, err
}

// makeParent creates the parent directory of the groups, if it does not exist, and in version 2
// enables h's controllers in it. It is called again if the directory has disappeared: a daemon that
// closes removes it if it has no groups.
func (m *Manager) makeParent(h *hierarchy) error {
	var enabled error
	if h.version == 2 {
		enabled = m.enable(h.base, h.controllers)
	}
	switch err := m.sys.Mkdir(h.parent); err {
	case nil:
		m.setParentWeight(h)
	case unix.EEXIST: // another daemon, or an earlier one, created it
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

// setParentWeight gives the parent the weight of one ordinary process per CPU if it competes with
// processes instead of groups: in version 1, and below the root of version 2. Otherwise all
// sandboxes together would weigh as much as one process. Errors are ignored.
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

// enable enables controllers for the groups below dir, one by one, so that one refusal does not
// stop the others. It returns the first error.
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

// useHierarchy makes a version 1 group count the memory of the groups below it. Linux always does
// since 5.11; before, limits of ancestors would not apply without it.
func (m *Manager) useHierarchy(dir string) {
	b, err := m.sys.ReadFile(dir + "/memory.use_hierarchy")
	if err == nil && strings.TrimSpace(string(b)) == "0" {
		m.sys.WriteFile(dir+"/memory.use_hierarchy", "1")
	}
}

// readWords reads a file of words.
func (m *Manager) readWords(name string) ([]string, error) {
	b, err := m.sys.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(b)), nil
}

// common returns the elements of a that are in b.
func common(a, b []string) []string {
	var both []string
	for _, s := range a {
		if slices.Contains(b, s) {
			both = append(both, s)
		}
	}
	return both
}

// systemd reports whether the host was booted with systemd (sd_booted(3)).
func (m *Manager) systemd() bool {
	_, err := m.sys.Subdirs("/run/systemd/system")
	return err == nil
}

// delegateFix says how to get a delegated group.
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

// crowdFix says how to get a group without other processes.
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

// enableFix says how to enable a controller that is not available in dir.
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
