package oci

import (
	"encoding/json"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

// specVersion is the version of the OCI runtime specification that the configuration conforms to.
// All supported runtimes accept it.
const specVersion = "1.0.2"

// container has the parameters of a configuration.
type container struct {
	base        string // wire.Stage.Base
	image       bool   // the root is an image
	guestKernel bool   // the runtime has its own kernel (gVisor)
	passesFDs   bool   // descriptors can be passed into the container
	agentUID    uint32
	ranged      bool     // programs have another uid than the agent
	owner       string   // id of the daemon
	env         []string // environment of the agent
	profile     *policy.Profile
	hidden      []string // names in the host's /proc that programs do not see
}

// config computes the container's configuration (config.json). It is the only input of the runtime
// besides its arguments.
func (c container) config() ([]byte, error) {
	s := &specs.Spec{
		Version:  specVersion,
		Hostname: hostname,
		Root:     &specs.Root{Path: "rootfs"}, // not Readonly: the mounts in it have their own flags
		Process:  c.process(),
		Mounts:   c.mounts(),
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.NetworkNamespace},
				{Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
			},
		},
	}
	if c.image {
		s.Root.Path = "rootfs" + imageTop
	}
	if !c.guestKernel { // gVisor has its own /proc, and its kernel handles the programs' system calls
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.CgroupNamespace})
		s.Linux.MaskedPaths = policy.ProcMasks(c.hidden...)
		s.Linux.ReadonlyPaths = policy.ProcReadOnly()
		profile, err := seccomp(c.profile)
		if err != nil {
			return nil, err
		}
		s.Linux.Seccomp = profile
	}
	b, err := json.Marshal(s)
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "writing the container's configuration: %w", err)
	}
	return b, nil
}

// seccomp converts a profile to the types of the runtime specification. Their JSON is the same.
func seccomp(p *policy.Profile) (*specs.LinuxSeccomp, error) {
	if p == nil {
		return nil, nil
	}
	b, err := json.Marshal(p)
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "writing the filter of system calls: %w", err)
	}
	s := new(specs.LinuxSeccomp)
	if err := json.Unmarshal(b, s); err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "reading the filter of system calls: %w", err)
	}
	return s, nil
}

// process returns the container's first process: the agent. Its program and its connection are
// inherited descriptors.
func (c container) process() *specs.Process {
	mode := agent.ModeStream
	if c.passesFDs {
		mode = agent.ModeSocket
	}
	p := &specs.Process{
		User:            specs.User{UID: c.agentUID, GID: c.agentUID},
		Args:            []string{agent.FDProgram + strconv.Itoa(wire.StageAgentFD), mode, c.owner},
		Env:             c.env,
		Cwd:             "/",
		NoNewPrivileges: true,
		Capabilities:    &specs.LinuxCapabilities{},
	}
	caps := c.capabilities()
	p.Capabilities.Bounding, p.Capabilities.Effective, p.Capabilities.Permitted = caps, caps, caps
	if c.agentUID != 0 { // for another uid than 0 only these stay at execve(2), see capabilities(7)
		p.Capabilities.Inheritable, p.Capabilities.Ambient = caps, caps
	}
	return p
}

// capabilities returns the agent's initial capabilities, in the user namespace of the runtime.
// Programs have none.
func (c container) capabilities() []string {
	caps := []string{}
	if c.ranged {
		caps = append(caps, "CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SETPCAP")
	}
	if c.ranged && !c.passesFDs { // the agent creates the programs' pipes and changes their owner
		caps = append(caps, "CAP_CHOWN")
	}
	if c.guestKernel { // the agent limits processes and removes devices in gVisor's kernel
		caps = append(caps, "CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE")
	}
	return caps
}

// mounts returns the mounts that the runtime adds to the root that the stage has built.
func (c container) mounts() []specs.Mount {
	proc := specs.Mount{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev", "ro"}}
	if !c.guestKernel {
		if c.image {
			proc.Options = append(proc.Options, hidePIDs(c.agentUID)...)
		}
		return []specs.Mount{proc, {Destination: "/dev", Type: "bind", Source: c.base + c.rootDir() + "/dev", Options: []string{"rbind"}}}
	}
	mounts := []specs.Mount{proc,
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "size=65536k", "mode=755"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
	}
	// Without these mounts runsc mounts its own file systems on writable directories.
	for _, dir := range policy.Writable() {
		mounts = append(mounts, specs.Mount{Destination: dir, Type: "bind", Source: c.base + c.rootDir() + dir, Options: []string{"bind", "rw", "nosuid", "nodev"}})
	}
	return mounts
}

// hidePIDs returns mount options of proc (proc(5)) by which programs see only the processes that
// they may trace. The group agentGID sees all. 0 exempts no group, because it is also the
// programs'.
func hidePIDs(agentGID uint32) []string {
	options := []string{"hidepid=2"}
	if agentGID != 0 {
		options = append(options, "gid="+strconv.FormatUint(uint64(agentGID), 10))
	}
	return options
}

// rootDir returns the path of the container's root, relative to base.
func (c container) rootDir() string {
	if c.image {
		return wire.StageRoot + imageTop
	}
	return wire.StageRoot
}
