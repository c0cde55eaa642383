// Package guestplan is the protocol between the test helper qemu and the guest's init: a
// Plan, as JSON at PlanPath in the guest's initial file system, and Messages, one JSON
// value per line, which the guest sends over the virtual serial port Port.
package guestplan

import "time"

const (
	// PlanPath is where init finds its Plan.
	PlanPath = "/plan.json"
	// ModuleDir is where init finds the kernel modules.
	ModuleDir = "/modules"
	// Port is the name of the virtual serial port that carries Messages.
	Port = "org.sandbar.guest"
	// Beat is the interval of the guest's heartbeat Messages, which detect a hung machine.
	Beat = time.Second
)

// Plan is the work of init.
type Plan struct {
	// Modules are names of files in ModuleDir, without ".ko", in loading order.
	Modules []string
	// Cgroups is the layout of the cgroup controllers.
	Cgroups Layout
	// Shares are mounted in order; Links are made before them.
	Shares []Share
	Links  []Link
	// Commands run one after another.
	Commands []Command
}

// Share is a directory of the host, mounted read-only in the guest.
type Share struct {
	Tag string // the device's name
	Dir string // the mount point
}

// Link is a symbolic link in the guest's root directory.
type Link struct{ Name, Target string }

// Layout is how cgroups are mounted at /sys/fs/cgroup.
type Layout string

// The layouts.
const (
	// V2 is the version 2 hierarchy alone, systemd's "unified" layout.
	V2 Layout = "v2"
	// V1 is version 1 hierarchies alone, with cpu and cpuacct together, systemd's "legacy" layout.
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
	// UID and GID are the ids that it runs with. Default: root.
	UID, GID uint32
	// Cgroup is the version 2 cgroup that it starts in, such as "/system.slice/x.service".
	// Init creates it and enables every controller above it. Default: the root cgroup.
	Cgroup string
	// Delegate gives Cgroup to UID, like systemd's Delegate=yes: the directory and the files
	// listed in /sys/kernel/cgroup/delegate.
	Delegate bool
	// Timeout is the time after which init kills its process group. Default: one minute.
	Timeout time.Duration
}

// Message is a line from the guest.
type Message struct {
	// Command is the index of the command that the Message is about, -1 for a heartbeat.
	Command int
	// Output is a piece of the command's stdout and stderr together.
	Output []byte `json:",omitempty"`
	// End is set once for each command, after its last Output.
	End *End `json:",omitempty"`
	// Done is set in the last Message, after all commands.
	Done bool `json:",omitempty"`
}

// End is how a command ended.
type End struct {
	// ExitCode is the exit code, or -1 after a signal or when it never started.
	ExitCode int
	// Signal is the number of the signal that ended it, if one did.
	Signal int
	// TimedOut is set if init killed the command at its Timeout.
	TimedOut bool
	// Err is the reason why it did not start.
	Err string
}
