package cgroup

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// kernel is a model of the kernel's control groups with the rules that Detect and Create depend on,
// for layouts that the host lacks. The tests called TestHost… check the same rules on real kernels.
type kernel struct {
	t      *testing.T
	mu     sync.Mutex
	uid    int
	files  map[string]string // of /proc and /run
	tops   map[string]*group // by mount point
	broken map[string]error  // the error of a write to a file, by its path
	wrote  []string          // "path value", in order
}

// group is one directory of a hierarchy.
type group struct {
	version  int
	offers   []string // the controllers of the top; below it, the parent's subtree has them
	subtree  []string
	procs    []string
	mine     bool // this process may write here
	real     bool // the top of the hierarchy, not of a cgroup namespace
	lacks    []string
	values   map[string]string
	children map[string]*group
}

const self = "100"

func newKernel(t *testing.T, uid int) *kernel {
	return &kernel{t: t, uid: uid, files: map[string]string{
		"/proc/swaps":           "Filename Type Size Used Priority\n",
		"/proc/self/mountinfo":  "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n",
		"/proc/self/cgroup":     "",
		"/run/systemd/system/x": "",
	}, tops: map[string]*group{}, broken: map[string]error{}}
}

// mount2 mounts version 2 and puts this process into the group own.
func (k *kernel) mount2(dir, root, own string, offers ...string) *group {
	top := &group{version: 2, offers: offers, real: root == "/", mine: k.uid == 0}
	k.tops[dir] = top
	k.files["/proc/self/mountinfo"] += fmt.Sprintf("31 23 0:28 %s %s rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n", root, dir)
	k.files["/proc/self/cgroup"] += "0::" + own + "\n"
	return top
}

// mount1 mounts a version 1 hierarchy of the controllers.
func (k *kernel) mount1(dir, root, own string, controllers ...string) *group {
	top := &group{version: 1, offers: controllers, mine: k.uid == 0}
	k.tops[dir] = top
	list := strings.Join(controllers, ",")
	k.files["/proc/self/mountinfo"] += fmt.Sprintf("32 23 0:29 %s %s rw,nosuid shared:5 - cgroup cgroup rw,%s\n", root, dir, list)
	k.files["/proc/self/cgroup"] += fmt.Sprintf("%d:%s:%s\n", len(k.tops), list, own)
	return top
}

// add makes groups below g as a service manager does: if pass, with every controller that g passes
// down.
func (g *group) add(pass bool, names ...string) *group {
	for _, name := range names {
		if pass && g.version == 2 {
			g.subtree = slices.Clone(g.offers)
		}
		child := &group{version: g.version, offers: g.subtree, mine: g.mine}
		if g.version == 1 {
			child.offers = g.offers
		}
		if g.children == nil {
			g.children = map[string]*group{}
		}
		g.children[name] = child
		g = child
	}
	return g
}

// at returns the group and the file of a path.
func (k *kernel) at(name string) (g, parent *group, file string) {
	for dir, top := range k.tops {
		if name != dir && !strings.HasPrefix(name, dir+"/") {
			continue
		}
		g := top
		rest := strings.Split(strings.TrimPrefix(strings.TrimPrefix(name, dir), "/"), "/")
		for i, part := range rest {
			if part == "" {
				break
			}
			child := g.children[part]
			if child == nil {
				if i == len(rest)-1 {
					return nil, g, part
				}
				return nil, nil, ""
			}
			g, parent = child, g
		}
		return g, parent, ""
	}
	return nil, nil, ""
}

// interfaceFiles returns a group's files and their content.
func (g *group) interfaceFiles() map[string]string {
	files := map[string]string{"cgroup.procs": strings.Join(g.procs, "\n")}
	if g.version == 2 {
		files["cgroup.controllers"] = strings.Join(g.offers, " ") + "\n"
		files["cgroup.subtree_control"] = strings.Join(g.subtree, " ") + "\n"
		if !g.real {
			files["cgroup.type"], files["cgroup.kill"] = "domain\n", ""
		}
	} else {
		files["tasks"] = strings.Join(g.procs, "\n")
	}
	for _, c := range g.offers {
		for name, value := range map[string]map[string]string{
			"1memory":  {"memory.limit_in_bytes": "9223372036854771712", "memory.memsw.limit_in_bytes": "9223372036854771712", "memory.swappiness": "60", "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "memory.max_usage_in_bytes": "4096", "memory.memsw.max_usage_in_bytes": "8192", "memory.usage_in_bytes": "1024", "memory.use_hierarchy": "0"},
			"1cpu":     {"cpu.shares": "1024", "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"},
			"1cpuacct": {"cpuacct.usage": "5000000"},
			"1pids":    {"pids.max": "max", "pids.current": "2", "pids.events": "max 7\n"},
			"2memory":  {"memory.max": "max", "memory.swap.max": "max", "memory.events": "low 0\noom 4\noom_kill 3\n", "memory.peak": "8192", "memory.current": "1024"},
			"2cpu":     {"cpu.max": "max 100000", "cpu.weight": "100"},
			"2pids":    {"pids.max": "max", "pids.current": "2", "pids.events": "max 7\n"},
		}[fmt.Sprint(g.version)+c] {
			files[name] = value
		}
	}
	if g.version == 2 {
		files["cpu.stat"] = "usage_usec 5000\nuser_usec 4000\n"
	}
	maps.Copy(files, g.values)
	for _, name := range g.lacks {
		delete(files, name)
	}
	return files
}

func (k *kernel) ReadFile(name string) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s, ok := k.files[name]; ok {
		return []byte(s), nil
	}
	if g, _, _ := k.at(path.Dir(name)); g != nil {
		if s, ok := g.interfaceFiles()[path.Base(name)]; ok {
			return []byte(s), nil
		}
	}
	return nil, unix.ENOENT
}

