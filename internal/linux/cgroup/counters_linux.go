package cgroup

import (
	"bytes"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// Counters are the open counters of a version 1 group that is used again and again. Reading one
// costs one system call. Its methods may be called concurrently.
type Counters struct {
	name string

	mu sync.Mutex
	// descriptors; -1: none, or closed
	usage, peak, swapPeak, oom, cpu, pids int
}

// OpenCounters opens the counters of a group. Unsupported: the group is not of version 1 in all
// hierarchies, and its peak cannot be reset. The caller must close them.
func (g *Group) OpenCounters() (*Counters, error) {
	c := &Counters{name: g.name, usage: -1, peak: -1, swapPeak: -1, oom: -1, cpu: -1, pids: -1}
	for _, f := range []struct {
		to                 *int
		controller, name   string
		write, mayBeAbsent bool
	}{
		{&c.usage, memory, "memory.usage_in_bytes", false, false},
		{&c.peak, memory, "memory.max_usage_in_bytes", true, false},
		{&c.swapPeak, memory, "memory.memsw.max_usage_in_bytes", true, true},
		{&c.oom, memory, "memory.oom_control", false, false},
		{&c.cpu, cpuacct, "cpuacct.usage", false, false},
		{&c.pids, pids, "pids.current", false, false},
	} {
		h := g.m.hierarchyOf(f.controller)
		if h == nil || h.version != 1 {
			c.Close()
			return nil, sandbar.Errorf(sandbar.Unsupported, "the control group %s has no version 1 controller %s", g.name, f.controller)
		}
		access := unix.O_RDONLY
		if f.write {
			access = unix.O_RDWR
		}
		fd, err := retry(func() (int, error) { return unix.Open(g.dir(h)+"/"+f.name, access|unix.O_CLOEXEC, 0) })
		if err != nil && !(f.mayBeAbsent && err == unix.ENOENT) {
			c.Close()
			return nil, kernelError("open "+f.name+" of "+g.name, err)
		}
		if err == nil {
			*f.to = fd
		}
	}
	return c, nil
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
	s.CPUTime = time.Duration(c.number(c.cpu, &err))
	var buf [256]byte
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

// ResetPeak resets the peak of memory.
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
