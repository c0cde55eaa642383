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

// specVersion is that of the runtime specification which the configuration keeps
// to: the oldest that all runtimes in use know.
const specVersion = "1.0.2"

// container is all that a configuration depends on.
type container struct {
	base     string // wire.Stage.Base
	image    bool   // the root is an image's
	guest    bool   // the runtime is a kernel of its own
	passes   bool   // descriptors pass
	agentUID uint32
	// confined: the agent becomes another user for programs.
	ranged  bool
	owner   string
	env     []string // the agent's own
	profile *policy.Profile
	hidden  []string // names in the host's /proc that programs do not see
}

// config computes the container's configuration. It is the whole of what the
// runtime is told, and depends on nothing else.
func (c container) config() ([]byte, error) {
	s := &specs.Spec{
		Version:  specVersion,
		Hostname: hostname,
		Root:     &specs.Root{Path: "rootfs"}, // what of it is read-only is so by its mounts
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
	if !c.guest { // a kernel in user space has no /proc of the host's to hide, and is its own filter
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

// seccomp puts a profile into the runtime specification's form, which is the
// same but for the types.
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

// process is the container's first program: the agent, by the descriptor of its
// program, with the connection as another.
func (c container) process() *specs.Process {
	mode := agent.ModeStream
	if c.passes {
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
	if c.agentUID != 0 { // whoever is not 0 keeps them over an exec only so
		p.Capabilities.Inheritable, p.Capabilities.Ambient = caps, caps
	}
	return p
}

// capabilities are those that the agent begins with, in the namespace of the
// runtime. It keeps what starting and signalling another user's programs needs,
// and these get none.
func (c container) capabilities() []string {
	caps := []string{}
	if c.ranged {
		caps = append(caps, "CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SETPCAP")
	}
	if c.ranged && !c.passes { // to give programs their pipes
		caps = append(caps, "CAP_CHOWN")
	}
	if c.guest { // to limit processes, and remove devices, in the kernel that is the sandbox's own
		caps = append(caps, "CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE")
	}
	return caps
}

// mounts are those that the runtime makes over the root. All else is there.
func (c container) mounts() []specs.Mount {
	proc := specs.Mount{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev", "ro"}}
	if !c.guest {
		if c.image {
			proc.Options = append(proc.Options, hidePIDs(c.agentUID)...)
		}
		return []specs.Mount{proc, {Destination: "/dev", Type: "bind", Source: c.base + c.top() + "/dev", Options: []string{"rbind"}}}
	}
	mounts := []specs.Mount{proc,
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "size=65536k", "mode=755"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
	}
	// Each by name: else the runtime would put a file system of its own there.
	for _, dir := range policy.Writable() {
		mounts = append(mounts, specs.Mount{Destination: dir, Type: "bind", Source: c.base + c.top() + dir, Options: []string{"bind", "rw", "nosuid", "nodev"}})
	}
	return mounts
}

// hidePIDs are options of proc that show programs only the processes they may
// trace, as in the native driver's sandboxes of images. The agent, whose group is
// another, sees all; a gid of 0 would be the programs' as well.
func hidePIDs(agentGID uint32) []string {
	options := []string{"hidepid=2"}
	if agentGID != 0 {
		options = append(options, "gid="+strconv.FormatUint(uint64(agentGID), 10))
	}
	return options
}

// top is where the container's root is, below base.
func (c container) top() string {
	if c.image {
		return wire.StageRoot + imageTop
	}
	return wire.StageRoot
}
