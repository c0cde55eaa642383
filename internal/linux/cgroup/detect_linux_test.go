package cgroup

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// describe prints a Manager's findings as lines.
func describe(m *Manager) []string {
	var lines []string
	for _, c := range m.Controllers() {
		if c.Version != 0 {
			lines = append(lines, fmt.Sprintf("%s v%d %s", c.Name, c.Version, c.Dir))
		} else {
			lines = append(lines, fmt.Sprintf("%s: %s", c.Name, c.Reason))
		}
	}
	return lines
}

func TestDetect(t *testing.T) {
	all := []string{"cpuset", "cpu", "io", "memory", "pids"}
	const fs = "/sys/fs/cgroup"
	v2 := func(dir string) []string {
		return []string{"memory v2 " + dir, "cpu v2 " + dir, "pids v2 " + dir}
	}
	refused := func(names []string, reason string) []string {
		var lines []string
		for _, n := range names {
			lines = append(lines, n+": "+reason)
		}
		return lines
	}
	three, four := []string{"memory", "cpu", "pids"}, []string{"memory", "cpu", "cpuacct", "pids"}
	for _, tt := range []struct {
		name  string
		uid   int
		setup func(k *kernel)
		want  []string
		fix   string // part of the fix of the first refused controller
		moved bool   // this process is moved into a leaf
	}{
		{
			name:  "v2, root in the top group",
			setup: func(k *kernel) { k.mount2(fs, "/", "/", all...).procs = []string{"1", "2", self} },
			want:  v2(fs + "/sandbar"),
		}, {
			name: "v2, root in a service of its own",
			setup: func(k *kernel) {
				k.mount2(fs, "/", "/system.slice/sandbar.service", all...).add(true, "system.slice", "sandbar.service").procs = []string{self}
			},
			want:  v2(fs + "/system.slice/sandbar.service/sandbar"),
			moved: true,
		}, {
			name: "v2, root in a login session with its shell",
			setup: func(k *kernel) {
				k.mount2(fs, "/", "/user.slice/user-0.slice/session-1.scope", all...).
					add(true, "user.slice", "user-0.slice", "session-1.scope").procs = []string{"50", self}
			},
			want: v2(fs + "/user.slice/user-0.slice/sandbar"),
		}, {
			name: "v2, a user in a delegated scope of its own",
			uid:  1000,
			setup: func(k *kernel) {
				g := k.mount2(fs, "/", "/user.slice/u.service/run.scope", all...).add(true, "user.slice", "u.service")
				g.mine = true
				g.add(true, "run.scope").procs = []string{self}
			},
			want:  v2(fs + "/user.slice/u.service/run.scope/sandbar"),
			moved: true,
		}, {
			name: "v2, a user in a delegated slice, with others",
			uid:  1000,
			setup: func(k *kernel) {
				g := k.mount2(fs, "/", "/user.slice/u.service/app.slice/shell.scope", all...).add(true, "user.slice", "u.service")
				g.mine = true
				g.add(true, "app.slice", "shell.scope").procs = []string{"50", self}
			},
			want: v2(fs + "/user.slice/u.service/app.slice/sandbar"),
		}, {
			name: "v2, a user to whom cpu is not passed down",
			uid:  1000,
			setup: func(k *kernel) {
				up := k.mount2(fs, "/", "/u.service/app.slice/shell.scope", all...)
				g := up.add(true, "u.service")
				g.mine = true
				up.subtree = []string{"memory", "pids"}
				g.offers = up.subtree
				g.add(true, "app.slice", "shell.scope").procs = []string{"50", self}
			},
			want: []string{"memory v2 " + fs + "/u.service/app.slice/sandbar",
				"cpu: it is not passed down to " + fs + "/u.service/app.slice",
				"pids v2 " + fs + "/u.service/app.slice/sandbar"},
			fix: "user@.service.d/delegate.conf",
		}, {
			name: "v2, a user in a login session",
			uid:  1000,
			setup: func(k *kernel) {
				k.mount2(fs, "/", "/user.slice/session-1.scope", all...).add(true, "user.slice", "session-1.scope").procs = []string{"50", self}
			},
			want: refused(three, fs+"/user.slice/session-1.scope cannot be written to: permission denied"),
			fix:  "systemd-run --user --scope -p Delegate=yes",
		}, {
			name: "v2, container with other processes",
			setup: func(k *kernel) {
				delete(k.files, "/run/systemd/system/x")
				g := k.mount2(fs, "/", "/", all...)
				g.real, g.procs = false, []string{"1", self}
			},
			want: refused(three, "other processes are in "+fs+", so that it cannot limit groups below it"),
			fix:  "mkdir /sys/fs/cgroup/others",
		}, {
			name: "v2, container's only process",
			setup: func(k *kernel) {
				g := k.mount2(fs, "/", "/", all...)
				g.real, g.procs = false, []string{self}
			},
			want:  v2(fs + "/sandbar"),
			moved: true,
		}, {
			name: "v2, container that sees the host's paths",
			setup: func(k *kernel) {
				g := k.mount2(fs, "/docker/abc", "/docker/abc", all...)
				g.procs = []string{self}
			},
			want:  v2(fs + "/sandbar"),
			moved: true,
		}, {
			name:  "v2, own group outside of the namespace",
			setup: func(k *kernel) { k.mount2(fs, "/", "/../other", all...) },
			want:  refused(three, "this process's own group, /../other, lies outside of what is mounted at "+fs),
			fix:   "--cgroupns=private",
		}, {
			name: "v2, mounted read-only",
			setup: func(k *kernel) {
				k.mount2(fs, "/", "/", all...)
				k.files["/proc/self/mountinfo"] = strings.ReplaceAll(k.files["/proc/self/mountinfo"], "rw,nosuid", "ro,nosuid")
			},
			want: refused(three, fs+" is mounted read-only"),
			fix:  "--privileged",
		}, {
			name:  "v2, memory switched off at boot",
			setup: func(k *kernel) { k.mount2(fs, "/", "/", "cpu", "pids") },
			want:  []string{"memory: the kernel offers this controller on no hierarchy", "cpu v2 " + fs + "/sandbar", "pids v2 " + fs + "/sandbar"},
			fix:   "cgroup_enable=memory",
		}, {
			name: "v2, the top of a process that replaced another in its leaf",
			setup: func(k *kernel) {
				k.mount2(fs, "/", "/s/sandbar-daemon", all...).add(true, "s", "sandbar-daemon").procs = []string{self}
			},
			want: v2(fs + "/s/sandbar"),
		}, {
			name: "v2, the nearest that looks usable is not",
			setup: func(k *kernel) {
				k.mount2(fs, "/", "/s/t", all...).add(true, "s", "t").procs = []string{"50", self}
				k.broken[fs+"/s/sandbar"] = unix.EACCES
			},
			want: v2(fs + "/sandbar"),
		}, {
			name:  "v2, not mounted",
			setup: func(k *kernel) { k.files["/proc/self/cgroup"] = "0::/\n" },
			want:  refused(three, "the version 2 hierarchy is not mounted"),
			fix:   "mount -t cgroup2",
		}, {
			name: "v1, a hierarchy each, and v2 without controllers",
			setup: func(k *kernel) {
				k.mount1(fs+"/memory", "/", "/api/x", "memory").add(true, "api", "x")
				k.mount1(fs+"/cpu", "/", "/", "cpu")
				k.mount1(fs+"/cpuacct", "/", "/", "cpuacct")
				k.mount1(fs+"/pids", "/", "/", "pids")
				k.mount2(fs+"/unified", "/", "/")
			},
			want: []string{"memory v1 " + fs + "/memory/api/x/sandbar", "cpu v1 " + fs + "/cpu/sandbar",
				"cpuacct v1 " + fs + "/cpuacct/sandbar", "pids v1 " + fs + "/pids/sandbar"},
		}, {
			name: "v1, cpu and cpuacct together, in a container that sees the host's paths",
			setup: func(k *kernel) {
				k.mount1(fs+"/memory", "/docker/a", "/docker/a", "memory")
				k.mount1(fs+"/cpu,cpuacct", "/docker/a", "/docker/a", "cpu", "cpuacct")
				k.mount1(fs+"/pids", "/docker/a", "/docker/a", "pids")
			},
			want: []string{"memory v1 " + fs + "/memory/sandbar", "cpu v1 " + fs + "/cpu,cpuacct/sandbar",
				"cpuacct v1 " + fs + "/cpu,cpuacct/sandbar", "pids v1 " + fs + "/pids/sandbar"},
		}, {
			name: "v1, an ordinary user",
			uid:  1000,
			setup: func(k *kernel) {
				k.mount1(fs+"/memory", "/", "/", "memory")
				k.mount1(fs+"/cpu,cpuacct", "/", "/", "cpu", "cpuacct")
				k.mount1(fs+"/pids", "/", "/", "pids")
			},
			want: []string{
				"memory: no group can be made in " + fs + "/memory: permission denied",
				"cpu: no group can be made in " + fs + "/cpu,cpuacct: permission denied",
				"cpuacct: no group can be made in " + fs + "/cpu,cpuacct: permission denied",
				"pids: no group can be made in " + fs + "/pids: permission denied"},
			fix: "cgcreate -t 1000 -a 1000",
		}, {
			name: "v1, read-only in a container; a group of another namespace",
			setup: func(k *kernel) {
				k.mount1(fs+"/pids", "/", "/", "pids")
				k.files["/proc/self/mountinfo"] = strings.ReplaceAll(k.files["/proc/self/mountinfo"], "cgroup rw,pids", "cgroup ro,pids")
				k.mount1(fs+"/memory", "/a", "/b", "memory")
			},
			want: []string{"memory: this process's own group, /b, lies outside of what is mounted at " + fs + "/memory",
				"cpu: the kernel offers this controller on no hierarchy", "pids: " + fs + "/pids is mounted read-only"},
			fix: "--cgroupns=private",
		}, {
			name: "v1, entering forbidden",
			setup: func(k *kernel) {
				k.mount1(fs+"/all", "/", "/", "memory", "cpu", "cpuacct", "pids")
				k.broken[fs+"/all/sandbar/me.probe/tasks"] = unix.EPERM
			},
			want: refused(four, "a thread cannot enter a group in "+fs+"/all and return: operation not permitted"),
			fix:  "--privileged",
		}, {
			name:  "v1, not mounted",
			setup: func(k *kernel) { k.files["/proc/self/cgroup"] = "3:memory:/\n2:pids,cpu:/\n" },
			want:  refused(three, "its version 1 hierarchy is not mounted"),
			fix:   "mount -t cgroup -o memory cgroup",
		}, {
			name: "memory on v1, the others on v2",
			setup: func(k *kernel) {
				k.mount1(fs+"/memory", "/", "/", "memory")
				k.mount2(fs+"/unified", "/", "/", "cpu", "pids")
			},
			want: []string{"memory v1 " + fs + "/memory/sandbar", "cpu v2 " + fs + "/unified/sandbar", "pids v2 " + fs + "/unified/sandbar"},
		}, {
			name:  "nothing at all",
			setup: func(k *kernel) {},
			want:  refused(three, "the kernel offers this controller on no hierarchy"),
			fix:   "cgroup_enable=memory",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKernel(t, tt.uid)
			tt.setup(k)
			before := k.groups()
			m, err := detect(k, "me")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, describe(m)); diff != "" {
				t.Errorf("controllers (-want +got):\n%s", diff)
			}
			var fix string
			var refusals int
			for _, c := range m.Controllers() {
				if c.Version == 0 {
					refusals++
					if fix == "" {
						fix = c.Fix
					}
				}
			}
			if !strings.Contains(fix, tt.fix) || (tt.fix == "") != (fix == "") {
				t.Errorf("fix is %q, want one with %q", fix, tt.fix)
			}
			if len(m.Caps().Notes) != refusals {
				t.Errorf("%d notes for %d refusals: %q", len(m.Caps().Notes), refusals, m.Caps().Notes)
			}
			moved := slices.ContainsFunc(k.groups(), func(d string) bool { return strings.HasSuffix(d, "/"+leafName) }) &&
				!slices.ContainsFunc(before, func(d string) bool { return strings.HasSuffix(d, "/"+leafName) })
			if moved != tt.moved {
				t.Errorf("moved to a leaf: %v, want %v", moved, tt.moved)
			}
			if m.Caps().Any() {
				g, err := m.Create("x", sandbar.Limits{PIDs: 5})
				if err != nil {
					t.Fatal(err)
				}
				if err := g.Destroy(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			m.Close()
			if diff := cmp.Diff(before, k.groups()); diff != "" {
				t.Errorf("groups after Close (-before +after):\n%s", diff)
			}
		})
	}
}

