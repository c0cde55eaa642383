package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// The controllers used. cpuacct exists in version 1 only.
const (
	memory  = "memory"
	cpu     = "cpu"
	cpuacct = "cpuacct"
	pids    = "pids"
)

// base is the directory all sandboxes' groups are made in; leaf is where the
// daemon goes when it must leave its own group to be allowed children.
const (
	base = "sandbar"
	leaf = "sandbar-daemon"
)

// Manager is a place to make groups in. Its methods may be called concurrently.
type Manager struct {
	v1    []*place // one for each version 1 hierarchy in use
	v2    *place   // nil where version 2 has no controller for us
	notes []string
	swap  bool // swap cannot be bounded and there is some
}

// place is a directory in one hierarchy where groups are made.
type place struct {
	dir         string // the directory named base
	controllers []string
	home        *os.File // version 1: tasks of the group this process is in
}

// Detect finds where this process may make groups. Having none is no error:
// then every limit is EnforcedNone and the notes tell why.
func Detect() (*Manager, error) { return detect("/proc/self", "/proc/swaps") }

func detect(proc, swaps string) (*Manager, error) {
	mounts, err := readMounts(filepath.Join(proc, "mountinfo"))
	if err != nil {
		return nil, err
	}
	own, err := readOwn(filepath.Join(proc, "cgroup"))
	if err != nil {
		return nil, err
	}
	m := &Manager{}
	for _, h := range mounts {
		if h.version == 1 {
			m.addV1(h, own)
		}
	}
	for _, h := range mounts {
		if h.version == 2 && m.v2 == nil {
			m.addV2(h, own)
		}
	}
	m.noteMissing(len(mounts) == 0)
	m.swap = swapOn(swaps) && !m.boundsSwap()
	if m.swap {
		m.notes = append(m.notes, "swap is on and the kernel does not account for it, so a sandbox can hold more than its memory limit in swap; boot with swapaccount=1, or turn swap off")
	}
	return m, nil
}

// hierarchy is a mounted tree of groups.
type hierarchy struct {
	version     int
	root, mount string   // the group that is the mount's root, and where it is mounted
	controllers []string // version 1: from the mount's options
}

