package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// look is one measurement of the daemon's resources, in the order of quantities.
type look []float64

// quantity is a resource that must not grow.
type quantity struct {
	name string
	read func(*soak) float64
	// slack is how much the median of the last quarter may exceed that of the first. It covers
	// memory that the Go runtime or the C library keeps, and resources that come and go.
	slack func(first float64) float64
}

func exactly(float64) float64 { return 0 }

// What may differ between two looks at a daemon at rest: a new maximum of programs at once leaves
// more slots idle (package native).
const (
	idleSlots       = 8
	slotProcesses   = 2 // the slot and the first process of its next sandbox
	slotGroups      = 4
	slotSpaces      = 8
	slotDescriptors = 8
)

func upTo(n float64) func(float64) float64 { return func(float64) float64 { return n } }

// memorySlack is an eighth, and at least 8 MiB: the size of a Go heap varies by a factor of two
// with the time of the last collection.
func memorySlack(first float64) float64 { return max(8, first/8) }

// quantities are the measured resources.
func quantities() []quantity {
	return []quantity{
		{"resident memory, MiB", func(s *soak) float64 { return mib(field(s.daemon.status(), "VmRSS:")) }, memorySlack},
		// Not the proportional set size: the share of the program's file depends on other
		// processes.
		{"anonymous memory, MiB", func(s *soak) float64 {
			return mib(field(fmt.Sprintf("/proc/%d/smaps_rollup", s.daemon.cmd.Process.Pid), "Anonymous:"))
		}, memorySlack},
		{"Go heap in use, MiB", func(s *soak) float64 { return s.metric("go_memstats_heap_inuse_bytes") / (1 << 20) }, memorySlack},
		{"descriptors", func(s *soak) float64 { return float64(entriesIn(s.proc("fd"))) }, upTo(idleSlots*slotDescriptors + 3)},
		{"goroutines", func(s *soak) float64 { return s.metric("go_goroutines") - float64(s.kept()) }, upTo(5)},
		// The runtime keeps as many threads as were ever blocked at once, and a busy machine
		// reaches a new maximum from time to time. A leak of threads is also one of goroutines.
		{"threads", func(s *soak) float64 { return float64(entriesIn(s.proc("task"))) }, upTo(10)},
		{"mounts", func(s *soak) float64 { return float64(lines(s.proc("mountinfo"))) }, exactly},
		{"mounts of this program's", func(*soak) float64 { return float64(lines("/proc/self/mountinfo")) }, exactly},
		{"control groups", func(s *soak) float64 { return float64(len(groupsOf(s.owner()))) }, upTo(idleSlots * slotGroups)},
		{"namespaces", func(s *soak) float64 { return float64(namespaces(s.descendants())) }, upTo(idleSlots * slotSpaces)},
		{"processes", func(s *soak) float64 { return float64(len(s.descendants())) }, upTo(idleSlots * slotProcesses)},
		{"zombies", func(s *soak) float64 { return float64(zombies(s.descendants())) }, exactly},
		{"orphans", func(s *soak) float64 { return float64(s.orphans()) }, exactly},
		{"runtime directory's entries", func(s *soak) float64 { return float64(len(entriesBelow(s.daemon.dir + "/run"))) }, exactly},
		{"ready sandboxes", func(s *soak) float64 { return s.metric("sandbar_sandboxes_ready") }, exactly},
	}
}

// kept counts the calls that the server keeps for iii workers whose connections broke. Their number
// depends on the rate of the load, and a leak would not be among them: it outlasts iiiGrace.
func (s *soak) kept() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.broken {
		if time.Since(at) < iiiGrace {
			n++
		}
	}
	return n
}

func (s *soak) owner() string { return fmt.Sprintf("%d-", s.daemon.cmd.Process.Pid) }

func (s *soak) proc(file string) string {
	return fmt.Sprintf("/proc/%d/%s", s.daemon.cmd.Process.Pid, file)
}

func (s *soak) descendants() map[int]process { return family(s.daemon.cmd.Process.Pid) }

// metric is a metric of the daemon; -1 if it has none of this name.
func (s *soak) metric(name string) float64 {
	v, err := s.daemon.metric(name)
	if err != nil {
		return -1
	}
	return v
}

// look waits until all operations have ended and the daemon has settled, and measures its
// resources. Measurements before the daemon is warm do not count.
func (s *soak) look(began time.Time) {
	s.turn.Lock()
	defer s.turn.Unlock()
	for end := time.Now().Add(settleTime); ; time.Sleep(200 * time.Millisecond) {
		s.reap()
		left := s.unsettled()
		if left == "" && len(s.dead) > 0 {
			left = "dead orphans that have not been waited for"
		}
		if left == "" {
			break
		}
		if time.Now().After(end) {
			s.count("looks", fmt.Errorf("after %v without requests: %s", settleTime, left))
			break
		}
	}
	if time.Since(began) < 2*lookEvery {
		return
	}
	l := make(look, 0, len(quantities()))
	for _, q := range quantities() {
		l = append(l, q.read(s))
	}
	s.looks = append(s.looks, l)
	programs := map[string]int{}
	for _, p := range s.descendants() {
		programs[p.name]++
	}
	s.programs = append(s.programs, programs)
}