func TestCloseGivesBack(t *testing.T) {
	k := newKernel(t, 0)
	own := k.mount2("/c", "/", "/s", "memory", "cpu", "pids").add(true, "s")
	own.procs = []string{self}
	m, err := detect(k, "me")
	if err != nil {
		t.Fatal(err)
	}
	if len(own.procs) != 0 || len(own.subtree) != 3 {
		t.Errorf("after Detect: processes %v, enabled %v; want none, three", own.procs, own.subtree)
	}
	m.Close()
	m.Close()
	if !slices.Equal(own.procs, []string{self}) || len(own.subtree) != 0 {
		t.Errorf("after Close: processes %v, enabled %v; want itself, none", own.procs, own.subtree)
	}
}

func TestCloseLeavesOthers(t *testing.T) {
	k := newKernel(t, 0)
	own := k.mount2("/c", "/", "/s", "memory", "cpu", "pids").add(true, "s")
	own.procs = []string{self}
	m, err := detect(k, "me")
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Mkdir("/c/s/sandbar/other.x"); err != nil {
		t.Fatal(err)
	}
	m.Close()
	if own.children[parentName].children["other.x"] == nil || len(own.subtree) != 3 {
		t.Error("Close took away what another daemon uses")
	}
}

// closing is a kernel on which another daemon closes, and so removes the parent, just before this
// one makes its probe.
type closing struct {
	*kernel
	parents int // number of times
}

