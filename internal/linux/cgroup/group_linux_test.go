package cgroup

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// limits has every limit.
var limits = sandbar.Limits{Memory: 1 << 20, CPUs: 0.5, CPUShares: 512, PIDs: 10}

// managerOn returns a Manager on a model of a kernel with all controllers in one hierarchy, at /c.
func managerOn(t *testing.T, version int, change func(k *kernel)) (*kernel, *Manager) {
	t.Helper()
	k := newKernel(t, 0)
	if version == 1 {
		k.mount1("/c", "/", "/", "memory", "cpu", "cpuacct", "pids")
	} else {
		k.mount2("/c", "/", "/", "memory", "cpu", "pids")
	}
	change(k)
	m, err := detect(k, "me")
	if err != nil {
		t.Fatal(err)
	}
	k.wrote = nil
	return k, m
}

func nothing(*kernel) {}

func TestCreateWrites(t *testing.T) {
	noSwap := func(k *kernel) {
		for _, top := range k.tops {
			top.add(true, parentName).lacks = []string{"memory.memsw.limit_in_bytes", "memory.swap.max"}
		}
	}
	for _, tt := range []struct {
		name    string
		version int
		change  func(*kernel)
		limits  sandbar.Limits
		want    []string
	}{
		{"v2, none", 2, nothing, sandbar.Limits{Memory: sandbar.Unlimited, CPUs: sandbar.Unlimited, Disk: 5}, nil},
		{"v2, all", 2, nothing, limits, []string{"memory.max 1048576", "memory.swap.max 0", "cpu.weight 20", "cpu.max 50000 100000", "pids.max 10"}},
		{"v2, no swap accounting", 2, noSwap, sandbar.Limits{Memory: 4096}, []string{"memory.max 4096"}},
		{"v1, none", 1, nothing, sandbar.Limits{}, nil},
		{"v1, all", 1, nothing, limits, []string{"memory.limit_in_bytes 1048576", "memory.memsw.limit_in_bytes 1048576", "cpu.shares 512",
			"cpu.cfs_period_us 100000", "cpu.cfs_quota_us 50000", "pids.max 10"}},
		{"v1, no swap accounting", 1, noSwap, sandbar.Limits{Memory: 4096}, []string{"memory.limit_in_bytes 4096", "memory.swappiness 0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, m := managerOn(t, tt.version, tt.change)
			g, err := m.Create("x", tt.limits)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range k.wrote {
				got = append(got, strings.TrimPrefix(w, "/c/sandbar/me.x/"))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if g.Name() != "me.x" || !slices.Equal(g.Dirs(), []string{"/c/sandbar/me.x"}) {
				t.Errorf("group is %s at %v", g.Name(), g.Dirs())
			}
		})
	}
}

// Whichever write fails, no group is left.
func TestCreateAllOrNothing(t *testing.T) {
	const dir = "/c/sandbar/me.x"
	for _, tt := range []struct {
		name    string
		version int
		broken  string
		errno   error
		want    sandbar.Code
	}{
		{"no room for the group", 2, dir, unix.ENOSPC, sandbar.Exhausted},
		{"too many groups", 2, dir, unix.EAGAIN, sandbar.Exhausted},
		{"no permission", 1, dir, unix.EACCES, sandbar.Unsupported},
		{"memory", 2, dir + "/memory.max", unix.EINVAL, sandbar.Unsupported},
		{"swap", 1, dir + "/memory.memsw.limit_in_bytes", unix.EBUSY, sandbar.Internal},
		{"quota", 2, dir + "/cpu.max", unix.EIO, sandbar.Internal},
		{"quota beyond an unseen one above", 1, dir + "/cpu.cfs_quota_us", unix.EINVAL, sandbar.Unsupported},
		{"processes", 1, dir + "/pids.max", unix.EROFS, sandbar.Unsupported},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, m := managerOn(t, tt.version, nothing)
			before := k.groups()
			k.broken[tt.broken] = tt.errno
			if _, err := m.Create("x", limits); sandbar.CodeOf(err) != tt.want {
				t.Errorf("error is %v, want code %s", err, tt.want)
			}
			if diff := cmp.Diff(before, k.groups()); diff != "" {
				t.Errorf("groups (-before +after):\n%s", diff)
			}
		})
	}
}

