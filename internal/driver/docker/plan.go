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

// Constants of every container.
const (
	// hostname is that of every sandbox.
	hostname = "sandbar"
	// sandboxUID is the user and group of programs and of the agent.
	sandboxUID = 1000
	// agentDir is the read-only directory of the agent's executable, agentFile.
	agentDir  = "/.sandbar"
	agentFile = agent.Name
	// agentTasks is more than the number of threads of an agent before it has confined itself.
	// Afterwards the agent reports the exact number.
	agentTasks = 64
	// oomScore makes the OOM killer prefer sandboxes if the host runs out of memory.
	oomScore = 500
	// namePrefix is the prefix of container and volume names.
	namePrefix = "sandbar-"
)

// The labels of containers and volumes.
const (
	labelOwner   = "dev.sandbar.owner"   // the driver that created it, see daemonid.Owner
	labelSandbox = "dev.sandbar.sandbox" // the sandbox's id
)

// parts are the writable file systems of a sandbox, with their share of its disk and inodes in
// eighths. Their sum is the whole: a container cannot mount one tmpfs at several places.
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

// containerName returns the name of a sandbox's container.
func containerName(id sandbar.ID) string { return namePrefix + string(id) }

// plan has the parameters of a sandbox: those of the container, and the Setup of its agent.
type plan struct {
	container client.ContainerCreateOptions
	setup     wire.Setup
}

// planFor computes the plan of a sandbox, without calls to the engine.
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
		IpcMode:        "none", // a new IPC namespace, without the engine's /dev/shm
		CgroupnsMode:   "private",
		OomScoreAdj:    oomScore,
		Tmpfs:          tmpfs(s.Limits),
		Mounts:         d.mounts(i),
		MaskedPaths:    append(policy.ProcMasks(), "/sys"),
		// Without a user namespace, only the lack of capabilities keeps programs from writing
		// sysrq-trigger.
		ReadonlyPaths: append(policy.ProcReadOnly(), "/proc/sysrq-trigger"),
		Resources:     d.resources(s.Limits),
	}
	host.Ulimits = ulimits
	if s.Network == sandbar.NetworkOutbound {
		host.NetworkMode = container.NetworkMode(d.opt.network)
	} else {
		// Do not copy the host's name servers into the container.
		host.DNS, host.DNSSearch = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, []string{"."}
	}
	p.container = client.ContainerCreateOptions{Name: containerName(id), HostConfig: host, Config: &container.Config{
		Image: i.id, Hostname: hostname, User: strconv.Itoa(sandboxUID) + ":" + strconv.Itoa(sandboxUID),
		Entrypoint: []string{agentDir + "/" + agentFile, agent.ModeStdio}, WorkingDir: "/", Env: agentEnv(),
		AttachStdin: true, AttachStdout: true, AttachStderr: true, OpenStdin: true, StdinOnce: true,
		// Disable the image's health check, which is a program of its own.
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		StopSignal:  "SIGKILL",
		Labels:      d.labels(string(id)),
	}}
	return p, nil
}

// labels returns the labels of a sandbox's objects.
func (d *Driver) labels(sandbox string) map[string]string {
	return map[string]string{labelOwner: d.owner, labelSandbox: sandbox}
}

// agentEnv tunes the agent's Go runtime as in native: few threads and caches, rare garbage
// collection. An image's own settings are for its programs, not for the agent.
func agentEnv() []string {
	return []string{"GOMAXPROCS=2", "GOGC=25", "GODEBUG=containermaxprocs=0,updatemaxprocs=0", "GOMEMLIMIT=off", "GOTRACEBACK=single"}
}

// environment returns the initial environment of every program: the image's, that of all sandboxes,
// and the Spec's.
func environment(image []string, spec map[string]string) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
	env = append(env, image...)
	env = append(env, "HOME="+sandbar.DefaultDir, "USER=user", "LOGNAME=user", "SHELL=/bin/sh", "TMPDIR=/tmp", "TERM=dumb")
	for _, k := range slices.Sorted(maps.Keys(spec)) {
		env = append(env, k+"="+spec[k])
	}
	return env
}

// tmpfs returns the writable file systems with their shares of the limits.
func tmpfs(l sandbar.Limits) map[string]string {
	m := map[string]string{}
	for _, p := range parts() {
		o := "rw,exec,nosuid,nodev," + p.options
		if l.Disk > 0 {
			o += ",size=" + strconv.FormatInt(share(l.Disk, p.eighths), 10)
		} else {
			o += ",size=0" // bounded by memory only
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

// share returns that many eighths of n, rounded down.
func share(n, eighths int64) int64 {
	return n/8*eighths + n%8*eighths/8
}

// mounts returns the agent's volume, and an empty tmpfs for each volume that the image declares,
// which would otherwise be unbounded.
func (d *Driver) mounts(i image) []mount.Mount {
	m := []mount.Mount{{Type: mount.TypeVolume, Source: d.volume(), Target: agentDir, ReadOnly: true, VolumeOptions: &mount.VolumeOptions{NoCopy: true}}}
	for _, dir := range i.volumes {
		if !slices.ContainsFunc(parts(), func(p part) bool { return p.dir == strings.TrimRight(dir, "/") }) {
			m = append(m, mount.Mount{Type: mount.TypeTmpfs, Target: dir, ReadOnly: true, TmpfsOptions: &mount.TmpfsOptions{SizeBytes: 4096, Mode: 0o555}})
		}
	}
	return m
}

// resources returns the limits that the container's cgroup enforces.
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
		r.Memory, r.MemorySwap = memory, memory // the sum of memory and swap: no swap
	}
	if cpus > 0 && e.CPUs != sandbar.EnforcedNone {
		// The engine refuses more CPUs than it has; that many are no limit.
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

// agentThreads returns how many tasks of a container are the agent's.
func (d *Driver) agentThreads() int64 {
	if n := d.threads.Load(); n > 0 {
		return n
	}
	return agentTasks
}

// ulimits returns the resource limits of the container's processes. The runtime sets them with the
// right to exceed the engine's own.
func ulimits(l sandbar.Limits) ([]*container.Ulimit, error) {
	limits, err := policy.Rlimits(l, policy.RlimitOptions{Enforced: sandbar.Enforcements{Memory: sandbar.EnforcedCgroup2, PIDs: sandbar.EnforcedCgroup2}})
	if err != nil {
		return nil, err
	}
	// RLIMIT_LOCKS, which carries the process tags
	out := []*container.Ulimit{{Name: "locks", Soft: -1, Hard: -1}}
	for _, r := range limits {
		if r.Resource == rlimitNofile && l.Files <= 0 {
			continue // that of the engine, which it cannot exceed
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

// unbounded converts a limit to the engine's notation, -1 for none.
func unbounded(n uint64) int64 {
	if n == policy.RlimitInfinity {
		return -1
	}
	return int64(n)
}