func (c *closing) Mkdir(name string) error {
	if strings.HasSuffix(name, ".probe") && c.parents > 0 {
		c.parents--
		if err := c.Rmdir(path.Dir(name)); err != nil {
			c.t.Error(err)
		}
	}
	return c.kernel.Mkdir(name)
}

// Another daemon that closes does not prevent the detection.
func TestDetectBesideClose(t *testing.T) {
	for version := range 2 {
		k := newKernel(t, 0)
		if version == 0 {
			k.mount1("/c", "/", "/", "memory", "cpu", "cpuacct", "pids")
		} else {
			k.mount2("/c", "/", "/", "memory", "cpu", "pids")
		}
		c := &closing{kernel: k, parents: 3}
		m, err := detect(c, "me")
		if err != nil {
			t.Fatal(err)
		}
		if caps := m.Caps(); caps.Memory == sandbar.EnforcedNone || caps.PIDs == sandbar.EnforcedNone || c.parents != 0 {
			t.Errorf("v%d: %+v, %+v", version+1, caps, m.Controllers())
		}
	}
}

func TestCaps(t *testing.T) {
	const v1, v2 = sandbar.EnforcedCgroup1, sandbar.EnforcedCgroup2
	full := Caps{Memory: v2, CPUs: v2, CPUShares: v2, PIDs: v2, SwapAccounted: true, MemoryExact: true,
		OOMCounted: true, PeakCounted: true, PeakResets: true, CPUCounted: true, AtomicKill: true}
	swapNote := "the kernel does not account swap, so a sandbox's swapped-out memory does not count towards its memory limit" +
		" (boot with swapaccount=1 on the kernel's command line, or switch swap off: swapoff -a)"
	for _, tt := range []struct {
		name    string
		version int
		lacks   string // a file that the parent lacks
		broken  string // a file of the parent that cannot be written
		swap    bool
		change  func(c *Caps)
	}{
		{name: "v2", version: 2, change: func(c *Caps) {}},
		{name: "v2 with swap", version: 2, swap: true, change: func(c *Caps) {}},
		{name: "v2 without accounting", version: 2, lacks: "memory.swap.max", change: func(c *Caps) { c.SwapAccounted = false }},
		{name: "v2 with swap, without accounting", version: 2, lacks: "memory.swap.max", swap: true, change: func(c *Caps) {
			c.SwapAccounted, c.MemoryExact, c.Notes = false, false, []string{swapNote}
		}},
		{name: "v2 before 5.14", version: 2, lacks: "cgroup.kill", change: func(c *Caps) { c.AtomicKill = false }},
		{name: "v2 before 5.19", version: 2, lacks: "memory.peak", change: func(c *Caps) { c.PeakCounted, c.PeakResets = false, false }},
		{name: "v2 before 6.12", version: 2, broken: "memory.peak", change: func(c *Caps) { c.PeakResets = false }},
		{name: "v1", version: 1, change: func(c *Caps) {
			c.Memory, c.CPUs, c.CPUShares, c.PIDs, c.AtomicKill = v1, v1, v1, v1, false
		}},
		{name: "v1 with swap, without accounting", version: 1, lacks: "memory.memsw.limit_in_bytes", swap: true, change: func(c *Caps) {
			c.Memory, c.CPUs, c.CPUShares, c.PIDs, c.AtomicKill = v1, v1, v1, v1, false
			c.SwapAccounted, c.MemoryExact, c.Notes = false, false, []string{swapNote}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKernel(t, 0)
			var top *group
			if tt.version == 1 {
				top = k.mount1("/c", "/", "/", "memory", "cpu", "cpuacct", "pids")
			} else {
				top = k.mount2("/c", "/", "/", "memory", "cpu", "pids")
			}
			top.add(true, parentName).lacks = []string{tt.lacks}
			if tt.broken != "" {
				k.broken["/c/"+parentName+"/"+tt.broken] = unix.EINVAL
			}
			if tt.swap {
				k.files["/proc/swaps"] += "/swapfile file 1 0 -2\n"
			}
			m, err := detect(k, "me")
			if err != nil {
				t.Fatal(err)
			}
			want := full
			tt.change(&want)
			if diff := cmp.Diff(want, m.Caps()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDetectRefusesInstance(t *testing.T) {
	for _, name := range []string{"", "a.b", "a/b", "..", "a b", strings.Repeat("a", 65)} {
		if _, err := detect(newKernel(t, 0), name); sandbar.CodeOf(err) != sandbar.Invalid {
			t.Errorf("instance %q: %v, want Invalid", name, err)
		}
	}
}

func TestParseMounts(t *testing.T) {
	const text = `22 27 0:21 / /proc rw - proc proc rw
36 23 0:31 /a\040b /sys/fs/cgroup/my\040memory rw,relatime shared:1 master:2 - cgroup cgroup rw,memory
37 23 0:32 / /sys/fs/cgroup/pids ro,relatime - cgroup cgroup rw,pids
38 23 0:33 / /u rw - cgroup2 none ro,nsdelegate
39 broken line
40 23 0:33 / /x rw shared:3
`
	want := []mount{
		{version: 1, root: "/a b", dir: "/sys/fs/cgroup/my memory", controllers: []string{"rw", "memory"}},
		{version: 1, root: "/", dir: "/sys/fs/cgroup/pids", readOnly: true, controllers: []string{"rw", "pids"}},
		{version: 2, root: "/", dir: "/u", readOnly: true},
	}
	if diff := cmp.Diff(want, parseMounts(text), cmp.AllowUnexported(mount{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseMemberships(t *testing.T) {
	v1, v2 := parseMemberships("9:name=systemd:/x\n4:memory:/a:b\n3:cpu,cpuacct:/ (deleted)\n0::/u\nbroken\n")
	want1 := []membership{{[]string{"memory"}, "/a:b"}, {[]string{"cpu", "cpuacct"}, "/"}}
	if diff := cmp.Diff(want1, v1, cmp.AllowUnexported(membership{})); diff != "" {
		t.Errorf("version 1 (-want +got):\n%s", diff)
	}
	if v2 == nil || v2.path != "/u" {
		t.Errorf("version 2: %v, want /u", v2)
	}
	if _, v2 := parseMemberships("4:memory:/\n"); v2 != nil {
		t.Errorf("version 2: %v, want none", v2)
	}
}

func TestBelow(t *testing.T) {
	for _, tt := range []struct {
		root, group, want string
		ok                bool
	}{
		{"/", "/", "", true}, {"/", "/a/b", "a/b", true}, {"/a", "/a", "", true}, {"/a", "/a/b", "b", true},
		{"/a", "/ab", "", false}, {"/a", "/", "", false}, {"/", "/../x", "", false}, {"/..", "/", "", false},
	} {
		if got, ok := relativeTo(tt.root, tt.group); got != tt.want || ok != tt.ok {
			t.Errorf("below(%q, %q) = %q, %v; want %q, %v", tt.root, tt.group, got, ok, tt.want, tt.ok)
		}
	}
}
