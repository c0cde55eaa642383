package cgroup

import (
	"fmt"
	"io"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// parentName is the directory that holds all groups of all daemons.
const parentName = "sandbar"

// The controllers. cpuacct exists in version 1 only: version 2 counts
// processor time in every group.
const (
	memory  = "memory"
	cpu     = "cpu"
	cpuacct = "cpuacct"
	pids    = "pids"
)

// wanted is the controllers that groups are made for, in the order they are
// reported.
func wantedControllers() []string { return []string{memory, cpu, cpuacct, pids} }

// Controller says where one controller can be used, or why it cannot.
type Controller struct {
	Name    string // "memory", "cpu", "cpuacct" or "pids"
	Version int    // of its hierarchy, 1 or 2; 0 when the controller cannot be used
	Dir     string // where groups are made, when it can be used
	Reason  string // why it cannot be used
	Fix     string // what an operator can do about it
}

// hierarchy is one that is in use: a directory in which groups are made.
type hierarchy struct {
	version     int
	controllers []string // those of wanted that work here
	base        string   // the group that holds the parent
	parent      string   // base + "/sandbar"

	// Version 1: where threads come from and return to. It stays open so that
	// they can return when no more files can be opened.
	tasks io.WriteCloser

	// Version 2: the group that this process moved to, to free base of
	// processes, and what it then enabled in base; both for Close to undo.
	leaf    string
	enabled []string
}

func (h *hierarchy) has(controller string) bool { return slices.Contains(h.controllers, controller) }

// Manager makes groups. Its methods may be called concurrently. A process has
// one at a time: Close returns the process to where it was.
type Manager struct {
	sys         system
	instance    string
	hierarchies []*hierarchy // at most one of version 2
	controllers []Controller
	caps        Caps

	closing sync.Once
}

// Detect finds where this process can make groups and proves each place by
// making one. instance names this daemon; it becomes part of each group's
// name: 1 to 64 of A-Z, a-z, 0-9, "_" and "-". A host that offers nothing is
// no error: then Caps claims nothing and Controllers tells why.
//
// On version 2 it may move this process into a group "sandbar-daemon" below
// the one it is in, which a group must be free of before it can limit others.
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
	return m, nil
}

// validName reports whether a part of a group's name has the form of one.
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

// problem is why a place cannot be used, and what to do about it.
type problem struct{ reason, fix string }

const readOnlyFix = "mount it read-write; in a container start with docker run --privileged"

func outsideProblem(group, dir string) problem {
	return problem{"this process's own group, " + group + ", lies outside of what is mounted at " + dir,
		"give the container a cgroup namespace of its own (docker run --cgroupns=private), or start sandbar outside of it"}
}

// visible reports whether the mount can be seen: another may lie over it.
func (d *detection) visible(m mount) bool { return d.m.sys.Version(m.dir) == m.version }

// use notes that h works for its controllers.
func (d *detection) use(h *hierarchy) {
	d.m.hierarchies = append(d.m.hierarchies, h)
	for _, name := range h.controllers {
		d.found[name] = Controller{Name: name, Version: h.version, Dir: h.parent}
	}
}

// refuse notes why the controllers cannot be used.
func (d *detection) refuse(controllers []string, p problem) {
	for _, name := range controllers {
		if d.found[name].Version == 0 {
			d.found[name] = Controller{Name: name, Reason: p.reason, Fix: p.fix}
		}
	}
}

// finish completes the report: a controller on no hierarchy is one that the
// kernel was told to leave out, or was built without.
func (d *detection) finish() {
	for _, name := range wantedControllers() {
		c, ok := d.found[name]
		if !ok && name == cpuacct {
			continue // version 2 has no such controller and needs none
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

// Controllers says for each controller where it can be used or why it cannot.
func (m *Manager) Controllers() []Controller { return slices.Clone(m.controllers) }

// Parents returns the directories in which this manager makes groups. A daemon
// that records them lets a later one, started in another group, find what is
// left over (Leftovers).
func (m *Manager) Parents() []string {
	var dirs []string
	for _, h := range m.hierarchies {
		dirs = append(dirs, h.parent)
	}
	return dirs
}

// Close removes the directories that hold the groups, unless groups are left
// in them (another daemon's, say), and moves this process back to where Detect
// found it. No Group may be used afterwards.
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
		return // in use by another daemon: it must stay as it is
	}
	if h.leaf == "" {
		return
	}
	for _, c := range h.enabled {
		if m.sys.WriteFile(h.base+"/cgroup.subtree_control", "-"+c) != nil {
			return // somebody else made groups there
		}
	}
	if m.sys.WriteFile(h.base+"/cgroup.procs", fmt.Sprint(m.sys.Pid())) == nil {
		m.sys.Rmdir(h.leaf)
	}
}
