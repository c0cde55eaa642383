package docker

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

// What every container has.
const (
	// hostname is that of every sandbox.
	hostname = "sandbar"
	// sandboxUID is the user, and the group, of a sandbox's programs and of its
	// agent.
	sandboxUID = 1000
	// agentDir is where the agent's program is, read-only, as agentFile.
	agentDir  = "/.sandbar"
	agentFile = agent.Name
	// agentTasks is more processes and threads than the agent has while it
	// confines itself. Afterwards it tells how many they are.
	agentTasks = 64
	// oomScore has the kernel choose a sandbox first where the host runs out of
	// memory.
	oomScore = 500
	// namePrefix begins the names of containers and volumes.
	namePrefix = "sandbar-"
)

// The labels of containers and volumes.
const (
	labelOwner   = "dev.sandbar.owner"   // who made it, see ownerLabel
	labelSandbox = "dev.sandbar.sandbox" // the sandbox's id
)

// parts are the file systems that a sandbox can write to, with their share of
// its disk and inodes in eighths. Together they are all of it: a container
// cannot show one file system in several places.
func parts() []part {
	return []part{
		{sandbar.DefaultDir, 5, "mode=0755,uid=1000,gid=1000"},
		{"/tmp", 2, "mode=1777"},
		{"/dev/shm", 1, "mode=1777"},
	}
}

type part struct {
	dir     string
	eighths int64
	options string
}

// containerName is what the container of a sandbox is called.
func containerName(id sandbar.ID) string { return namePrefix + string(id) }

// plan is what a sandbox is made of: the container, and what the agent in it is
// told.
type plan struct {
	container client.ContainerCreateOptions
	setup     wire.Setup
}

// planFor computes the plan of a sandbox. It asks nobody.
func (d *Driver) planFor(id sandbar.ID, s sandbar.Spec, i image) (*plan, error) {
	ulimits, err := ulimits(s.Limits)
	if err != nil {
		return nil, err
	}
	p := &plan{setup: wire.Setup{
		Prebuilt: true, Dir: sandbar.DefaultDir, UID: sandboxUID, GID: sandboxUID,
		TagResource: uint32(policy.TagLocks), Seccomp: d.filters.all, ProgramSeccomp: d.filters.programs,
		Landlock: policy.Landlock([]string{"/"}, []string{sandbar.DefaultDir, "/tmp", "/dev/shm"}),
		Env:      environment(i.env, s.Env), Mitigate: d.mitigate,
	}}
	host := &container.HostConfig{
		AutoRemove:     true,
		LogConfig:      container.LogConfig{Type: "none"},
		ReadonlyRootfs: true,
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges:true", "seccomp=" + d.profile},
		NetworkMode:    "none",
		IpcMode:        "none", // a namespace of its own, without a /dev/shm of the engine's
		CgroupnsMode:   "private",
		OomScoreAdj:    oomScore,
		Tmpfs:          tmpfs(s.Limits),
		Mounts:         d.mounts(i),
		MaskedPaths:    append(policy.ProcMasks(), "/sys"),
		// Without a user namespace it is only an ordinary user's lack of rights that
		// keeps the trigger shut.
		ReadonlyPaths: append(policy.ProcReadOnly(), "/proc/sysrq-trigger"),
		Resources:     d.resources(s.Limits),
	}
	host.Ulimits = ulimits
	if s.Network == sandbar.NetworkOutbound {
		host.NetworkMode = container.NetworkMode(d.opt.network)
	} else {
		// What the host asks for names is nobody's business in there.
		host.DNS, host.DNSSearch = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, []string{"."}
	}
	p.container = client.ContainerCreateOptions{Name: containerName(id), HostConfig: host, Config: &container.Config{
		Image: i.id, Hostname: hostname, User: strconv.Itoa(sandboxUID) + ":" + strconv.Itoa(sandboxUID),
		Entrypoint: []string{agentDir + "/" + agentFile, agent.ModeStdio}, WorkingDir: "/", Env: agentEnv(),
		AttachStdin: true, AttachStdout: true, AttachStderr: true, OpenStdin: true, StdinOnce: true,
		// An image's own check would be a program nobody asked for.
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		StopSignal:  "SIGKILL",
		Labels:      d.labels(string(id)),
	}}
	return p, nil
}

// labels are those of what belongs to a sandbox.
func (d *Driver) labels(sandbox string) map[string]string {
	return map[string]string{labelOwner: d.owner, labelSandbox: sandbox}
}

// agentEnv tunes the agent's runtime as in native: few threads and caches, a
// heap that is collected late. An image may say otherwise for all programs of
// Go; the agent is not its program.
func agentEnv() []string {
	return []string{"GOMAXPROCS=2", "GOGC=25", "GODEBUG=containermaxprocs=0,updatemaxprocs=0", "GOMEMLIMIT=off", "GOTRACEBACK=single"}
}

