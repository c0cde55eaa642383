package cgroup

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// parentName is the directory that contains the groups of all daemons.
const parentName = "sandbar"

// The controllers. cpuacct exists in version 1 only; version 2 counts CPU time in every group.
const (
	memory  = "memory"
	cpu     = "cpu"
	cpuacct = "cpuacct"
	pids    = "pids"
)

// wantedControllers are the controllers in use, in the order of reports.
func wantedControllers() []string { return []string{memory, cpu, cpuacct, pids} }

// Controller says in which hierarchy a controller works, or why in none.
type Controller struct {
	Name    string // "memory", "cpu", "cpuacct" or "pids"
	Version int    // of its hierarchy, 1 or 2; 0 if the controller does not work
	Dir     string // the parent directory of groups, if the controller works
	Reason  string // why the controller does not work
	Fix     string // how an operator can fix that
}

// hierarchy is a hierarchy in use: a directory in which groups are created.
type hierarchy struct {
	version     int
	controllers []string // the wanted ones that work here
	base        string   // the group that contains parent
	parent      string   // base + "/sandbar"

	// Version 1: the tasks file of base, to which threads return. It stays open, so that they can
	// return even if the process is out of descriptors.
	tasks io.WriteCloser

	// Version 2: the group that this process moved to, so that base has no processes, and the
	// controllers that it then enabled in base. Close undoes both.
	leaf    string
	enabled []string
}

func (h *hierarchy) has(controller string) bool { return slices.Contains(h.controllers, controller) }

// Manager creates groups. Its methods may be called concurrently. A process has at most one,
// because Close moves the process back to its original groups.
type Manager struct {
	sys         system
	instance    string
	hierarchies []*hierarchy // at most one of version 2
	controllers []Controller
	caps        Caps
	freezer     freezer

	closing sync.Once
}

// Detect finds the hierarchies in which this process can create groups, and verifies each by
// creating one. instance names this daemon and is part of each group's name: 1 to 64 of A-Z, a-z,
// 0-9, "_" and "-". A host without usable cgroups is no error: Caps then claims nothing, and
// Controllers gives the reasons.
//
// In version 2 a group with processes cannot limit groups below it (cgroups(7), "no internal
// processes" rule). So Detect may move this process to a group "sandbar-daemon" below its own.
// Close undoes that.
func Detect(instance string) (*Manager, error) { return detect(host{}, instance) }

func detect(sys system, instance string) (*Manager, error) {
	if !validName(instance) {
		return nil, sandbar.Errorf(sandbar.Invalid, "instance name %s: it is 1 to 64 of A-Z, a-z, 0-9, _ and -", sandbar.Quote(instance, 80))
	}
	mountinfo, err := sys.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Unsupported, "control groups: read /proc/self/mountinfo: %w", err)
	}
	self, err := sys.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Unsupported, "control groups: read /proc/self/cgroup: %w", err)
	}
	m := &Manager{sys: sys, instance: instance}
	d := &detection{m: m, mounts: parseMounts(string(mountinfo)), found: map[string]Controller{}}
	v1, v2 := parseMemberships(string(self))
	for _, own := range v1 {
		d.version1(own)
	}
	if v2 != nil {
		d.version2(*v2)
	}
	d.finish()
	d.findFreezer(v2)
	return m, nil
}

// validName reports whether s is a valid part of a group's name.
func validName(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' {
			return false
		}
	}
	return true
}

// detection is the state of one Detect.
type detection struct {
	m      *Manager
	mounts []mount
	found  map[string]Controller // by name
}

// problem is the reason why a hierarchy cannot be used, and a fix.
type problem struct{ reason, fix string }

const readOnlyFix = "mount it read-write; in a container start with docker run --privileged"

func outsideProblem(group, dir string) problem {
	return problem{"this process's own group, " + group + ", lies outside of what is mounted at " + dir,
		"give the container a cgroup namespace of its own (docker run --cgroupns=private), or start sandbar outside of it"}
}

// visible reports whether the mount can be seen; another mount may cover it.
func (d *detection) visible(m mount) bool { return d.m.sys.Version(m.dir) == m.version }

// use records that h works for its controllers.
func (d *detection) use(h *hierarchy) {
	d.m.hierarchies = append(d.m.hierarchies, h)
	for _, name := range h.controllers {
		d.found[name] = Controller{Name: name, Version: h.version, Dir: h.parent}
	}
}

// refuse records why the controllers do not work.
func (d *detection) refuse(controllers []string, p problem) {
	for _, name := range controllers {
		if d.found[name].Version == 0 {
			d.found[name] = Controller{Name: name, Reason: p.reason, Fix: p.fix}
		}
	}
}

// finish completes the report. A controller in no hierarchy is disabled on the kernel's command
// line or not compiled in.
func (d *detection) finish() {
	for _, name := range wantedControllers() {
		c, ok := d.found[name]
		if !ok && name == cpuacct {
			continue // version 2 counts CPU time without this controller
		}
		if !ok {
			c = Controller{Name: name, Reason: "the kernel offers this controller on no hierarchy", Fix: bootFix(name)}
		}
		d.m.controllers = append(d.m.controllers, c)
	}
	d.m.caps = d.m.findCaps()
}

func bootFix(controller string) string {
	if controller == memory {
		return "boot with cgroup_enable=memory on the kernel's command line, and without cgroup_disable=memory"
	}
	return "boot without cgroup_disable=" + controller + ", or use a kernel that has the controller"
}

// Controllers returns for each controller where it works, or why it does not.
func (m *Manager) Controllers() []Controller { return slices.Clone(m.controllers) }

// Parents returns the directories in which this manager creates groups. If a daemon records them, a
// later daemon in another group can find the leftovers (Leftovers).
func (m *Manager) Parents() []string {
	var dirs []string
	for _, h := range m.hierarchies {
		dirs = append(dirs, h.parent)
	}
	if m.freezer.parent != "" {
		dirs = append(dirs, m.freezer.parent)
	}
	return dirs
}

// Unified returns the directory of a version 2 group that contains this process and all groups, or
// their processes if the limits are those of version 1. "": there is none that can be written to.
func (m *Manager) Unified() string {
	if h := m.version2(); h != nil {
		return h.base
	}
	return strings.TrimSuffix(m.freezer.parent, "/"+parentName)
}

// Close removes the parent directories, unless they contain groups (such as those of another
// daemon), and moves this process back to its original groups. No Group may be used afterwards.
func (m *Manager) Close() error {
	m.closing.Do(func() {
		for _, h := range m.hierarchies {
			m.release(h)
		}
	})
	return nil
}

func (m *Manager) release(h *hierarchy) {
	if h.tasks != nil {
		h.tasks.Close()
	}
	if err := m.sys.Rmdir(h.parent); err != nil && err != unix.ENOENT {
		return // another daemon uses it, so nothing may be undone
	}
	if h.leaf == "" {
		return
	}
	for _, c := range h.enabled {
		if m.sys.WriteFile(h.base+"/cgroup.subtree_control", "-"+c) != nil {
			return // another process has created groups there
		}
	}
	if m.sys.WriteFile(h.base+"/cgroup.procs", fmt.Sprint(m.sys.Pid())) == nil {
		m.sys.Rmdir(h.leaf)
	}
}