func (k *kernel) Readable(name string) bool { _, err := k.ReadFile(name); return err == nil }

func (k *kernel) WriteFile(name, data string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.broken[name]; err != nil {
		return err
	}
	g, _, _ := k.at(path.Dir(name))
	if g == nil {
		return unix.ENOENT
	}
	file := path.Base(name)
	if _, ok := g.interfaceFiles()[file]; !ok {
		return unix.ENOENT
	}
	if !g.mine {
		return unix.EACCES
	}
	k.wrote = append(k.wrote, name+" "+data)
	switch file {
	case "cgroup.subtree_control":
		return g.control(data)
	case "cgroup.procs", "tasks":
		if data == "0" {
			return nil // a thread: the model has processes only
		}
		if len(g.subtree) > 0 && !g.real {
			return unix.EBUSY
		}
		for _, top := range k.tops {
			if top.version == g.version {
				top.leave(data)
			}
		}
		g.procs = append(g.procs, data)
		return nil
	}
	if g.values == nil {
		g.values = map[string]string{}
	}
	g.values[file] = data
	return nil
}

func (g *group) control(data string) error {
	name := data[1:]
	if data[0] == '-' {
		for _, child := range g.children {
			if slices.Contains(child.subtree, name) {
				return unix.EBUSY
			}
		}
		g.subtree = slices.DeleteFunc(g.subtree, func(s string) bool { return s == name })
	} else {
		if !slices.Contains(g.offers, name) {
			return unix.ENOENT
		}
		if len(g.procs) > 0 && !g.real {
			return unix.EBUSY
		}
		g.subtree = append(g.subtree, name)
	}
	for _, child := range g.children {
		child.offers = g.subtree
	}
	return nil
}

func (g *group) leave(pid string) {
	g.procs = slices.DeleteFunc(g.procs, func(s string) bool { return s == pid })
	for _, child := range g.children {
		child.leave(pid)
	}
}

type discard struct{ io.Writer }

func (discard) Close() error { return nil }

func (k *kernel) OpenWriter(name string) (io.WriteCloser, error) {
	if err := k.Writable(name); err != nil {
		return nil, err
	}
	return discard{io.Discard}, nil
}

func (k *kernel) Mkdir(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.broken[name]; err != nil {
		return err
	}
	g, parent, _ := k.at(name)
	switch {
	case g != nil:
		return unix.EEXIST
	case parent == nil:
		return unix.ENOENT
	case !parent.mine:
		return unix.EACCES
	}
	parent.add(false, path.Base(name))
	return nil
}

func (k *kernel) Rmdir(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	g, parent, _ := k.at(name)
	switch {
	case g == nil:
		return unix.ENOENT
	case len(g.procs) > 0 || len(g.children) > 0:
		return unix.EBUSY
	}
	delete(parent.children, path.Base(name))
	return nil
}

func (k *kernel) Subdirs(name string) ([]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if g, _, _ := k.at(name); g != nil {
		return slices.Sorted(maps.Keys(g.children)), nil
	}
	for file := range k.files {
		if strings.HasPrefix(file, name+"/") {
			return nil, nil
		}
	}
	return nil, unix.ENOENT
}

func (k *kernel) Writable(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	g, _, _ := k.at(name)
	if g == nil {
		g, _, _ = k.at(path.Dir(name))
	}
	switch {
	case g == nil:
		return unix.ENOENT
	case !g.mine:
		return unix.EACCES
	}
	return nil
}

func (k *kernel) Version(name string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if g, _, _ := k.at(name); g != nil {
		return g.version
	}
	return 0
}

func (k *kernel) Pid() int { return 100 }
func (k *kernel) Uid() int { return k.uid }

// groups lists every directory below the tops.
func (k *kernel) groups() []string {
	var list []string
	var walk func(dir string, g *group)
	walk = func(dir string, g *group) {
		for name, child := range g.children {
			list = append(list, dir+"/"+name)
			walk(dir+"/"+name, child)
		}
	}
	for dir, top := range k.tops {
		walk(dir, top)
	}
	slices.Sort(list)
	return list
}
