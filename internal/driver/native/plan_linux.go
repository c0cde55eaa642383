package native

import (
	"os"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

// buildRoot is the directory over which the agent builds the root, in its own
// mount namespace. It must exist and be reachable for any user.
const buildRoot = "/tmp"

// sandboxUID is the user, and the group, of programs inside a sandbox.
const sandboxUID = 1000

// hostname is that of every sandbox.
const hostname = "sandbar"

// agentTasks is more processes and threads than the agent has while it builds
// the sandbox. Afterwards it tells how many they are.
const agentTasks = 64

// plan computes all that the agent is to do. image is the sandbox's root, nil
// for the host's own programs.
func (d *Driver) plan(s sandbar.Spec, image *driver.Image) (*wire.Setup, error) {
	rlimits, err := policy.Rlimits(s.Limits, policy.RlimitOptions{
		Enforced: d.Facts.Enforced, Ceiling: hostenv.HardLimit,
	})
	if err != nil {
		return nil, err
	}
	setup := &wire.Setup{
		Hostname: hostname, Root: buildRoot, Sysctls: policy.Sysctls(), Rlimits: rlimits,
		TagResource: uint32(policy.TagLocks), Seccomp: d.Filter, ProgramSeccomp: d.ProgramFilter, Dir: sandbar.DefaultDir, Mitigate: d.Mitigate,
	}
	if image != nil {
		err = d.imageSetup(setup, image, s)
	} else {
		err = d.hostSetup(setup, s)
	}
	if err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 && !d.IDs.Ranged {
		hideFromRoot(setup.Mounts)
	}
	if d.Facts.Enforced.Memory == sandbar.EnforcedWatchdog && s.Limits.Memory > 0 {
		setup.Watchdog = s.Limits.Memory
		setup.WatchDisks = policy.Writable()[:1] // all are parts of one
	}
	if s.Network == sandbar.NetworkOutbound {
		d.reachOut(setup)
	}
	if d.Facts.Enforced.CPUShares == sandbar.EnforcedNice {
		setup.Nice = hostenv.Niceness(s.Limits.CPUShares)
	}
	return setup, nil
}

// hideFromRoot has proc show programs only the processes that they may trace. Where
// programs share uid 0 with the daemon, the kernel gives them the entries of processes
// that are not dumpable, the agent among them, and hidepid=1 exempts their group
// (proc(5)); hidepid=4 exempts nobody.
func hideFromRoot(mounts []wire.Mount) {
	for i := range mounts {
		if mounts[i].Kind == wire.MountProc {
			mounts[i].Source = "hidepid=4"
		}
	}
}

// hostSetup is the part of the plan that depends on the image, for "host".
func (d *Driver) hostSetup(setup *wire.Setup, s sandbar.Spec) error {
	root := policy.HostRootOptions{
		Dirs: d.layout.Dirs, Etc: d.layout.Etc, Local: d.layout.Local, Extra: d.layout.Extra, Python: d.layout.Python,
		Disk: s.Limits.Disk, Inodes: s.Limits.Inodes,
		UID: sandboxUID, GID: sandboxUID, Ranged: d.IDs.Ranged,
		Hostname: hostname, MachineID: hostenv.NewMachineID(), BootID: hostenv.NewBootID(),
	}
	mounts, err := policy.HostRoot(root)
	if err != nil {
		return err
	}
	setup.Mounts, setup.Landlock = mounts, policy.RootLandlock()
	setup.UID, setup.GID = sandboxUID, sandboxUID
	setup.Env = hostenv.HostEnvironment("user", s.Env)
	return nil
}
