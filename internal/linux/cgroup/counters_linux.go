package cgroup

import (
	"bytes"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// Counters are the open counters of a group that is used again and again. Reading one costs one
// system call. Its methods may be called concurrently.
type Counters struct {
	name string

	mu sync.Mutex
	// descriptors; -1: none, or closed
	usage, peak, swapPeak, oom, cpu, pids int
	cpuTime                               func([]byte) (time.Duration, bool) // reads cpu
}

// OpenCounters opens the counters of a group. Unsupported: it lacks one, or Caps.PeakResets is
// false. The caller must close them.
func (g *Group) OpenCounters() (*Counters, error) {
	c := &Counters{name: g.name, usage: -1, peak: -1, swapPeak: -1, oom: -1, cpu: -1, pids: -1}
	mem, cpu := g.m.hierarchyOf(memory), g.m.hierarchyOf(cpuacct)
	if cpu == nil {
		cpu = g.m.version2()
	}
	files := []counterFile{{&c.pids, g.m.hierarchyOf(pids), "pids.current", false, false}}
	if mem != nil && mem.version == 2 {
		files = append(files, counterFile{&c.usage, mem, "memory.current", false, false}, counterFile{&c.peak, mem, "memory.peak", true, false},
			counterFile{&c.oom, mem, "memory.events", false, false})
	} else {
		files = append(files, counterFile{&c.usage, mem, "memory.usage_in_bytes", false, false}, counterFile{&c.peak, mem, "memory.max_usage_in_bytes", true, false},
			counterFile{&c.swapPeak, mem, "memory.memsw.max_usage_in_bytes", true, true}, counterFile{&c.oom, mem, "memory.oom_control", false, false})
	}
	if cpu != nil && cpu.version == 2 {
		files = append(files, counterFile{&c.cpu, cpu, "cpu.stat", false, false})
		c.cpuTime = func(b []byte) (time.Duration, bool) {
			n, ok := field(b, "usage_usec")
			return time.Duration(n) * time.Microsecond, ok
		}
	} else {
		files = append(files, counterFile{&c.cpu, cpu, "cpuacct.usage", false, false})
		c.cpuTime = func(b []byte) (time.Duration, bool) {
			n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
			return time.Duration(n), err == nil
		}
	}
	for _, f := range files {
		if err := f.open(g); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// counterFile is a file of a group's counters.
type counterFile struct {
	to                 *int // the descriptor
	at                 *hierarchy
	name               string
	write, mayBeAbsent bool
}

func (f *counterFile) open(g *Group) error {
	if f.at == nil {
		return sandbar.Errorf(sandbar.Unsupported, "the control group %s has no file %s", g.name, f.name)
	}
	access := unix.O_RDONLY
	if f.write {
		access = unix.O_RDWR
	}
	fd, err := retry(func() (int, error) { return unix.Open(g.dir(f.at)+"/"+f.name, access|unix.O_CLOEXEC, 0) })
	if err == nil {
		*f.to = fd
	} else if !f.mayBeAbsent || err != unix.ENOENT {
		return kernelError("open "+f.name+" of "+g.name, err)
	}
	return nil
}

// Close closes the counters. It is idempotent.
func (c *Counters) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, fd := range []*int{&c.usage, &c.peak, &c.swapPeak, &c.oom, &c.cpu, &c.pids} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
}

// Totals is Group.Totals.
func (c *Counters) Totals() (s Stats, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	peak := c.swapPeak
	if peak < 0 {
		peak = c.peak
	}
	s.MemoryPeak = c.number(peak, &err)
	var buf [1024]byte
	var ok bool
	if s.CPUTime, ok = c.cpuTime(c.read(c.cpu, buf[:], &err)); !ok && err == nil {
		err = sandbar.Errorf(sandbar.Internal, "the processor time of %s cannot be read", c.name)
	}
	s.OOMKills, _ = field(c.read(c.oom, buf[:], &err), "oom_kill")
	return s, err
}

// Current reads MemoryCurrent and PIDsCurrent.
func (c *Counters) Current() (s Stats, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.MemoryCurrent = c.number(c.usage, &err)
	s.PIDsCurrent = c.number(c.pids, &err)
	return s, err
}

// ResetPeak resets the peak of memory: in version 2 that of these counters alone.
func (c *Counters) ResetPeak() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, fd := range []int{c.peak, c.swapPeak} {
		if fd < 0 {
			continue
		}
		if _, err := unix.Pwrite(fd, []byte("0"), 0); err != nil {
			return kernelError("count the peak of "+c.name+" anew", err)
		}
	}
	return nil
}

func (c *Counters) number(fd int, err *error) int64 {
	var buf [32]byte
	n, perr := strconv.ParseInt(string(bytes.TrimSpace(c.read(fd, buf[:], err))), 10, 64)
	if perr != nil && *err == nil {
		*err = sandbar.Errorf(sandbar.Internal, "reading the counters of %s: %w", c.name, perr)
	}
	return n
}

func (c *Counters) read(fd int, buf []byte, err *error) []byte {
	n, rerr := retry(func() (int, error) { return unix.Pread(fd, buf, 0) })
	if rerr != nil {
		if *err == nil {
			*err = kernelError("read the counters of "+c.name, rerr)
		}
		return nil
	}
	return buf[:n]
}
