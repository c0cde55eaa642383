package cgroup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
)

// The groups of a container engine's process, on each kind of host.
func TestSeen(t *testing.T) {
	const container = "/docker/c0ffee"
	all := Stats{MemoryCurrent: 1024, MemoryPeak: 8192, CPUTime: 5 * time.Millisecond, OOMKills: 3, PIDsCurrent: 2, PIDsRefused: 7}
	unswapped := all
	unswapped.MemoryPeak = 4096
	unpeaked := all
	unpeaked.MemoryPeak = 0
	v1 := func(lacks ...string) func(*kernel) {
		return func(k *kernel) {
			for _, c := range []string{"memory", "cpu", "pids"} {
				controllers := []string{c}
				if c == "cpu" {
					controllers = []string{"cpu", "cpuacct"}
				}
				k.mount1("/sys/fs/cgroup/"+c, "/", "/", controllers...).add(true, "docker", "c0ffee").lacks = lacks
			}
		}
	}
	v2 := func(lacks ...string) func(*kernel) {
		return func(k *kernel) {
			k.mount2("/sys/fs/cgroup", "/", "/", "memory", "cpu", "pids").add(true, "docker", "c0ffee").lacks = lacks
		}
	}
	for name, tt := range map[string]struct {
		host   func(*kernel)
		groups string // of the process 7
		want   Stats
		code   sandbar.Code
	}{
		"version 1":                 {v1(), "3:memory:" + container + "\n4:cpu,cpuacct:" + container + "\n5:pids:" + container + "\n1:name=systemd:/x\n", all, ""},
		"version 1, swap uncounted": {v1("memory.memsw.max_usage_in_bytes"), "3:memory:" + container + "\n4:cpu,cpuacct:" + container + "\n5:pids:" + container + "\n", unswapped, ""},
		"version 2":                 {v2(), "0::" + container + "\n", all, ""},
		"version 2, an old kernel":  {v2("memory.peak"), "0::" + container + "\n", unpeaked, ""},
		"both, with the controllers on version 1": {func(k *kernel) {
			v1()(k)
			k.mount2("/sys/fs/cgroup/unified", "/", "/")
		}, "3:memory:" + container + "\n4:cpu,cpuacct:" + container + "\n5:pids:" + container + "\n0::/\n", all, ""},
		"no such process":    {v2(), "", Stats{}, sandbar.NotFound},
		"in another tree":    {v2(), "0::/../elsewhere\n", Stats{}, sandbar.Unsupported},
		"nothing is mounted": {func(*kernel) {}, "0::" + container + "\n", Stats{}, sandbar.Unsupported},
		"memory is not counted": {func(k *kernel) {
			k.mount2("/sys/fs/cgroup", "/", "/", "cpu", "pids").add(true, "docker", "c0ffee")
		}, "0::" + container + "\n", Stats{}, sandbar.Unsupported},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel(t, 0)
			tt.host(k)
			if tt.groups != "" {
				k.files["/proc/7/cgroup"] = tt.groups
			}
			s, err := observe(k, 7)
			if sandbar.CodeOf(err) != tt.code {
				t.Fatalf("%v; want code %q", err, tt.code)
			}
			if err != nil {
				return
			}
			if s.Path() != container {
				t.Errorf("the group is called %q", s.Path())
			}
			got, err := s.Stats()
			if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
