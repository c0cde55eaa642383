package cgroup

import (
	"path"
	"slices"
	"strconv"

	"github.com/sandbar-dev/sandbar"
)

// Seen is the control groups that somebody else has put a process into, a
// container engine for one. Their counters can be read and nothing else.
type Observed struct {
	sys  system
	path string
	dirs statDirs
}

// Of finds the groups of the process pid. NotFound if there is no such process,
// Unsupported if its groups cannot be seen from here: it is in another part of
// the tree than is mounted.
func Observe(pid int) (*Observed, error) { return observe(host{}, pid) }

func observe(sys system, pid int) (*Observed, error) {
	mountinfo, err := sys.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Unsupported, "control groups: read /proc/self/mountinfo: %w", err)
	}
	own, err := sys.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return nil, sandbar.Errorf(sandbar.NotFound, "the control groups of process %d: %w", pid, err)
	}
	mounts := parseMounts(string(mountinfo))
	v1, v2 := parseMemberships(string(own))
	s := &Observed{sys: sys}
	s.dirs.memory, s.path = s.find(mounts, v1, v2, memory, "memory.current")
	s.dirs.cpu, _ = s.find(mounts, v1, v2, cpuacct, "cpu.stat")
	s.dirs.pids, _ = s.find(mounts, v1, v2, pids, "pids.current")
	if s.dirs.memory.version == 0 {
		return nil, sandbar.Errorf(sandbar.Unsupported, "the control group of process %d that counts its memory cannot be seen", pid)
	}
	s.dirs.swap = sys.Readable(s.dirs.memory.dir + "/memory.memsw.max_usage_in_bytes")
	s.dirs.peak = sys.Readable(s.dirs.memory.dir + "/memory.peak")
	return s, nil
}

// find returns where a controller counts for the process, and the name of its
// group there: on version 1 where the controller is mounted, else on version 2
// if it has the file.
func (s *Observed) find(mounts []mount, v1 []membership, v2 *membership, controller, file string) (statDir, string) {
	for _, m := range v1 {
		if !slices.Contains(m.controllers, controller) {
			continue
		}
		p, _, ok := locate(mounts, func(x mount) bool { return x.version == 1 && slices.Contains(x.controllers, controller) }, m.path)
		if ok {
			return statDir{p.dir, 1}, m.path
		}
	}
	if v2 == nil {
		return statDir{}, ""
	}
	p, _, ok := locate(mounts, func(x mount) bool { return x.version == 2 }, v2.path)
	if !ok || !s.sys.Readable(path.Join(p.dir, file)) {
		return statDir{}, ""
	}
	return statDir{p.dir, 2}, v2.path
}

// Path is the name of the group that counts memory.
func (s *Observed) Path() string { return s.path }

// Stats reads the counters. An error means that the group is gone, or that the
// kernel could not be read; what was read is returned with it.
func (s *Observed) Stats() (Stats, error) {
	r := reader{sys: s.sys}
	return r.stats(s.dirs), kernelError("read the counters of "+s.path, r.err)
}
