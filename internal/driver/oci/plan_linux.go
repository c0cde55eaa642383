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
	// base is the directory over which the stage keeps its files, in its own
	// mount namespace. It must exist and be reachable for any user.
	base = "/tmp"
	// hostname is that of every sandbox.
	hostname = "sandbar"
	// imageTop is where policy.ImageRoot has the root in the tree that it builds.
	imageTop = "/root"

	// userUID is the user of programs on the host's own programs, where there is
	// a range of ids. In an image, and without a range, it is 0.
	userUID = 1000
	// agentUID is the agent's where programs are 0.
	agentUID = 65533

	// runtimeTasks is more processes and threads than the runtime and the agent
	// have while the sandbox is made. Afterwards the group tells how many they
	// are; a runtime that only waits needs no more.
	runtimeTasks = 512
)

// plan is all that a sandbox is made from.
type plan struct {
	stage *wire.Stage
	setup *wire.Setup
}

// plan computes it. image is the sandbox's root, nil for the host's own programs.
func (d *Driver) plan(id sandbar.ID, s sandbar.Spec, image *driver.Image) (*plan, error) {
	uid := d.programs(image)
	mounts, landlock, err := d.root(s, image, uid)
	if err != nil {
		return nil, err
	}
	c := container{
		base: base, image: image != nil, guest: d.runtime.guestKernel(), passes: d.runtime.passes(),
		agentUID: d.agent(uid), ranged: d.agent(uid) != uid, owner: d.Owner, profile: d.profile, hidden: d.layout.Proc,
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

// programs is the user, and the group, of programs as they see it.
func (d *Driver) programs(image *driver.Image) uint32 {
	if image == nil && d.IDs.Ranged {
		return userUID
	}
	return 0
}

// agent is the agent's user. It is another than its programs' but where there is
// one id and no kernel that could have more.
func (d *Driver) agent(programs uint32) uint32 {
	switch {
	case programs != 0:
		return 0
	case d.IDs.Ranged || d.runtime.guestKernel():
		return agentUID
	}
	return 0
}

// root computes the steps that build the container's root.
func (d *Driver) root(s sandbar.Spec, image *driver.Image, uid uint32) ([]wire.Mount, wire.Landlock, error) {
	without := policy.Proc
	if d.runtime.guestKernel() {
		without |= policy.Devices
	}
	if image != nil {
		o := policy.ImageRootOptions{Dir: image.Dir, Disk: s.Limits.Disk, Inodes: s.Limits.Inodes,
			Hostname: hostname, MachineID: hostenv.NewMachineID(), Omit: without}
		if d.IDs.Ranged {
			o.Dir = "" // it is passed, see spawn.Child.Show
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

// setup computes what the agent is to do, but for Landlock and the environment.
func (d *Driver) setup(s sandbar.Spec, uid uint32) (*wire.Setup, error) {
	rlimits, err := policy.Rlimits(s.Limits, policy.RlimitOptions{
		Enforced: d.Facts.Enforced, Ceiling: hostenv.HardLimit, AgentThreads: runtimeTasks / 16,
	})
	if err != nil {
		return nil, err
	}
	setup := &wire.Setup{Prebuilt: true, Rlimits: rlimits, UID: uid, GID: uid, TagResource: uint32(d.mark),
		Seccomp: d.Filter, ProgramSeccomp: d.ProgramFilter, Dir: sandbar.DefaultDir, Mitigate: d.Mitigate}
	if d.runtime.guestKernel() {
		setup.Rlimits = guestRlimits(rlimits)
		setup.PIDs = max(s.Limits.PIDs, 0)
		setup.Remove = guestDevices()
	}
	if d.Facts.Enforced.Memory == sandbar.EnforcedWatchdog && s.Limits.Memory > 0 {
		setup.Watchdog = s.Limits.Memory
		setup.WatchDisks = policy.Writable()[:1] // all are parts of one
		setup.WatchKernel = d.runtime.guestKernel()
	}
	if d.Facts.Enforced.CPUShares == sandbar.EnforcedNice {
		setup.Nice = hostenv.Niceness(s.Limits.CPUShares)
	}
	return setup, nil
}

// guestDevices are devices that gVisor's kernel has without being asked. They are
// its own and none of the host's, and no program needs them.
func guestDevices() []string {
	return []string{"/dev/char/10:229", "/dev/fuse", "/dev/char/10:200", "/dev/net/tun", "/dev/net"}
}

// guestRlimits are those of the limits that gVisor's kernel holds. The others
// bound what it does not have, or what it holds lower of itself.
func guestRlimits(all []wire.Rlimit) (out []wire.Rlimit) {
	const data, stack, core, nofile = 2, 3, 4, 7
	for _, l := range all {
		switch l.Resource {
		case data, stack, core, nofile:
			out = append(out, l)
		}
	}
	return out
}
