package oci

import (
	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
	"github.com/sandbar-dev/sandbar/internal/linux/spawn"
)

const (
	// base is the directory on which the stage mounts its files, in its own mount namespace. It
	// must exist and every user must have search permission for it.
	base = "/tmp"
	// hostname is the host name of every sandbox.
	hostname = "sandbar"
	// imageTop is the path of the root in the tree of policy.ImageRoot.
	imageTop = "/root"

	// userUID is the uid of programs in sandboxes of the image "host" with a range of ids. In
	// others it is 0.
	userUID = 1000
	// agentUID is the uid of the agent if the uid of programs is 0.
	agentUID = 65533

	// runtimeTasks is an upper bound of the processes and threads of the runtime and the agent
	// while the sandbox is created. Afterwards the limit is set by their exact number.
	runtimeTasks = 512
)

// plan has the inputs of the stage and of the agent for one sandbox.
type plan struct {
	stage *wire.Stage
	setup *wire.Setup
}

// plan computes a plan. image is the sandbox's image, nil for "host".
func (d *Driver) plan(id sandbar.ID, s sandbar.Spec, image *driver.Image) (*plan, error) {
	uid := d.programUID(image)
	mounts, landlock, err := d.rootMounts(s, image, uid)
	if err != nil {
		return nil, err
	}
	c := container{
		base: base, image: image != nil, guestKernel: d.runtime.guestKernel(), passesFDs: d.runtime.passesFDs(),
		agentUID: d.agentUIDFor(uid), ranged: d.agentUIDFor(uid) != uid, owner: d.Owner, profile: d.profile, hidden: d.layout.Proc,
		env: append(spawn.AgentEnv(), "PATH=/usr/bin:/bin"),
	}
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	setup, err := d.setup(s, uid)
	if err != nil {
		return nil, err
	}
	setup.Landlock = landlock
	user, environment := "user", hostenv.HostEnvironment
	if uid == 0 {
		user = "root"
	}
	if image != nil {
		environment = hostenv.Environment
	}
	setup.Env = environment(user, s.Env)
	return &plan{
		stage: &wire.Stage{Base: base, Mounts: mounts, Config: config,
			Args: d.runtime.command(base, containerID(d.Owner, id)), Env: d.runtime.env(), Mitigate: d.Mitigate},
		setup: setup,
	}, nil
}

// programUID returns the uid and gid of programs, as seen in the sandbox.
func (d *Driver) programUID(image *driver.Image) uint32 {
	if image == nil && d.IDs.Ranged {
		return userUID
	}
	return 0
}

// agentUIDFor returns the agent's uid. It differs from programs, unless the sandbox has only one
// id.
func (d *Driver) agentUIDFor(programs uint32) uint32 {
	switch {
	case programs != 0:
		return 0
	case d.IDs.Ranged || d.runtime.guestKernel():
		return agentUID
	}
	return 0
}

// rootMounts computes the steps that build the container's root.
func (d *Driver) rootMounts(s sandbar.Spec, image *driver.Image, uid uint32) ([]wire.Mount, wire.Landlock, error) {
	without := policy.Proc
	if d.runtime.guestKernel() {
		without |= policy.Devices
	}
	if image != nil {
		o := policy.ImageRootOptions{Dir: image.Dir, Disk: s.Limits.Disk, Inodes: s.Limits.Inodes,
			Hostname: hostname, MachineID: hostenv.NewMachineID(), Omit: without}
		if d.IDs.Ranged {
			o.Dir = "" // the stage gets the image's mount as a descriptor, see spawn.Child.IDMappedMount
		}
		mounts, err := policy.ImageRoot(o)
		return mounts, policy.RootLandlock(), err
	}
	o := policy.HostRootOptions{
		Dirs: d.layout.Dirs, Etc: d.layout.Etc, Local: d.layout.Local, Extra: d.layout.Extra, Python: d.layout.Python, Disk: s.Limits.Disk, Inodes: s.Limits.Inodes,
		UID: uid, GID: uid, Ranged: d.IDs.Ranged, Hostname: hostname, MachineID: hostenv.NewMachineID(), Omit: without,
	}
	mounts, err := policy.HostRoot(o)
	return mounts, policy.RootLandlock(), err
}

// setup computes the agent's Setup without Landlock and Env.
func (d *Driver) setup(s sandbar.Spec, uid uint32) (*wire.Setup, error) {
	rlimits, err := policy.Rlimits(s.Limits, policy.RlimitOptions{
		Enforced: d.Facts.Enforced, Ceiling: hostenv.HardLimit, AgentThreads: runtimeTasks / 16,
	})
	if err != nil {
		return nil, err
	}
	setup := &wire.Setup{Prebuilt: true, Rlimits: rlimits, UID: uid, GID: uid, TagResource: uint32(d.tagResource),
		Seccomp: d.Filter, ProgramSeccomp: d.ProgramFilter, Dir: sandbar.DefaultDir, Mitigate: d.Mitigate}
	if d.runtime.guestKernel() {
		setup.Rlimits = policy.GVisorRlimits(rlimits)
		setup.PIDs = max(s.Limits.PIDs, 0)
		setup.Remove = guestDevices()
	}
	if d.Facts.Enforced.Memory == sandbar.EnforcedWatchdog && s.Limits.Memory > 0 {
		setup.Watchdog = s.Limits.Memory
		setup.WatchDisks = policy.Writable()[:1] // all writable directories are on one file system
		setup.WatchKernel = d.runtime.guestKernel()
	}
	if d.Facts.Enforced.CPUShares == sandbar.EnforcedNice {
		setup.Nice = hostenv.Niceness(s.Limits.CPUShares)
	}
	return setup, nil
}

// guestDevices returns paths that the agent removes on gVisor: FUSE and TUN devices, which gVisor
// creates by default. They belong to gVisor's kernel, not to the host's, and no program needs them.
func guestDevices() []string {
	return []string{"/dev/char/10:229", "/dev/fuse", "/dev/char/10:200", "/dev/net/tun", "/dev/net"}
}
