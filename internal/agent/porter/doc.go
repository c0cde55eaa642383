// Package porter is the program beside the agent in a pod of Kubernetes. It connects the daemon
// with the agent.
//
// Programs in a sandbox share the pod's network, and therefore could connect to whatever listens
// there, or answer in its place. So the daemon and the porter authenticate each other with TLS
// (keys of the daemon, in a Secret that only the porter's container mounts). The porter has another
// user, another file system and other processes than the programs.
//
// A porter waits for one agent on a port of the loopback interface and for one daemon on another,
// closes both listeners, and then copies bytes in both directions. It ends with either connection,
// and so does the agent. All of this happens before the first program runs. A UNIX socket in a
// volume of both containers would do, but not with gVisor, whose containers do not share sockets of
// volumes.
//
// The first line that the daemon reads has the pod's UID, since another pod may have got the pod's
// address, and the release of the kernel.
package porter

// Name is the program's name.
const Name = "sandbar-porter"

// Port is the TCP port on which a porter waits for the daemon, AgentPort the one on the loopback
// interface on which it waits for the agent.
const (
	Port      = 7473
	AgentPort = 7474
)

// Files in the porter's container.
const (
	// KeyDir has the files of the Secret: CertFile and KeyFile are the porter's, and PeerFile is the
	// daemon's certificate.
	KeyDir   = "/run/sandbar-keys"
	CertFile = "porter.crt"
	KeyFile  = "porter.key"
	PeerFile = "daemon.crt"
)

// ServerName is the name in the porter's certificate.
const ServerName = "porter.sandbar"

// UIDEnv is the environment variable with the pod's UID.
const UIDEnv = "POD_UID"

// The program's modes, its first argument.
const (
	// ModeServe connects a daemon with an agent.
	ModeServe = "serve"
	// ModeInstall copies the agent, which is beside the program, into the directory in the next
	// argument.
	ModeInstall = "install"
	// ModeRelay connects its input and output with the porter in the same container, for a daemon
	// that cannot reach the pod's address.
	ModeRelay = "relay"
	// ModeProbe tries to connect to each of the addresses in the other arguments, several times. If
	// none accepts, it exits with 0. Otherwise it prints Reached and one that does, and exits with
	// ExitReached.
	ModeProbe = "probe"
)

// Reached is the first word of ModeProbe's error output if an address could be reached.
const Reached = "reached"

// ExitReached is the exit code of ModeProbe if an address could be reached.
const ExitReached = 10

// Greeting is the line that a porter sends before the agent's frames, without its two last words,
// the pod's UID and the release of the kernel (uname(2)), and without the line's end.
const Greeting = "sandbar-porter 1 "

// MaxGreeting is more than the length of a greeting, in bytes.
const MaxGreeting = 160
