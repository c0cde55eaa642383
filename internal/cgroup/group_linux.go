package cgroup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits bound a group. A field that is not positive is no limit.
type Limits struct {
	Memory    int64   // bytes, swap included
	CPUs      float64 // processors
	CPUShares int64   // weight, 1024 is one normal share
	PIDs      int64   // processes and threads
}

// Stats are a group's counters since its creation. What the kernel does not
// count is 0.
type Stats struct {
	MemoryPeak int64 // bytes
	CPU        time.Duration
	OOMKills   int64
}

// Group is the groups of one sandbox: one directory in each hierarchy.
type Group struct {
	m    *Manager
	name string
	v1   []string // parallel to m.v1
	v2   string
	fd   int // of v2; -1 if there is none
}

// Create makes a group and sets its limits. On error nothing is left. A limit
// whose controller there is not is not set: Caps told so.
func (m *Manager) Create(name string, l Limits) (*Group, error) {
	if name == "" || strings.ContainsAny(name, "/\x00\n") || name[0] == '.' {
		return nil, errors.New("cgroup: bad name")
	}
	g := &Group{m: m, name: name, fd: -1}
	err := g.make(l)
	if err != nil {
		g.remove()
		return nil, err
	}
	return g, nil
}

func (g *Group) make(l Limits) error {
	for _, p := range g.m.v1 {
		dir, err := p.child(g.name)
		if err != nil {
			return err
		}
		g.v1 = append(g.v1, dir)
		if err := setAll(dir, limitsV1(p.controllers, l)); err != nil {
			return err
		}
	}
	if g.m.v2 == nil {
		return nil
	}
	dir, err := g.m.v2.child(g.name)
	if err != nil {
		return err
	}
	g.v2 = dir
	if err := setAll(dir, limitsV2(g.m.v2.controllers, l)); err != nil {
		return err
	}
	g.fd, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return err
}

// child makes a directory in the place. The place itself may have been removed
// by another sandbar that found it empty.
func (p *place) child(name string) (string, error) {
	dir := filepath.Join(p.dir, name)
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, os.ErrNotExist) {
		if err = p.make(); err == nil {
			err = os.Mkdir(dir, 0o755)
		}
	}
	return dir, err
}

// setting is one control file and its value.
type setting struct {
	file, value string
	optional    bool // a kernel without the file has nothing to bound
}

func setAll(dir string, settings []setting) error {
	for _, s := range settings {
		err := write(filepath.Join(dir, s.file), s.value)
		if err != nil && !(s.optional && errors.Is(err, os.ErrNotExist)) {
			return err
		}
	}
	return nil
}

// period is how often a processor quota is renewed, in microseconds.
const period = 100_000

// quota is the microseconds of processor time in a period. The kernel takes no
// less than a thousand.
func quota(cpus float64) string { return strconv.Itoa(max(1000, int(cpus*period))) }

// limitsV1 computes the control files of a version 1 group.
func limitsV1(controllers []string, l Limits) (s []setting) {
	add := func(controller, file, value string, optional bool) {
		if slices.Contains(controllers, controller) {
			s = append(s, setting{file, value, optional})
		}
	}
	if l.Memory > 0 {
		n := strconv.FormatInt(l.Memory, 10)
		add(memory, "memory.limit_in_bytes", n, false)
		// Memory and swap together: after the limit of memory alone, which it
		// may not be below.
		add(memory, "memory.memsw.limit_in_bytes", n, true)
		add(memory, "memory.swappiness", "0", true)
	}
	if l.CPUs > 0 {
		add(cpu, "cpu.cfs_period_us", strconv.Itoa(period), false)
		add(cpu, "cpu.cfs_quota_us", quota(l.CPUs), false)
	}
	if l.CPUShares > 0 {
		add(cpu, "cpu.shares", strconv.FormatInt(l.CPUShares, 10), false)
	}
	if l.PIDs > 0 {
		add(pids, "pids.max", strconv.FormatInt(l.PIDs, 10), false)
	}
	return s
}

// limitsV2 computes the control files of a version 2 group. memory.oom.group
// stays 0: the kernel then kills the process that is too large and spares the
// agent, which reports.
func limitsV2(controllers []string, l Limits) (s []setting) {
	add := func(controller, file, value string, optional bool) {
		if slices.Contains(controllers, controller) {
			s = append(s, setting{file, value, optional})
		}
	}
	if l.Memory > 0 {
		add(memory, "memory.max", strconv.FormatInt(l.Memory, 10), false)
		add(memory, "memory.swap.max", "0", true)
	}
	if l.CPUs > 0 {
		add(cpu, "cpu.max", quota(l.CPUs)+" "+strconv.Itoa(period), false)
	}
	if l.CPUShares > 0 {
		add(cpu, "cpu.weight", strconv.FormatInt(weight(l.CPUShares), 10), false)
	}
	if l.PIDs > 0 {
		add(pids, "pids.max", strconv.FormatInt(l.PIDs, 10), false)
	}
	return s
}

// weight maps version 1's shares, 2 to 262144, onto version 2's weights, 1 to
// 10000, on a straight line, as container runtimes do.
func weight(shares int64) int64 {
	shares = min(max(shares, 2), 262144)
	return 1 + (shares-2)*9999/262142
}