// environment is what every program starts from: what the image asks for, what
// is the same in every sandbox, and the Spec's.
func environment(image []string, spec map[string]string) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
	env = append(env, image...)
	env = append(env, "HOME="+sandbar.DefaultDir, "USER=user", "LOGNAME=user", "SHELL=/bin/sh", "TMPDIR=/tmp", "TERM=dumb")
	for _, k := range slices.Sorted(maps.Keys(spec)) {
		env = append(env, k+"="+spec[k])
	}
	return env
}

// tmpfs are the writable file systems, each with its share of the limits.
func tmpfs(l sandbar.Limits) map[string]string {
	m := map[string]string{}
	for _, p := range parts() {
		o := "rw,exec,nosuid,nodev," + p.options
		if l.Disk > 0 {
			o += ",size=" + strconv.FormatInt(share(l.Disk, p.eighths), 10)
		} else {
			o += ",size=0" // no bound but that of memory
		}
		if l.Inodes > 0 {
			o += ",nr_inodes=" + strconv.FormatInt(max(share(l.Inodes, p.eighths), 2), 10)
		} else {
			o += ",nr_inodes=0"
		}
		m[p.dir] = o
	}
	return m
}

// share is so many eighths of n, rounded down.
func share(n, eighths int64) int64 {
	return n/8*eighths + n%8*eighths/8
}

// mounts are the agent, and nothing in the places where the image would have
// the engine make volumes, which nobody bounds.
func (d *Driver) mounts(i image) []mount.Mount {
	m := []mount.Mount{{Type: mount.TypeVolume, Source: d.volume(), Target: agentDir, ReadOnly: true, VolumeOptions: &mount.VolumeOptions{NoCopy: true}}}
	for _, dir := range i.volumes {
		if !slices.ContainsFunc(parts(), func(p part) bool { return p.dir == strings.TrimRight(dir, "/") }) {
			m = append(m, mount.Mount{Type: mount.TypeTmpfs, Target: dir, ReadOnly: true, TmpfsOptions: &mount.TmpfsOptions{SizeBytes: 4096, Mode: 0o555}})
		}
	}
	return m
}

// resources are the limits that the container's control group holds.
func (d *Driver) resources(l sandbar.Limits) container.Resources {
	var r container.Resources
	e := d.caps.Enforced
	memory, cpus := l.Memory, l.CPUs
	if memory <= 0 {
		memory = d.opt.memory
	}
	if cpus <= 0 {
		cpus = d.opt.cpus
	}
	if memory > 0 && e.Memory != sandbar.EnforcedNone {
		r.Memory, r.MemorySwap = memory, memory // together: swap adds nothing
	}
	if cpus > 0 && e.CPUs != sandbar.EnforcedNone {
		// More than there are is no limit, which the engine would refuse.
		if n := float64(d.info.NCPU); n > 0 {
			cpus = min(cpus, n)
		}
		r.NanoCPUs = int64(cpus * 1e9)
	}
	if l.CPUShares > 0 && e.CPUShares != sandbar.EnforcedNone {
		r.CPUShares = max(l.CPUShares, 2)
	}
	if l.PIDs > 0 && e.PIDs != sandbar.EnforcedNone {
		n := l.PIDs + d.agentThreads()
		r.PidsLimit = &n
	}
	return r
}

// agentThreads is how many processes and threads of a container are the agent's.
func (d *Driver) agentThreads() int64 {
	if n := d.threads.Load(); n > 0 {
		return n
	}
	return agentTasks
}

// ulimits are the resource limits of the container's processes. The runtime sets
// them, with the rights to raise what the engine itself has.
func ulimits(l sandbar.Limits) ([]*container.Ulimit, error) {
	limits, err := policy.Rlimits(l, policy.RlimitOptions{Enforced: sandbar.Enforcements{Memory: sandbar.EnforcedCgroup2, PIDs: sandbar.EnforcedCgroup2}})
	if err != nil {
		return nil, err
	}
	out := []*container.Ulimit{{Name: "locks", Soft: -1, Hard: -1}} // what the agent's marks are counted in
	for _, r := range limits {
		if r.Resource == rlimitNofile && l.Files <= 0 {
			continue // the engine's own, over which it could not go
		}
		name, ok := policy.RlimitName(r.Resource)
		if !ok {
			return nil, sandbar.Errorf(sandbar.Internal, "the resource limit %d has no name", r.Resource)
		}
		out = append(out, &container.Ulimit{Name: name, Soft: unbounded(r.Soft), Hard: unbounded(r.Hard)})
	}
	return out, nil
}

// rlimitNofile is RLIMIT_NOFILE.
const rlimitNofile = 7

// unbounded writes a limit as engines do, who have -1 for none.
func unbounded(n uint64) int64 {
	if n == policy.RlimitInfinity {
		return -1
	}
	return int64(n)
}
