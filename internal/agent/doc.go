// Package agent is the half of Sandbar that lives inside a sandbox. It is PID 1
// there: it builds the sandbox from a plan the host computed, starts programs,
// reaps what is orphaned, does every file operation and dials ports — always
// inside the sandbox's own namespaces and, for files, as the sandbox's user.
// So a link that a program planted leads nowhere the program could not go
// itself, and the host never resolves a path the guest can write.
//
// What it promises:
//
//   - It holds no secrets and listens nowhere: it has one connection, which is
//     there before any program is, and when that ends the agent ends, and with
//     PID 1 everything in the sandbox.
//   - It cannot be read, traced or signalled to death from inside: it is not
//     dumpable, and its programs run under another uid where the user
//     namespace has more than one, and in another Landlock domain.
//   - It runs under the filter it gives its programs.
//   - It never steals an exit code: the one reaper looks an ended pid up under
//     the lock that a start holds.
//   - Where descriptors can be passed no byte of output goes through it.
//
// Where somebody else made the sandbox, a container runtime for one, the agent
// is that container's first program: it builds nothing (wire.Setup, Made) and
// promises the same.
//
// The same program in another mode is the spawner: a child of the daemon that
// starts agents and does nothing else.
//
// It is in every sandbox's memory, so it is small: the standard library
// (without net, fmt or encoding), x/sys and package wire.
package agent

import (
	"os"
	"strings"
)

// Name is the agent's argv[0], or the last part of it; the host starts it under
// this name.
const Name = "sandbar-agent"

// ModeSocket is the argument that tells the agent to serve the unix socket it
// inherited as descriptor SocketFD, over which descriptors can be passed.
const ModeSocket = "socket"

// ModeStream is the argument that tells the agent to serve the byte stream it
// inherited as descriptor SocketFD; descriptors cannot be passed.
const ModeStream = "stream"

// ModeMachine is as ModeStream, for a machine that is the sandbox as a whole:
// nothing is built, programs have all that the machine has, and of a Setup only
// Env, Dir and Rlimits count.
const ModeMachine = "machine"

// ModeStdio is the argument that tells the agent to serve its standard input
// and output, for who can hand a container nothing else. No program gets them.
const ModeStdio = "stdio"

// ModeDial is the argument that tells the agent to connect to the unix socket
// whose path is the next argument, over which descriptors can be passed. The
// host listens there and accepts once: who connects later finds nobody, and who
// could be earlier than a container's first program is not in it.
const ModeDial = "dial"

// ModeSpawner is the argument that makes the program a spawner, which starts
// agents for the daemon whose connection is descriptor SocketFD. The word that
// tells whose it is follows, and its agents get it as well.
const ModeSpawner = "spawner"

// ModeStage is the argument that makes the program a stage, which builds a
// container's root and becomes the container runtime; see wire.Stage. Its
// connection, descriptor SocketFD, is the agent's then.
const ModeStage = "stage"

// ModeTemplate is the argument that has the program start an interpreter that will
// be copied into sandboxes. The word that tells whose it is follows. Descriptors 0 to
// 4 are the interpreter's; where it cannot be started, "launch", the step and the
// reason, with NULs between them, go to descriptor SocketFD, which is a
// SOCK_SEQPACKET then. It ends with the interpreter, and ends that on SIGTERM.
const ModeTemplate = "template"

// Descriptors of ModeTemplate: the wire.Launch, and the namespaces to enter.
const (
	PlanFD      = 5
	NamespaceFD = 6
)

// SocketFD is the descriptor of the agent's one connection, where it inherits
// one.
const SocketFD = 3

// FDProgram is the beginning of argv[0] of an agent that a container runtime
// starts by the descriptor of its program: the runtime has no other name for it.
const FDProgram = "/proc/self/fd/"

// IsAgent reports whether this process was started to be an agent, or to start
// agents: as Name, a mode with what belongs to it, and optionally a word that
// tells whose it is. A binary that can also do other things asks before it does
// them.
func IsAgent() bool {
	_, _, ok := parseArgs(os.Args)
	return ok
}

// parseArgs takes the agent's arguments apart. path is ModeDial's.
func parseArgs(args []string) (mode, path string, ok bool) {
	if len(args) < 2 || args[0][strings.LastIndexByte(args[0], '/')+1:] != Name && !strings.HasPrefix(args[0], FDProgram) {
		return "", "", false
	}
	mode, rest := args[1], args[2:]
	switch mode {
	case ModeSocket, ModeStream, ModeMachine, ModeStdio, ModeStage:
	case ModeSpawner, ModeTemplate:
		if len(rest) != 1 {
			return "", "", false
		}
	case ModeDial:
		if len(rest) == 0 || rest[0] == "" {
			return "", "", false
		}
		path, rest = rest[0], rest[1:]
	default:
		return "", "", false
	}
	return mode, path, len(rest) <= 1
}
