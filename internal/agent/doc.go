// Package agent is the half of Sandbar that runs inside a sandbox. The agent is PID 1 there. It
// builds the sandbox from the host's plan (wire.Setup), starts programs, reaps orphans, performs
// every file operation and dials ports. It does all of that in the sandbox's own namespaces, and
// file operations as the sandbox's user. A symbolic link that a program planted therefore leads
// only where the program itself can go, and the host never resolves a path that the guest can
// change.
//
// Invariants:
//
//   - The agent holds no secrets and listens on no socket. Its one connection exists before any
//     program starts. When the connection ends the agent exits, and the kernel kills every process
//     of the PID namespace (pid_namespaces(7)).
//   - No program can read, trace or kill the agent. The agent is not dumpable (PR_SET_DUMPABLE),
//     and programs run in another Landlock domain and, if the user namespace maps more than one
//     uid, as another user.
//   - The agent runs under the seccomp filter of its programs.
//   - No exit code is lost: the reaper looks up an exited pid under the lock that a start holds
//     from before the fork.
//   - If the connection can pass descriptors, no byte of output passes through the agent.
//
// In a container that a runtime made, the agent is the container's first program. It then builds
// nothing (wire.Setup.Prebuilt); the invariants are the same.
//
// The same program in another mode is the spawner: a child of the daemon that only starts agents.
//
// The agent's pages are part of the memory of every sandbox, so the program is small: the standard
// library without net, fmt and encoding, x/sys and package wire.
package agent

import (
	"os"
	"strconv"
	"strings"
)

// Name is the agent's argv[0], or the last element of its path. The host starts the agent under
// this name.
const Name = "sandbar-agent"

// ModeSocket makes the agent serve the inherited UNIX socket SocketFD, which can pass descriptors.
const ModeSocket = "socket"

// ModeStream makes the agent serve the inherited byte stream SocketFD, which cannot pass
// descriptors.
const ModeStream = "stream"

// ModeMachine is ModeStream for an agent in a virtual machine that is the sandbox, with the
// connection MachineSocketFD. The agent builds nothing. Of the first Setup it applies Env, Dir,
// Rlimits, Capabilities, ProgramSeccomp (whose tag is RLIMIT_LOCKS) and PIDs. A further Setup,
// after the machine was restored from a snapshot, changes Env, Rlimits and PIDs, and the bounds of
// each tmpfs that is in Mounts; it makes Interface, and reduces Capabilities.
const ModeMachine = "machine"

// ModeStdio makes the agent serve its standard input and output, for container runtimes that offer
// only stdio. No program inherits the two descriptors.
const ModeStdio = "stdio"

// ModeDial makes the agent connect to the TCP port on the loopback interface that the next argument
// names, where a relay listens (package porter). The relay may start later than the agent. It
// accepts one connection and then closes the listener. The agent is the first program with this
// interface besides the relay, so no other program can connect before it.
const ModeDial = "dial"

// ModeSpawner makes the program a spawner: it starts agents for the daemon at the other end of
// SocketFD. The next argument is the daemon's id, which its agents get as well.
const ModeSpawner = "spawner"

// ModeStage makes the program a stage: it builds a container's root and then executes the container
// runtime; see wire.Stage. Its connection, SocketFD, becomes the agent's.
const ModeStage = "stage"

// ModeMonitor makes the program build a sandbox, drop all rights and execute the monitor of a
// virtual machine in its own place; see wire.Monitor. Its connection, SocketFD, ends then.
const ModeMonitor = "monitor"

// ModeTemplate makes the program start an interpreter that the host later forks into sandboxes. The
// next argument is the daemon's id. The interpreter inherits descriptors 0 to 4. SocketFD is a
// SOCK_SEQPACKET: if the interpreter cannot be started, the program sends "launch", the step and
// the reason, separated by NULs. The program exits when the interpreter exits, and kills it on
// SIGTERM.
const ModeTemplate = "template"

// ModeSlot is a mode of wire.Spawn only: the spawner starts a slot (package slot) in place of an
// agent. Its descriptors are the slot's socket, its memory and, optionally, a version 2 cgroup.
const ModeSlot = "slot"

// Descriptors of ModeTemplate.
const (
	// PlanFD holds the encoded wire.Launch, NamespaceFD is the first of the namespaces to enter.
	PlanFD      = 5
	NamespaceFD = 6
)

// SocketFD is the descriptor of the connection, in every mode that inherits one.
const SocketFD = 3

// FDProgram is the prefix of argv[0] if a container runtime starts the agent by a descriptor of its
// executable, for which the runtime has no other name.
const FDProgram = "/proc/self/fd/"

// IsAgent reports whether this process was started as an agent or in one of the other modes: with
// Name as argv[0], a mode with its arguments, and optionally the daemon's id. A binary with other
// functions must ask before it does anything else.
func IsAgent() bool {
	_, _, ok := parseArgs(os.Args)
	return ok
}

// parseArgs splits the arguments. port is that of ModeDial.
func parseArgs(args []string) (mode string, port uint16, ok bool) {
	if len(args) < 2 || args[0][strings.LastIndexByte(args[0], '/')+1:] != Name && !strings.HasPrefix(args[0], FDProgram) {
		return "", 0, false
	}
	mode, rest := args[1], args[2:]
	switch mode {
	case ModeSocket, ModeStream, ModeMachine, ModeStdio, ModeStage, ModeMonitor:
	case ModeSpawner, ModeTemplate:
		if len(rest) != 1 {
			return "", 0, false
		}
	case ModeDial:
		if len(rest) == 0 {
			return "", 0, false
		}
		n, err := strconv.ParseUint(rest[0], 10, 16)
		if err != nil || n == 0 {
			return "", 0, false
		}
		port, rest = uint16(n), rest[1:]
	default:
		return "", 0, false
	}
	return mode, port, len(rest) <= 1
}
