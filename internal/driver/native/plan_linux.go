package native

import (
	"crypto/rand"
	"encoding/hex"
	"math"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/policy"
)

// buildRoot is the directory over which the agent builds the root, in its own
// mount namespace. It must exist and be reachable for any user.
const buildRoot = "/tmp"

// hostname is that of every sandbox.
const hostname = "sandbar"

// agentTasks is more processes and threads than the agent has while it builds
// the sandbox. Afterwards it tells how many they are.
const agentTasks = 64

// hostLayout is what the root of the image "host" depends on.
type hostLayout struct {
	dirs  []policy.HostDir
	etc   []string
	extra []string
}

// readLayout looks at the host once; what is installed later in the same
// directories is seen all the same.
func readLayout(extra []string) (hostLayout, error) {
	l := hostLayout{extra: extra}
	for _, name := range policy.HostDirs() {
		link, err := os.Readlink(name)
		if err != nil {
			if info, err := os.Stat(name); err != nil || !info.IsDir() {
				continue
			}
		}
		l.dirs = append(l.dirs, policy.HostDir{Name: name, Link: link})
	}
	entries, err := os.ReadDir("/etc")
	if err != nil {
		return l, sandbar.Errorf(sandbar.Unsupported, "reading the host's /etc: %w", err)
	}
	for _, e := range entries {
		l.etc = append(l.etc, e.Name())
	}
	return l, nil
}

// plan computes all that the agent is to do. image is the sandbox's root, nil
// for the host's own programs.
func (d *Driver) plan(s sandbar.Spec, image *driver.Image) (*wire.Setup, error) {
	rlimits, err := policy.Rlimits(s.Limits, policy.RlimitOptions{
		Held: d.caps.Enforced, Ceiling: hardLimit,
	})
	if err != nil {
		return nil, err
	}
	setup := &wire.Setup{
		Hostname: hostname, Root: buildRoot, Sysctls: policy.Sysctls(), Rlimits: rlimits,
		Mark: uint32(policy.MarkLocks), Seccomp: d.filter, Programs: d.programs, Dir: sandbar.DefaultDir,
	}
	if image != nil {
		err = d.imageSetup(setup, image, s)
	} else {
		err = d.hostSetup(setup, s)
	}
	if err != nil {
		return nil, err
	}
	if d.caps.Enforced.Memory == sandbar.EnforcedWatchdog && s.Limits.Memory > 0 {
		setup.Watchdog = s.Limits.Memory
		setup.WatchDisks = policy.Writable()[:1] // all are parts of one
	}
	if s.Network == sandbar.NetworkOutbound {
		d.reachOut(setup)
	}
	if d.caps.Enforced.CPUShares == sandbar.EnforcedNice {
		setup.Nice = niceness(s.Limits.CPUShares)
	}
	return setup, nil
}

// hostSetup is the part of the plan that depends on the image, for "host".
func (d *Driver) hostSetup(setup *wire.Setup, s sandbar.Spec) error {
	root := policy.HostRootOptions{
		Dirs: d.host.dirs, Etc: d.host.etc, Extra: d.host.extra,
		Disk: s.Limits.Disk, Inodes: s.Limits.Inodes,
		UID: sandboxUID, GID: sandboxUID, Ranged: d.ids.ranged,
		Hostname: hostname, MachineID: machineID(),
	}
	mounts, err := policy.HostRoot(root)
	if err != nil {
		return err
	}
	setup.Mounts, setup.Landlock = mounts, policy.HostLandlock(root)
	setup.UID, setup.GID = sandboxUID, sandboxUID
	setup.Env = environment(s.Env)
	return nil
}

// grouped reports whether sandboxes have control groups here.
func (d *Driver) grouped() bool { return d.cgroups.Caps().Any() }

// groupLimits are the limits that a control group is to hold.
func (d *Driver) groupLimits(l sandbar.Limits) (g sandbar.Limits) {
	c := d.cgroups.Caps()
	for _, x := range []struct {
		by      sandbar.Enforcement
		from    int64
		to      *int64
		besides int64
	}{
		{c.Memory, l.Memory, &g.Memory, 0},
		{c.CPUShares, l.CPUShares, &g.CPUShares, 0},
		{c.PIDs, l.PIDs, &g.PIDs, agentTasks},
	} {
		if x.by != sandbar.EnforcedNone && x.from > 0 {
			*x.to = x.from + x.besides
		}
	}
	if c.CPUs != sandbar.EnforcedNone {
		g.CPUs = max(l.CPUs, 0)
	}
	return g
}

// environment is what every program in a sandbox starts from.
func environment(spec map[string]string) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + sandbar.DefaultDir, "USER=user", "LOGNAME=user", "SHELL=/bin/sh",
		"TMPDIR=/tmp", "LANG=C.UTF-8", "TERM=dumb",
	}
	for _, k := range sortedKeys(spec) {
		env = append(env, k+"="+spec[k])
	}
	return env
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// niceness turns a weight into the scheduler's terms, where each step is worth
// a quarter: half a share is 3.
func niceness(shares int64) uint8 {
	if shares <= 0 || shares >= 1024 {
		return 0
	}
	steps := math.Round(math.Log(1024/float64(shares)) / math.Log(1.25))
	return uint8(min(steps, 19))
}

// machineID is a fresh identity: no two sandboxes are the same machine.
func machineID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// hardLimit is the daemon's own hard limit, which nothing below it can exceed.
func hardLimit(resource uint32) uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(int(resource), &l) != nil {
		return policy.RlimitInfinity
	}
	return l.Max
}
