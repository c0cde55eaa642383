package cgroup

import (
	"bytes"
	"strconv"
	"time"
)

// Stats has the kernel's counters of a group since its creation. A counter that this host lacks is
// 0; Caps tells which.
type Stats struct {
	MemoryCurrent int64         // bytes in use, tmpfs files included
	MemoryPeak    int64         // bytes, high-water mark; includes swap if version 1 accounts it
	CPUTime       time.Duration // user and system, of every process that was ever in the group
	OOMKills      int64         // processes that the OOM killer killed
	PIDsCurrent   int64         // processes and threads in the group
	PIDsRefused   int64         // forks that the pids limit refused
}

// Stats reads all counters, in about 10 µs. An error means that the group is gone or cannot be
// read; the counters read so far are returned with it.
func (g *Group) Stats() (Stats, error) { return g.read((*reader).stats) }

// Totals is Stats without MemoryCurrent, PIDsCurrent and PIDsRefused. It takes half the time, and
// the end of every program waits for it.
func (g *Group) Totals() (Stats, error) { return g.read((*reader).totals) }

// Use is the resource use of a group at one moment. A value that this host lacks is 0.
type Use struct {
	CPUTime time.Duration // as in Stats
	Memory  int64         // bytes in use, files in memory and page cache included
	Files   int64         // bytes of it in files of tmpfs and shared memory (shmem)
	Cache   int64         // bytes of it in the page cache, Files included
	PIDs    int64         // processes and threads
}

// Use reads the use of a group's resources.
func (g *Group) Use() (u Use, err error) {
	s, err := g.read(func(r *reader, at statDirs) Stats {
		s := r.stats(at)
		switch m := at.memory; m.version {
		case 1: // "total_" counts descendants, as memory.usage_in_bytes does
			u.Files, u.Cache = r.field(m.dir+"/memory.stat", "total_shmem"), r.field(m.dir+"/memory.stat", "total_cache")
		case 2:
			u.Files, u.Cache = r.field(m.dir+"/memory.stat", "shmem"), r.field(m.dir+"/memory.stat", "file")
		}
		return s
	})
	u.CPUTime, u.Memory, u.PIDs = s.CPUTime, s.MemoryCurrent, s.PIDsCurrent
	return u, err
}

func (g *Group) read(f func(*reader, statDirs) Stats) (Stats, error) {
	var at statDirs
	if h := g.m.hierarchyOf(memory); h != nil {
		at.memory, at.swap, at.peak = statDir{g.dir(h), h.version}, g.m.caps.SwapAccounted, g.m.caps.PeakCounted
	}
	if h := g.m.hierarchyOf(cpuacct); h != nil {
		at.cpu = statDir{g.dir(h), h.version}
	} else if h := g.m.version2(); h != nil {
		at.cpu = statDir{g.dir(h), h.version}
	}
	if h := g.m.hierarchyOf(pids); h != nil {
		at.pids = statDir{g.dir(h), h.version}
	}
	r := reader{sys: g.m.sys}
	return f(&r, at), kernelError("read the counters of "+g.name, r.err)
}

// statDirs are the directories of a group's counters.
type statDirs struct {
	memory, cpu, pids statDir
	swap              bool // version 1: there is a peak of memory plus swap
	peak              bool // version 2: there is a peak
}

// statDir is a directory of a hierarchy; version 0 means none.
type statDir struct {
	dir     string
	version int
}

// reader reads counters and keeps the first error.
type reader struct {
	sys system
	err error
}

func (r *reader) stats(at statDirs) Stats {
	s := r.totals(at)
	switch m := at.memory; m.version {
	case 1:
		s.MemoryCurrent = r.number(m.dir + "/memory.usage_in_bytes")
	case 2:
		s.MemoryCurrent = r.number(m.dir + "/memory.current")
	}
	if at.pids.version != 0 {
		s.PIDsCurrent = r.number(at.pids.dir + "/pids.current")
		s.PIDsRefused = r.field(at.pids.dir+"/pids.events", "max")
	}
	return s
}

func (r *reader) totals(at statDirs) (s Stats) {
	switch m := at.memory; m.version {
	case 1:
		peak := "/memory.max_usage_in_bytes"
		if at.swap {
			peak = "/memory.memsw.max_usage_in_bytes"
		}
		s.MemoryPeak = r.number(m.dir + peak)
		s.OOMKills = r.field(m.dir+"/memory.oom_control", "oom_kill")
	case 2:
		if at.peak {
			s.MemoryPeak = r.number(m.dir + "/memory.peak")
		}
		s.OOMKills = r.field(m.dir+"/memory.events", "oom_kill")
	}
	switch c := at.cpu; c.version {
	case 1:
		s.CPUTime = time.Duration(r.number(c.dir + "/cpuacct.usage"))
	case 2:
		s.CPUTime = time.Duration(r.field(c.dir+"/cpu.stat", "usage_usec")) * time.Microsecond
	}
	return s
}

func (r *reader) number(name string) int64 {
	n, err := readNumber(r.sys, name)
	if err != nil && r.err == nil {
		r.err = err
	}
	return n
}

// field reads one line of a file of "name value" lines, 0 if there is none.
func (r *reader) field(name, key string) int64 {
	b, err := r.sys.ReadFile(name)
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
