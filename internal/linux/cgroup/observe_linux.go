package cgroup

import (
	"path"
	"slices"
	"strconv"

	"github.com/sandbar-dev/sandbar"
)

// Observed is the cgroups of a process that someone else placed, such as a container engine. It
// only reads their counters.
type Observed struct {
	sys  system
	path string
	dirs statDirs
}

// Observe finds the cgroups of process pid. NotFound: there is no such process. Unsupported: its
// groups are not visible in the mounted part of the hierarchy.
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

// find returns the directory in which a controller counts the process, and the group's path: in
// version 1 if the controller is mounted there, otherwise in version 2 if the file exists.
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

// Path is the path of the group that counts memory.
func (s *Observed) Path() string { return s.path }

// Stats reads the counters. An error means that the group is gone or cannot be read; the counters
// read so far are returned with it.
func (s *Observed) Stats() (Stats, error) {
	r := reader{sys: s.sys}
	return r.stats(s.dirs), kernelError("read the counters of "+s.path, r.err)
}
