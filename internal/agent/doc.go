// Package agent is the half of Sandbar that lives inside a sandbox. It is PID 1
// there: it builds the sandbox from a plan the host computed, starts programs,
// reaps what is orphaned, does every file operation and dials ports — always
// inside the sandbox's own namespaces and, for files, as the sandbox's user.
// So a link that a program planted leads nowhere the program could not go
// itself, and the host never resolves a path the guest can write.
//
// What it promises:
//
//   - It holds no secrets and listens nowhere: it has one connection, inherited
//     from the host, and when that ends the agent ends, and with PID 1
//     everything in the sandbox.
//   - It cannot be read, traced or signalled to death from inside: it is not
//     dumpable, and its programs run under another uid where the user
//     namespace has more than one, and in another Landlock domain.
//   - It runs under the filter it gives its programs.
//   - It never steals an exit code: the one reaper looks an ended pid up under
//     the lock that a start holds.
//   - Where descriptors can be passed no byte of output goes through it.
//
// It is in every sandbox's memory, so it is small: the standard library
// (without net, fmt or encoding), x/sys and package wire.
package agent

import "os"

// Name is the agent's argv[0]; the host starts it under this name.
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

// SocketFD is the descriptor of the agent's one connection.
const SocketFD = 3

// IsAgent reports whether this process was started to be an agent: as Name, a
// mode, and optionally a word that tells whose it is. A binary that can also do
// other things asks before it does them.
func IsAgent() bool {
	return (len(os.Args) == 2 || len(os.Args) == 3) && os.Args[0] == Name &&
		(os.Args[1] == ModeSocket || os.Args[1] == ModeStream || os.Args[1] == ModeMachine)
}
