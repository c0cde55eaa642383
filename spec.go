package sandbar

import (
	"strings"
	"time"
)

// Unlimited asks for no limit. It is accepted only where the operator's
// configuration allows an unlimited value.
const Unlimited = -1

// ImageHost names the image made of the host's own programs: its /usr, /bin,
// /lib* and a chosen few files of /etc, read-only.
const ImageHost = "host"

// Spec says what a sandbox is made from. The zero value is a sandbox with the
// operator's defaults. The engine resolves every unset field before a driver
// sees the Spec.
type Spec struct {
	// Image is the root file system. Default: ImageHost.
	Image string
	// Driver is the name of the driver that makes the sandbox, if the operator
	// lets callers choose. Default: the operator's own choice. Any other name is
	// Unsupported: a sandbox is never made by another driver than was named.
	Driver string
	// Limits bound the sandbox as a whole. A zero field is the operator's default.
	Limits Limits
	// Env is added to the environment of every program in the sandbox.
	Env map[string]string
	// Network is what the sandbox can reach. Default: NetworkNone.
	Network Network
	// Name is a person's name for the sandbox, and need not be the only one of its
	// kind. Sandbar only stores and lists it.
	Name string
	// Labels are the caller's own notes; Sandbar only stores and lists them.
	Labels map[string]string
	// IdleTimeout is how long a long-lived sandbox may be without work before it
	// is removed. Default: the operator's; negative: for ever.
	IdleTimeout time.Duration
	// AllowDegraded accepts a host that cannot enforce a limit. The result's
	// Enforcements say which. Without it such a Spec is refused (Unsupported).
	AllowDegraded bool
	// Client is who asks, for fair shares and the operator's limits. Protocols set
	// it to what the listener knows.
	Client Client
	// Cold asks for a sandbox made for this caller alone from the start, and in an
	// execution for an interpreter that starts for it, where the operator keeps
	// some ready. It costs time and buys what SECURITY.md says of forks.
	Cold bool
}

// Client is whose work something is. Nothing of it is secret. The zero value is
// nobody in particular.
type Client struct {
	// Name is what the operator calls the client's token; "" for the daemon's own.
	Name string
	// Flow tells apart what one client does at once, such as its connections.
	// Where work must wait, those of a client take turns.
	Flow string
}

// Network says what a sandbox can reach.
type Network string

// The networks.
const (
	// NetworkNone is a private loopback and nothing else.
	NetworkNone Network = "none"
	// NetworkOutbound adds outbound TCP, UDP and DNS through the daemon's
	// user-space stack, within the operator's rules. Nothing comes in.
	NetworkOutbound Network = "outbound"
)

// Limits bound what a sandbox or an execution may use. Zero means "the
// operator's default"; Unlimited (-1) asks for no bound.
type Limits struct {
	// Memory is in bytes and covers everything the programs of a sandbox hold
	// together, swap and files in memory included. Swap adds nothing to it.
	Memory int64
	// CPUs is the most processor time used per second of wall clock: 0.5 is
	// half a core, 2 is two cores.
	CPUs float64
	// CPUShares is the weight against other sandboxes when the processors are
	// busy. 1024 is one normal share.
	CPUShares int64
	// PIDs is how many processes and threads may exist in the sandbox at once.
	PIDs int64
	// Disk is in bytes and bounds all that the sandbox can write, over all its
	// writable directories together.
	Disk int64
	// Inodes is how many files, directories and links the sandbox can make.
	Inodes int64
	// Files is how many descriptors one process may hold open.
	Files int64

	// Timeout is the wall clock one execution may take. The engine enforces it.
	Timeout time.Duration
	// Output is in bytes, stdout and stderr together, per execution. The engine
	// enforces it, exactly: the bytes up to it are delivered, none after.
	Output int64
}

// Enforcement tells by what means a limit is held.
type Enforcement string

// The means, strongest first.
const (
	EnforcedCgroup2  Enforcement = "cgroup2"  // the kernel, for the sandbox as a whole
	EnforcedCgroup1  Enforcement = "cgroup1"  // the kernel, for the sandbox as a whole
	EnforcedMount    Enforcement = "mount"    // the kernel, as the size of a file system
	EnforcedRlimit   Enforcement = "rlimit"   // the kernel, per process or per user namespace
	EnforcedNice     Enforcement = "nice"     // the scheduler, per process rather than per sandbox
	EnforcedRuntime  Enforcement = "runtime"  // what programs run on in place of the host's kernel: Sandbar itself, or gVisor; as exact as a kernel
	EnforcedWatchdog Enforcement = "watchdog" // Sandbar looks every few milliseconds; a burst can overshoot
	EnforcedNone     Enforcement = "none"     // not held: a Spec that sets it is refused
)

// Enforcements tells for each limit that a driver owns how it is held.
type Enforcements struct {
	Memory    Enforcement `json:"memory"`
	CPUs      Enforcement `json:"cpus"`
	CPUShares Enforcement `json:"cpu_shares"`
	PIDs      Enforcement `json:"pids"`
	Disk      Enforcement `json:"disk"`
	Inodes    Enforcement `json:"inodes"`
	Files     Enforcement `json:"files"`
}

// Cmd is one program to start in a sandbox.
type Cmd struct {
	// Args is the program and its arguments. Args[0] is looked up in the
	// sandbox's own PATH when it has no slash. Never empty.
	Args []string
	// Env overrides and extends the sandbox's environment.
	Env map[string]string
	// Dir is the working directory, inside the sandbox. Default: DefaultDir.
	// A relative Dir is taken from DefaultDir.
	Dir string
}

// DefaultDir is the working directory and HOME of programs in a sandbox; it is
// private to the sandbox and writable. Relative paths of FS start here.
const DefaultDir = "/home/user"

// Job is one execution from nothing to nothing: a fresh sandbox is made, one
// program runs in it, and the sandbox is destroyed. Either Language and Code,
// or Cmd, say what runs; not both.
type Job struct {
	Spec Spec
	// Language names an entry of the language catalogue, such as "python".
	Language string
	// Code is the source text run by Language's interpreter.
	Code string
	// Args are given to the program after its own name, when Language is set.
	Args []string
	// Cmd is the program to run when Language is empty.
	Cmd Cmd
	// Stdin is what the program reads. The engine calls it for a reader only
	// when the program starts; nil means an empty input.
	Stdin Input
	// Unrecorded keeps code and output out of what the operator has kept of
	// executions (the setting code.store).
	Unrecorded bool
}

// CheckEnv returns an Invalid error, with the Field "env", if env holds a name or a value that
// execve(2) cannot pass on: an empty name, a name with "=", or a NUL byte. The engine checks every
// environment with it; a driver checks what its own callers pass, since it also works alone.
func CheckEnv(env map[string]string) error {
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return &Error{Code: Invalid, Field: "env",
				Message: "environment variable " + Quote(k, 40) + ": a name is not empty and has no \"=\", and neither name nor value has a NUL"}
		}
	}
	return nil
}