// readMounts reads the hierarchies from a mountinfo file (proc(5)).
func readMounts(path string) (found []hierarchy, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		h := hierarchy{root: unescape(f[3]), mount: unescape(f[4])}
		switch g[0] {
		case "cgroup2":
			h.version = 2
		case "cgroup":
			h.version = 1
			for _, o := range strings.Split(g[2], ",") {
				if slices.Contains([]string{memory, cpu, cpuacct, pids}, o) {
					h.controllers = append(h.controllers, o)
				}
			}
			if len(h.controllers) == 0 {
				continue
			}
		default:
			continue
		}
		found = append(found, h)
	}
	return found, nil
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	for _, e := range [...][2]string{{`\040`, " "}, {`\011`, "\t"}, {`\012`, "\n"}, {`\134`, `\`}} {
		s = strings.ReplaceAll(s, e[0], e[1])
	}
	return s
}

// readOwn reads which group this process is in, by controller; "" is version 2.
func readOwn(path string) (map[string]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	own := map[string]string{}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		for _, c := range strings.Split(f[1], ",") {
			own[c] = f[2]
		}
	}
	return own, nil
}

// locate is the directory of a group in a mounted hierarchy.
func (h hierarchy) locate(group string) (string, bool) {
	rel := group
	if h.root != "/" {
		var ok bool
		if rel, ok = strings.CutPrefix(group, h.root); !ok || (rel != "" && rel[0] != '/') {
			return "", false
		}
	}
	if strings.HasPrefix(rel, "/..") { // outside of this cgroup namespace
		return "", false
	}
	return filepath.Join(h.mount, rel), true
}

// addV1 makes a place in a version 1 hierarchy, below our own group, so that
// limits put on the daemon hold for its sandboxes too. Where it cannot, the
// controllers stay missing.
func (m *Manager) addV1(h hierarchy, own map[string]string) {
	dir, ok := h.locate(own[h.controllers[0]])
	if !ok {
		return
	}
	p := &place{dir: filepath.Join(dir, base), controllers: h.controllers}
	if p.make() != nil {
		return
	}
	home, err := os.OpenFile(filepath.Join(dir, "tasks"), os.O_WRONLY, 0)
	if err != nil {
		_ = os.Remove(p.dir)
		return
	}
	p.home = home
	m.v1 = append(m.v1, p)
}

// addV2 finds the nearest group, from our own upwards, in which groups with
// the controllers that version 1 does not have can be made.
func (m *Manager) addV2(h hierarchy, own map[string]string) {
	wanted := m.missing()
	dir, ok := h.locate(own[""])
	if !ok || len(wanted) == 0 {
		return
	}
	for d := dir; len(d) >= len(h.mount); d = filepath.Dir(d) {
		have := intersect(readWords(filepath.Join(d, "cgroup.controllers")), wanted)
		if len(have) == 0 {
			continue
		}
		p := &place{dir: filepath.Join(d, base), controllers: have}
		if err := p.delegate(d, d == dir); err == nil {
			m.v2 = p
			return
		}
	}
}

// delegate makes a place below group d of version 2, where that is possible:
// we may write there, and d either hands its controllers to its children
// already or can be made to, for which no process may be in it.
func (p *place) delegate(d string, own bool) error {
	if err := unix.Access(d, unix.W_OK); err != nil {
		return err
	}
	if err := unix.Access(filepath.Join(d, "cgroup.procs"), unix.W_OK); err != nil {
		return err
	}
	if err := enable(d, p.controllers); err != nil {
		if !own || !alone(d) {
			return err
		}
		if err := stepAside(d); err != nil {
			return err
		}
		if err := enable(d, p.controllers); err != nil {
			return err
		}
	}
	return p.make()
}

// make makes the place's directory; in version 2 its children get controllers.
func (p *place) make() error {
	if err := os.Mkdir(p.dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if p.isV2() {
		return enable(p.dir, p.controllers)
	}
	return unix.Access(p.dir, unix.W_OK)
}

func (p *place) isV2() bool {
	_, err := os.Stat(filepath.Join(p.dir, "cgroup.controllers"))
	return err == nil
}

// enable hands controllers to the children of group d.
func enable(d string, controllers []string) error {
	file := filepath.Join(d, "cgroup.subtree_control")
	on := readWords(file)
	var add []string
	for _, c := range controllers {
		if !slices.Contains(on, c) {
			add = append(add, "+"+c)
		}
	}
	if len(add) == 0 {
		return nil
	}
	return write(file, strings.Join(add, " "))
}

// alone reports whether this process is the only one in group d.
func alone(d string) bool {
	in := readWords(filepath.Join(d, "cgroup.procs"))
	return len(in) == 1 && in[0] == strconv.Itoa(os.Getpid())
}

// stepAside moves this process into a group of its own below d.
func stepAside(d string) error {
	into := filepath.Join(d, leaf)
	if err := os.Mkdir(into, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return write(filepath.Join(into, "cgroup.procs"), "0")
}

// missing is the controllers no hierarchy provides yet.
func (m *Manager) missing() (out []string) {
	for _, c := range []string{memory, cpu, pids} {
		if !m.has(c) {
			out = append(out, c)
		}
	}
	return out
}

func (m *Manager) has(controller string) bool {
	return m.by(controller) != sandbar.EnforcedNone
}

// by tells which version of cgroups has a controller.
func (m *Manager) by(controller string) sandbar.Enforcement {
	for _, p := range m.v1 {
		if slices.Contains(p.controllers, controller) {
			return sandbar.EnforcedCgroup1
		}
	}
	if m.v2 != nil && slices.Contains(m.v2.controllers, controller) {
		return sandbar.EnforcedCgroup2
	}
	return sandbar.EnforcedNone
}

func (m *Manager) noteMissing(none bool) {
	lack := m.missing()
	switch {
	case len(lack) == 0:
	case none:
		m.notes = append(m.notes, "no cgroup hierarchy is mounted, so "+strings.Join(lack, ", ")+" cannot be bounded by one; mount cgroup2 on /sys/fs/cgroup")
	case os.Geteuid() == 0:
		m.notes = append(m.notes, "no cgroup with "+strings.Join(lack, ", ")+" can be used; in a container, give it a writable cgroup of its own; under systemd, add Delegate=yes to the unit")
	default:
		m.notes = append(m.notes, "no cgroup with "+strings.Join(lack, ", ")+" can be used by this user; start sandbar with `systemd-run --user --scope -p Delegate=yes sandbar …`, as a user unit with Delegate=yes, or as root")
	}
}

// Caps tells how memory, processor and process limits are held, and in
// sentences for an operator what is missing.
func (m *Manager) Caps() (e sandbar.Enforcements, notes []string) {
	e.Memory, e.PIDs = m.by(memory), m.by(pids)
	e.CPUs, e.CPUShares = m.by(cpu), m.by(cpu)
	return e, slices.Clone(m.notes)
}

// Close removes the place if it is empty and releases what the Manager holds.
func (m *Manager) Close() error {
	for _, p := range m.places() {
		_ = os.Remove(p.dir) // another sandbar may have groups in it
		if p.home != nil {
			p.home.Close()
		}
	}
	return nil
}

func (m *Manager) places() []*place {
	if m.v2 == nil {
		return m.v1
	}
	return append(slices.Clip(m.v1), m.v2)
}

// boundsSwap reports whether the memory limit can include swap.
func (m *Manager) boundsSwap() bool {
	for _, p := range m.places() {
		if slices.Contains(p.controllers, memory) {
			file := "memory.memsw.limit_in_bytes"
			if p == m.v2 {
				return true // since 4.5; without swap accounting there is no memory.swap.max, and Create would fail
			}
			_, err := os.Stat(filepath.Join(p.dir, file))
			return err == nil
		}
	}
	return true
}

// swapOn reports whether there is any swap.
func swapOn(path string) bool {
	b, err := os.ReadFile(path)
	return err == nil && strings.Count(string(b), "\n") > 1
}

func intersect(a, b []string) (out []string) {
	for _, x := range a {
		if slices.Contains(b, x) {
			out = append(out, x)
		}
	}
	return out
}

func readWords(path string) []string {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

// write writes a control file in one write, as the kernel wants it.
func write(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(value)); err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}