// unsettled describes sandboxes other than the wanted number of ready ones; "" for none.
func (s *soak) unsettled() string {
	all, err := s.daemon.metrics()
	if err != nil {
		return err.Error()
	}
	var waiting float64
	for name, v := range all {
		if strings.HasPrefix(name, "sandbar_template_ready{") {
			waiting += v
		}
	}
	live, removing, ready := all["sandbar_sandboxes_live"], all["sandbar_sandboxes_removing"], all["sandbar_sandboxes_ready"]
	if live+removing > 0 || ready != soakReady || waiting != soakReady {
		return fmt.Sprintf("%v live sandboxes, %v being removed, %v ready or becoming so, %v waiting", live, removing, ready, waiting)
	}
	return ""
}

// reap waits for orphans.
func (s *soak) reap() { s.dead = reap(s.dead, s.daemon.cmd.Process.Pid, int(s.stdio.Load())) }

// reap waits for dead orphans that have become children of this process. Programs that clients
// started are waited for elsewhere as soon as they die, so reap waits only for children that were
// dead at the previous call. It returns the children that are dead now.
func reap(before map[int]bool, others ...int) (dead map[int]bool) {
	dead = map[int]bool{}
	for pid, p := range family(os.Getpid()) {
		switch {
		case p.parent != os.Getpid() || p.state != "Z" || slices.Contains(others, pid):
		case before[pid]:
			unix.Wait4(pid, nil, unix.WNOHANG, nil)
		default:
			dead[pid] = true
		}
	}
	return dead
}

// table prints the measurements and reports whether nothing grew.
func table(looks []look) (flat bool) {
	n := len(looks) / 4
	if n == 0 {
		fmt.Println("too short to measure growth")
		return false
	}
	flat = true
	fmt.Printf("%-30s %14s %14s %10s %9s\n", fmt.Sprintf("medians of %d looks each", n), "first quarter", "last quarter", "growth", "allowed")
	for i, q := range quantities() {
		first, last := median(looks[:n], i), median(looks[len(looks)-n:], i)
		verdict, slack := "", q.slack(first)
		if last-first > slack || first < 0 {
			verdict, flat = "  GREW", false
		}
		fmt.Printf("%-30s %14.1f %14.1f %+10.1f %9.1f%s\n", q.name, first, last, last-first, slack, verdict)
	}
	return flat
}

func median(looks []look, i int) float64 {
	var all []float64
	for _, l := range looks {
		all = append(all, l[i])
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// process is a line of /proc/PID/stat.
type process struct {
	name   string
	state  string
	parent int
}

// family returns all descendants of pid.
func family(pid int) map[int]process {
	all := map[int]process{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		b, err := os.ReadFile(f)
		begin, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
		if err != nil || end < 0 {
			continue
		}
		w := strings.Fields(string(b[end+1:]))
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		parent, _ := strconv.Atoi(w[1])
		all[n] = process{string(b[begin+1 : end]), w[0], parent}
	}
	out := map[int]process{}
	for n, p := range all {
		for at := p.parent; at > 1; at = all[at].parent {
			if at == pid {
				out[n] = p
				break
			}
		}
	}
	return out
}

func zombies(all map[int]process) (n int) {
	for _, p := range all {
		if p.state == "Z" {
			n++
		}
	}
	return n
}

// orphans counts the children of this process that it did not start, which have outlived their
// parents. No command of the load runs during a measurement.
func (s *soak) orphans() (n int) {
	for pid, p := range family(os.Getpid()) {
		if p.parent == os.Getpid() && pid != s.daemon.cmd.Process.Pid && int64(pid) != s.stdio.Load() {
			n++
		}
	}
	return n
}

// namespaces counts the namespaces of processes, without this program's.
func namespaces(of map[int]process) int {
	seen := map[string]bool{}
	for pid := range of {
		for _, kind := range []string{"net", "mnt", "pid", "user", "ipc", "uts", "cgroup"} {
			own, _ := os.Readlink("/proc/self/ns/" + kind)
			if to, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind)); err == nil && to != own {
				seen[to] = true
			}
		}
	}
	return len(seen)
}

// groupsOf lists the cgroups that a daemon has made.
func groupsOf(owner string) (groups []string) {
	filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.HasPrefix(e.Name(), owner) {
			groups = append(groups, path)
		}
		return nil
	})
	return groups
}

// entriesBelow lists all files and directories below dir.
func entriesBelow(dir string) (entries []string) {
	filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && path != dir {
			entries = append(entries, path)
		}
		return nil
	})
	return entries
}

func entriesIn(dir string) int {
	entries, _ := os.ReadDir(dir)
	return len(entries)
}

func lines(path string) int {
	b, _ := os.ReadFile(path)
	return bytes.Count(b, []byte("\n"))
}
