package native

import (
	"os"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

// buildRoot is the directory on which the agent mounts the new root, in its own mount namespace. It
// must exist and every user must have search permission for it.
const buildRoot = "/tmp"

// sandboxUID is the uid and gid of programs in a sandbox of the image "host".
const sandboxUID = 1000

// hostname is the host name of every sandbox.
const hostname = "sandbar"

// agentTasks is an upper bound of the agent's processes and threads while it builds the sandbox.
// Afterwards the agent reports their exact number.
const agentTasks = 64

// plan computes the agent's Setup. image is the sandbox's image, nil for "host".
func (d *Driver) plan(s sandbar.Spec, image *driver.Image, files policy.Files) (*wire.Setup, error) {
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
		err = d.imageSetup(setup, image, s, files)
	} else {
		err = d.hostSetup(setup, s, files)
	}
	if err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 && !d.IDs.Ranged {
		hideFromRoot(setup.Mounts)
	}
	if d.Facts.Enforced.Memory == sandbar.EnforcedWatchdog && s.Limits.Memory > 0 {
		setup.Watchdog = s.Limits.Memory
		setup.WatchDisks = policy.Writable()[:1] // all writable directories are on one file system
	}
	if s.Network == sandbar.NetworkOutbound {
		d.addNetwork(setup)
	}
	if d.Facts.Enforced.CPUShares == sandbar.EnforcedNice {
		setup.Nice = hostenv.Niceness(s.Limits.CPUShares)
	}
	return setup, nil
}

// hideFromRoot mounts proc with hidepid=4, so that programs see only processes that they may trace.
// It is for programs that have uid 0 like the daemon. For these hidepid=1 is not enough: root owns
// the /proc entries of processes that are not dumpable, such as the agent, and hidepid=1 exempts
// root's group (proc(5)). hidepid=4 has no exemption.
func hideFromRoot(mounts []wire.Mount) {
	for i := range mounts {
		if mounts[i].Kind == wire.MountProc {
			mounts[i].Source = "hidepid=4"
		}
	}
}

// hostSetup sets the mounts, ids and environment of a plan for a sandbox of the image "host".
func (d *Driver) hostSetup(setup *wire.Setup, s sandbar.Spec, files policy.Files) error {
	root := policy.HostRootOptions{
		Dirs: d.layout.Dirs, Etc: d.layout.Etc, Local: d.layout.Local, Extra: d.layout.Extra, Python: d.layout.Python,
		Disk: s.Limits.Disk, Inodes: s.Limits.Inodes,
		UID: sandboxUID, GID: sandboxUID, Ranged: d.IDs.Ranged,
		Hostname: hostname, MachineID: hostenv.NewMachineID(), BootID: hostenv.NewBootID(),
		Files: files,
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