// FD is the descriptor of the version 2 group, for a clone into it. ok is
// false where version 2 is not used. It belongs to the group.
func (g *Group) FD() (fd int, ok bool) { return g.fd, g.fd >= 0 }

// EnterThread moves the calling thread, which must be locked to its goroutine,
// into the version 1 groups; what it forks is born there. leave moves it back
// and must be called on the same thread; if it fails the thread must not be
// used any more.
func (g *Group) EnterThread() (leave func() error, err error) {
	entered := 0
	leave = func() error {
		var first error
		for _, p := range g.m.v1[:entered] {
			if _, err := unix.Write(int(p.home.Fd()), []byte("0")); err != nil && first == nil {
				first = &os.PathError{Op: "return to", Path: p.home.Name(), Err: err}
			}
		}
		return first
	}
	for _, dir := range g.v1 {
		if err := write(filepath.Join(dir, "tasks"), "0"); err != nil {
			return nil, errors.Join(err, leave())
		}
		entered++
	}
	return leave, nil
}

// Counts reports whether Stats tells of memory.
func (g *Group) Counts() bool { return g.m.has(memory) }

// Stats reads the counters.
func (g *Group) Stats() (s Stats) {
	for i, p := range g.m.v1 {
		dir := g.v1[i]
		if slices.Contains(p.controllers, memory) {
			s.MemoryPeak = readNumber(dir + "/memory.max_usage_in_bytes")
			s.OOMKills = readKey(dir+"/memory.oom_control", "oom_kill")
		}
		if slices.Contains(p.controllers, cpuacct) {
			s.CPU = time.Duration(readNumber(dir + "/cpuacct.usage"))
		}
	}
	if g.v2 == "" {
		return s
	}
	if slices.Contains(g.m.v2.controllers, memory) {
		s.MemoryPeak = readNumber(g.v2 + "/memory.peak") // since 5.19
		s.OOMKills = readKey(g.v2+"/memory.events", "oom_kill")
	}
	if s.CPU == 0 { // in version 2 every group has cpu.stat
		s.CPU = time.Duration(readKey(g.v2+"/cpu.stat", "usage_usec")) * time.Microsecond
	}
	return s
}

func readSmall(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var buf [1024]byte // longer than any of the files read; their keys come early
	n, err := unix.Read(fd, buf[:])
	if err != nil || n <= 0 {
		return ""
	}
	return string(buf[:n])
}

func readNumber(path string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(readSmall(path)), 10, 64)
	return n
}

// readKey reads a number from lines of "key number".
func readKey(path, key string) int64 {
	for line := range strings.Lines(readSmall(path)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == key {
			n, _ := strconv.ParseInt(v, 10, 64)
			return n
		}
	}
	return 0
}

// Destroy kills what is in the group and removes it. It may be called again
// after an error.
func (g *Group) Destroy(ctx context.Context) error {
	pause := 500 * time.Microsecond
	for {
		err := g.remove()
		if err == nil {
			return nil
		}
		g.kill()
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(pause):
			pause = min(2*pause, 50*time.Millisecond)
		}
	}
}

func (g *Group) dirs() []string {
	if g.v2 == "" {
		return g.v1
	}
	return append(slices.Clip(g.v1), g.v2)
}

// remove removes the directories; one with a process in it stays.
func (g *Group) remove() error {
	var first error
	for _, dir := range g.dirs() {
		if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT && first == nil {
			first = &os.PathError{Op: "rmdir", Path: dir, Err: err}
		}
	}
	if first == nil && g.fd >= 0 {
		unix.Close(g.fd)
		g.fd = -1
	}
	return first
}

// kill ends every process in the group. The end of a sandbox's PID 1 has done
// so already; this is for what could not be, and for leftovers.
func (g *Group) kill() {
	if g.v2 != "" && write(filepath.Join(g.v2, "cgroup.kill"), "1") == nil {
		return
	}
	for _, dir := range g.dirs() {
		for _, w := range readWords(filepath.Join(dir, "cgroup.procs")) {
			if pid, err := strconv.Atoi(w); err == nil && pid > 1 && pid != os.Getpid() {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
}

// Leftover is a group whose owner is dead.
type Leftover struct {
	Path  string // of one of its directories
	group *Group
}

// Leftovers lists the groups for whose name alive is false.
func (m *Manager) Leftovers(alive func(name string) bool) ([]Leftover, error) {
	groups := map[string]*Group{}
	for _, p := range m.places() {
		entries, err := os.ReadDir(p.dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if !e.IsDir() || alive(e.Name()) {
				continue
			}
			g := groups[e.Name()]
			if g == nil {
				g = &Group{m: m, name: e.Name(), fd: -1}
				groups[e.Name()] = g
			}
			if dir := filepath.Join(p.dir, e.Name()); p == m.v2 {
				g.v2 = dir
			} else {
				g.v1 = append(g.v1, dir)
			}
		}
	}
	var found []Leftover
	for _, g := range groups {
		found = append(found, Leftover{Path: g.dirs()[0], group: g})
	}
	slices.SortFunc(found, func(a, b Leftover) int { return strings.Compare(a.Path, b.Path) })
	return found, nil
}

// Remove kills what is in a leftover group and removes it.
func (l Leftover) Remove(ctx context.Context) error { return l.group.Destroy(ctx) }
