// Package guestplan is what the test helper qemu and the guest's init say to
// each other: a Plan, which lies as JSON in the guest's initial file system at
// PlanPath, and Messages, one JSON value a line, which come back over the
// virtual serial port Port.
package guestplan

import "time"

const (
	// PlanPath is where init finds its Plan.
	PlanPath = "/plan.json"
	// ModuleDir is where init finds the kernel modules.
	ModuleDir = "/modules"
	// Port is the name of the virtual serial port that carries Messages.
	Port = "org.sandbar.guest"
	// Beat is how often the guest sends a Message, whatever runs: an emulated
	// machine can stand still for good, and no timeout inside it says so.
	Beat = time.Second
)

// Plan is all that init does.
type Plan struct {
	// Modules are names of files in ModuleDir, without ".ko", in loading order.
	Modules []string
	// Cgroups says how the controllers are laid out.
	Cgroups Layout
	// Shares are mounted in order; Links are made before them.
	Shares []Share
	Links  []Link
	// Commands run one after another.
	Commands []Command
}

// Share is a directory of the host, seen read-only in the guest.
type Share struct {
	Tag string // the device's name
	Dir string // where it is mounted
}

// Link is a symbolic link in the guest's root directory.
type Link struct{ Name, Target string }

// Layout says how control groups are mounted at /sys/fs/cgroup.
type Layout string

// The layouts.
const (
	// V2 is the one version 2 hierarchy, as today's systemd mounts it.
	V2 Layout = "v2"
	// V1 is version 1 hierarchies, cpu and cpuacct together, as systemd's
	// "legacy" layout has them, and no version 2 hierarchy.
	V1 Layout = "v1"
)

// Command is one program to run in the guest.
type Command struct {
	// Args is the program, an absolute path, and its arguments.
	Args []string
	// Env is the whole environment; nil means PATH, HOME and TMPDIR only.
	Env []string
	// Dir is the working directory. Default: "/tmp".
	Dir string
	// UID and GID are whom it runs as. Default: root.
	UID, GID uint32
	// Cgroup is the version 2 group it starts in, such as
	// "/system.slice/x.service", made with every controller enabled above it.
	// Default: the root group.
	Cgroup string
	// Delegate gives Cgroup to UID, as systemd does for Delegate=yes: the
	// directory and the files that the kernel names as delegatable.
	Delegate bool
	// Timeout ends it, with everything in its process group. Default: one minute.
	Timeout time.Duration
}

// Message is a line from the guest.
type Message struct {
	// Command is the index of the command that this is about, -1 for none, as in
	// the Messages that only tell that the machine lives.
	Command int
	// Output is a piece of what the command wrote, both streams together.
	Output []byte `json:",omitempty"`
	// End is set once for each command, after its last Output.
	End *End `json:",omitempty"`
	// Done tells that every command was run; nothing follows.
	Done bool `json:",omitempty"`
}

// End says how a command ended.
type End struct {
	// ExitCode is the exit code, or -1 after a signal or when it never started.
	ExitCode int
	// Signal is the number of the signal that ended it, if one did.
	Signal int
	// TimedOut tells that its Timeout ended it.
	TimedOut bool
	// Err tells why it did not start.
	Err string
}