func TestCreateRemovesEveryHierarchy(t *testing.T) {
	k := newKernel(t, 0)
	k.mount1("/c/memory", "/", "/", "memory")
	k.mount1("/c/cpu", "/", "/", "cpu", "cpuacct")
	k.mount1("/c/pids", "/", "/", "pids")
	m, err := detect(k, "me")
	if err != nil {
		t.Fatal(err)
	}
	before := k.groups()
	k.broken["/c/pids/sandbar/me.x/pids.max"] = unix.EINVAL
	if _, err := m.Create("x", limits); err == nil {
		t.Error("Create succeeded")
	}
	if diff := cmp.Diff(before, k.groups()); diff != "" {
		t.Errorf("groups (-before +after):\n%s", diff)
	}
	// A group that existed before is not removed.
	k.Mkdir("/c/cpu/sandbar/me.y")
	if _, err := m.Create("y", limits); sandbar.CodeOf(err) != sandbar.Exists {
		t.Errorf("error is %v, want Exists", err)
	}
	want := append(before, "/c/cpu/sandbar/me.y")
	slices.Sort(want)
	if diff := cmp.Diff(want, k.groups()); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

func TestCreateRefuses(t *testing.T) {
	k := newKernel(t, 0)
	k.mount2("/c", "/", "/", "pids")
	m, err := detect(k, "me")
	if err != nil {
		t.Fatal(err)
	}
	none, err := detect(newKernel(t, 0), "me")
	if err != nil {
		t.Fatal(err)
	}
	_, cpuOnly := managerOn(t, 2, nothing)
	for _, tt := range []struct {
		name   string
		m      *Manager
		id     string
		limits sandbar.Limits
		code   sandbar.Code
		field  string
	}{
		{"memory", m, "x", sandbar.Limits{Memory: 1}, sandbar.Unsupported, "memory"},
		{"cpus", m, "x", sandbar.Limits{CPUs: 1}, sandbar.Unsupported, "cpus"},
		{"shares", m, "x", sandbar.Limits{CPUShares: 1}, sandbar.Unsupported, "cpu_shares"},
		{"no hierarchy", none, "x", sandbar.Limits{}, sandbar.Unsupported, ""},
		{"id", m, "../x", sandbar.Limits{}, sandbar.Invalid, ""},
		{"too little", cpuOnly, "x", sandbar.Limits{CPUs: 0.0005}, sandbar.Invalid, "cpus"},
	} {
		_, err := tt.m.Create(tt.id, tt.limits)
		if e := sandbar.AsError(err); e == nil || e.Code != tt.code || e.Field != tt.field {
			t.Errorf("%s: %v, want %s about %q", tt.name, err, tt.code, tt.field)
		} else if e.Code == sandbar.Unsupported && e.Fix == "" {
			t.Errorf("%s: %v has no fix", tt.name, err)
		}
	}
}

// On version 1 the kernel refuses a quota above that of a parent group: the parent's quota applies.
func TestQuotaAbove(t *testing.T) {
	k, m := managerOn(t, 1, nothing)
	k.tops["/c"].values = map[string]string{"cpu.cfs_quota_us": "20000", "cpu.cfs_period_us": "100000"}
	k.broken["/c/sandbar/me.x/cpu.cfs_quota_us"] = unix.EINVAL
	if _, err := m.Create("x", limits); err != nil {
		t.Errorf("0.5 below a quota of 0.2: %v", err)
	}
	k.broken["/c/sandbar/me.y/cpu.cfs_quota_us"] = unix.EINVAL
	if _, err := m.Create("y", sandbar.Limits{CPUs: 0.1}); err == nil {
		t.Error("0.1 below a quota of 0.2 was not written and not refused")
	}
}

// Another daemon that closes removes the parent; Create makes it again.
func TestCreateAfterParentIsGone(t *testing.T) {
	for _, version := range []int{1, 2} {
		k, m := managerOn(t, version, nothing)
		if err := k.Rmdir("/c/sandbar"); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Create("x", limits); err != nil {
			t.Errorf("v%d: %v", version, err)
		}
	}
	// Another daemon has made the parent and not yet enabled the controllers.
	k, m := managerOn(t, 2, nothing)
	for _, c := range []string{"memory", "cpu", "pids"} {
		if err := k.WriteFile("/c/sandbar/cgroup.subtree_control", "-"+c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Create("x", limits); err != nil {
		t.Errorf("controllers not enabled: %v", err)
	}
	// A service manager has disabled a controller: Create fails and drops no limit.
	k.tops["/c"].offers = []string{"cpu", "pids"}
	k.tops["/c"].subtree, k.tops["/c"].children[parentName].subtree = []string{"cpu", "pids"}, []string{"cpu", "pids"}
	if _, err := m.Create("y", limits); sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Errorf("memory taken away: %v, want Unsupported", err)
	}
}

func TestQuota(t *testing.T) {
	for _, tt := range []struct {
		cpus       float64
		quota, per int
	}{
		{0.001, 1000, 1_000_000}, {0.0015, 1500, 1_000_000}, {0.01, 1000, 100_000}, {0.0099, 9900, 1_000_000},
		{0.5, 50_000, 100_000}, {1, 100_000, 100_000}, {2.5, 250_000, 100_000}, {64, 6_400_000, 100_000},
	} {
		if quota, per := quota(tt.cpus); quota != tt.quota || per != tt.per {
			t.Errorf("quota(%g) = %d in %d, want %d in %d", tt.cpus, quota, per, tt.quota, tt.per)
		}
	}
}

func TestWeight(t *testing.T) {
	for shares, want := range map[int64]int64{0: 1, 1: 1, 2: 1, 512: 20, 1024: 39, 262_144: 10_000, 1 << 40: 10_000} {
		if got := weight(shares); got != want {
			t.Errorf("weight(%d) = %d, want %d", shares, got, want)
		}
	}
}

func TestStats(t *testing.T) {
	for _, tt := range []struct {
		version int
		want    Stats
	}{
		{1, Stats{MemoryCurrent: 1024, MemoryPeak: 8192, CPUTime: 5 * time.Millisecond, OOMKills: 3, PIDsCurrent: 2, PIDsRefused: 7}},
		{2, Stats{MemoryCurrent: 1024, MemoryPeak: 8192, CPUTime: 5 * time.Millisecond, OOMKills: 3, PIDsCurrent: 2, PIDsRefused: 7}},
	} {
		_, m := managerOn(t, tt.version, nothing)
		g, err := m.Create("x", sandbar.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := g.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("v%d (-want +got):\n%s", tt.version, diff)
		}
		totals := Stats{MemoryPeak: tt.want.MemoryPeak, CPUTime: tt.want.CPUTime, OOMKills: tt.want.OOMKills}
		if got, err := g.Totals(); err != nil || got != totals {
			t.Errorf("v%d: Totals are %+v, %v", tt.version, got, err)
		}
		if err := g.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Stats(); err == nil {
			t.Errorf("v%d: Stats of a group that is gone has no error", tt.version)
		}
	}
}

func TestField(t *testing.T) {
	const text = "oom 5\noom_kill 3\noom_group_kill 9\nbad x\nshort\n"
	for key, want := range map[string]int64{"oom": 5, "oom_kill": 3, "oom_group_kill": 9} {
		if got, ok := field([]byte(text), key); got != want || !ok {
			t.Errorf("field %s = %d, %v; want %d", key, got, ok, want)
		}
	}
	for _, key := range []string{"bad", "short", "none", ""} {
		if got, ok := field([]byte(text), key); ok {
			t.Errorf("field %s = %d, want none", key, got)
		}
	}
}

func TestLeftovers(t *testing.T) {
	k := newKernel(t, 0)
	k.mount1("/c/memory", "/", "/s", "memory").add(true, "s")
	k.mount1("/c/pids", "/", "/", "pids")
	for _, dir := range []string{"/c/memory/old", "/c/memory/old/sandbar", "/c/memory/s/sandbar", "/c/pids/sandbar", "/c/pids/other"} {
		if err := k.Mkdir(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{
		"/c/memory/s/sandbar/dead.a", "/c/pids/sandbar/dead.a", // in both
		"/c/pids/sandbar/dead.b",       // in one hierarchy only
		"/c/memory/old/sandbar/dead.c", // of a daemon in another group
		"/c/pids/sandbar/live.a", "/c/pids/sandbar/me.a", "/c/pids/sandbar/somebody", "/c/pids/sandbar/x.y.z", "/c/pids/other/dead.d",
	} {
		if err := k.Mkdir(dir); err != nil {
			t.Fatal(err)
		}
	}
	m, err := detect(k, "me")
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Parents(); !slices.Equal(got, []string{"/c/memory/s/sandbar", "/c/pids/sandbar"}) {
		t.Errorf("parents are %v", got)
	}
	asked := map[string]int{}
	alive := func(instance string) bool { asked[instance]++; return instance == "live" }
	list, err := m.Leftovers(alive, "/c/memory/old/sandbar", "/c/pids/sandbar", "/c/pids/other", "/tmp/sandbar", "relative/sandbar")
	if err != nil {
		t.Fatal(err)
	}
	want := []Leftover{
		{"dead.a", []string{"/c/memory/s/sandbar/dead.a", "/c/pids/sandbar/dead.a"}},
		{"dead.b", []string{"/c/pids/sandbar/dead.b"}},
		{"dead.c", []string{"/c/memory/old/sandbar/dead.c"}},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"dead": 1, "live": 1}, asked); diff != "" {
		t.Errorf("asked about (-want +got):\n%s", diff)
	}
	for _, l := range list {
		if err := m.Remove(t.Context(), l); err != nil {
			t.Errorf("remove %s: %v", l.Name, err)
		}
	}
	left := []string{"/c/memory/old", "/c/memory/s", "/c/memory/s/sandbar", "/c/pids/other", "/c/pids/other/dead.d", "/c/pids/sandbar",
		"/c/pids/sandbar/live.a", "/c/pids/sandbar/me.a", "/c/pids/sandbar/somebody", "/c/pids/sandbar/x.y.z"}
	if diff := cmp.Diff(left, k.groups()); diff != "" {
		t.Errorf("groups after Remove (-want +got):\n%s", diff)
	}
}

// If the neighbours of the parent are processes, its weight is that of one process per processor.
// If they are groups, the weight is unchanged.
func TestWeigh(t *testing.T) {
	n := int64(runtime.NumCPU())
	for _, tt := range []struct {
		name string
		own  func(k *kernel) (*group, string)
		want string
	}{
		{"v1", func(k *kernel) (*group, string) { return k.mount1("/c", "/", "/", "cpu"), "cpu.shares" }, strconv.FormatInt(1024*n, 10)},
		{"top of v2", func(k *kernel) (*group, string) { return k.mount2("/c", "/", "/", "cpu"), "cpu.weight" }, strconv.FormatInt(100*n, 10)},
		{"service of v2", func(k *kernel) (*group, string) {
			g := k.mount2("/c", "/", "/s", "cpu").add(true, "s")
			g.procs = []string{self}
			return g, "cpu.weight"
		}, ""},
	} {
		k := newKernel(t, 0)
		own, file := tt.own(k)
		if _, err := detect(k, "me"); err != nil {
			t.Fatal(err)
		}
		if got := own.children[parentName].values[file]; got != tt.want {
			t.Errorf("%s: %s is %q, want %q", tt.name, file, got, tt.want)
		}
	}
}
