package cgroup

import (
	"bytes"
	"strconv"
	"time"
)

// Stats is what the kernel counted for a group since it was made. A count that
// this host does not keep is 0; Caps tells which those are.
type Stats struct {
	MemoryCurrent int64         // bytes held now, files in memory included
	MemoryPeak    int64         // bytes, the most ever held at once; with swap where version 1 accounts it
	CPUTime       time.Duration // user and system, of every process that was ever in the group
	OOMKills      int64         // processes that the kernel killed for memory
	PIDsCurrent   int64         // processes and threads now
	PIDsRefused   int64         // times that a process or thread was refused for the limit
}

// Stats reads the counters, some 10 µs. An error means that the group is gone,
// or that the kernel could not be read; what was read is returned with it.
func (g *Group) Stats() (Stats, error) {
	var s Stats
	r := reader{m: g.m}
	if h := g.m.with(memory); h != nil {
		dir := g.dir(h)
		if h.version == 1 {
			s.MemoryCurrent = r.number(dir + "/memory.usage_in_bytes")
			peak := "/memory.max_usage_in_bytes"
			if g.m.caps.SwapAccounted {
				peak = "/memory.memsw.max_usage_in_bytes"
			}
			s.MemoryPeak = r.number(dir + peak)
			s.OOMKills = r.field(dir+"/memory.oom_control", "oom_kill")
		} else {
			s.MemoryCurrent = r.number(dir + "/memory.current")
			if g.m.caps.PeakCounted {
				s.MemoryPeak = r.number(dir + "/memory.peak")
			}
			s.OOMKills = r.field(dir+"/memory.events", "oom_kill")
		}
	}
	if h := g.m.with(cpuacct); h != nil {
		s.CPUTime = time.Duration(r.number(g.dir(h) + "/cpuacct.usage"))
	} else if h := g.m.version2(); h != nil {
		s.CPUTime = time.Duration(r.field(g.dir(h)+"/cpu.stat", "usage_usec")) * time.Microsecond
	}
	if h := g.m.with(pids); h != nil {
		s.PIDsCurrent = r.number(g.dir(h) + "/pids.current")
		s.PIDsRefused = r.field(g.dir(h)+"/pids.events", "max")
	}
	return s, refuse("read the counters of "+g.name, r.err)
}

// reader reads numbers and keeps the first error.
type reader struct {
	m   *Manager
	err error
}

func (r *reader) number(name string) int64 {
	n, err := r.m.number(name)
	if err != nil && r.err == nil {
		r.err = err
	}
	return n
}

// field reads one line of a file of "name value" lines; a line that is not
// there is 0.
func (r *reader) field(name, key string) int64 {
	b, err := r.m.sys.ReadFile(name)
	if err != nil && r.err == nil {
		r.err = err
	}
	n, _ := field(b, key)
	return n
}

// field returns the value of one line of "name value" lines.
func field(b []byte, key string) (n int64, ok bool) {
	for line := range bytes.Lines(b) {
		name, value, found := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if found && string(name) == key {
			n, err := strconv.ParseInt(string(value), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
