package sandbar

import (
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Unlimited requests no limit. It is accepted only if the operator's configuration allows it.
const Unlimited = -1

// ImageHost is the name of the image that consists of the host's own programs: its /usr, /bin,
// /lib* and selected files of /etc, read-only.
const ImageHost = "host"

// Spec describes a sandbox. The zero value is a sandbox with the operator's defaults. The engine
// fills every unset field before a driver gets the Spec.
type Spec struct {
	// Image is the name of the root file system. Default: ImageHost.
	Image string
	// Driver is the name of the driver that makes the sandbox, one that the operator allows.
	// Default: the operator's choice. Unsupported: any other name. Sandbar never falls back to
	// another driver.
	Driver string
	// Limits apply to the sandbox as a whole. A zero field is the operator's default.
	Limits Limits
	// Env is added to the environment of every program in the sandbox.
	Env map[string]string
	// Network selects the sandbox's network. Default: NetworkNone.
	Network Network
	// Egress denies destinations of NetworkOutbound, besides those that the operator denies. Default:
	// none. Unsupported: the driver cannot enforce it.
	Egress *Egress
	// Name is a label for people. It need not be unique. Sandbar only stores and lists it.
	Name string
	// Labels are the caller's own key-value pairs. Sandbar only stores and lists them.
	Labels map[string]string
	// IdleTimeout is the time without activity after which a long-lived sandbox is removed.
	// Default: the operator's. Negative: never.
	IdleTimeout time.Duration
	// AllowDegraded accepts limits that this host cannot enforce; Result.Enforced names these
	// limits. Without it such a Spec is Unsupported.
	AllowDegraded bool
	// Client identifies the caller, for fair queueing and for limits per client. Protocols set it
	// from the authenticated connection.
	Client Client
	// Cold requests a new sandbox instead of a prestarted one, and an interpreter that starts for
	// this program. It takes longer. Forks of one template share their address layout
	// (SECURITY.md); a cold start avoids that.
	Cold bool
}

// Client identifies a caller. Its fields are not secret. The zero value is an unnamed caller with
// all rights: the daemon's own token, or the program that uses this module.
type Client struct {
	// Name is the operator's name of the client's token; "" for the daemon's own token.
	Name string
	// Tenant owns what the caller creates; "" is the default tenant.
	Tenant string `json:",omitempty"`
	// Role is what the caller may do. "" is RoleAdmin.
	Role Role `json:",omitempty"`
	// Sandbox, if not "", is the only sandbox that the caller may use: the caller has the sandbox's
	// own secret, and no token.
	Sandbox ID `json:",omitempty"`
	// Flow separates parallel activities of one client, such as its connections. If work must wait,
	// the flows of a client take turns.
	Flow string
	// Address is the network address of the caller's connection; "" if it is unknown.
	Address string
	// Request identifies the caller's request in logs and traces; "" for none.
	Request string `json:"-"`
	// Trace is the W3C traceparent of the request's span; "" if no trace of the request is recorded.
	Trace string `json:"-"`
}

// LogValue implements slog.LogValuer: the client, its tenant unless that is the default one, and
// the request.
func (c Client) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 3)
	attrs = append(attrs, slog.String("client", c.Name))
	if c.Tenant != "" {
		attrs = append(attrs, slog.String("tenant", c.Tenant))
	}
	if c.Request != "" {
		attrs = append(attrs, slog.String("request", c.Request))
	}
	return slog.GroupValue(attrs...)
}

// DefaultTenant is the name of the default tenant for people: in files, settings and commands. In a
// Client it is "".
const DefaultTenant = "default"

// Role is what a caller may do with what it sees.
type Role string

// The roles.
const (
	// RoleAdmin may do everything in its tenant. In the default tenant it is the operator's role: it
	// sees and uses what all tenants have.
	RoleAdmin Role = "admin"
	// RoleUser may do everything in its tenant.
	RoleUser Role = "user"
	// RoleReadOnly may list and read, and changes nothing.
	RoleReadOnly Role = "read-only"
	// RoleNone sees nothing: the caller has no valid token.
	RoleNone Role = "none"
)

// Roles are the roles that a token can have.
var Roles = []Role{RoleAdmin, RoleUser, RoleReadOnly}

// Operator reports whether the caller sees what all tenants have.
func (c Client) Operator() bool {
	return c.Tenant == "" && c.Sandbox == "" && (c.Role == "" || c.Role == RoleAdmin)
}

// Writes reports whether the role of the caller allows changes. An unknown role does not.
func (c Client) Writes() bool {
	return c.Role == "" || c.Role == RoleAdmin || c.Role == RoleUser
}

// Sees reports whether the caller may learn of a sandbox with the given id and owner, and of what
// belongs to it. id is "" for something that belongs to no sandbox.
func (c Client) Sees(owner Client, id ID) bool {
	switch {
	case c.Sandbox != "":
		return id == c.Sandbox && c.Role != RoleNone
	case c.Operator():
		return true
	}
	return c.Tenant == owner.Tenant && (c.Writes() || c.Role == RoleReadOnly)
}

// Network is the network access of a sandbox.
type Network string

// The network modes.
const (
	// NetworkNone is a private loopback interface and nothing else.
	NetworkNone Network = "none"
	// NetworkOutbound adds outbound TCP, UDP and DNS through the daemon's user-space network stack,
	// within the operator's rules. Inbound connections are impossible.
	NetworkOutbound Network = "outbound"
)

// Egress is what a sandbox may reach within the operator's rules: it denies Deny, except for Allow.
// DNS queries are denied with the address of the name server, 192.0.0.1.
type Egress struct {
	Allow []netip.Prefix `json:"allow,omitempty"`
	Deny  []netip.Prefix `json:"deny,omitempty"`
}

// MaxEgress is the most ranges of each list of an Egress.
const MaxEgress = 64

// Check returns Invalid if a range is malformed (10.0.0.1/8, or IPv4 in the form of IPv6), or if
// there are too many.
func (e *Egress) Check() error {
	if e == nil {
		return nil
	}
	for _, list := range [][]netip.Prefix{e.Allow, e.Deny} {
		if len(list) > MaxEgress {
			return &Error{Code: Invalid, Field: "egress", Message: "egress: " + strconv.Itoa(len(list)) + " ranges are too many; at most " + strconv.Itoa(MaxEgress) + " are possible"}
		}
		for _, p := range list {
			if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
				return &Error{Code: Invalid, Field: "egress", Message: "egress: " + Quote(p.String(), 60) + " is not an address range",
					Fix: "write it as 10.1.0.0/16 or fd12:3456::/32, with nothing but zeros after the prefix"}
			}
		}
	}
	return nil
}

// Limits are the resource limits of a sandbox or an execution. Zero is the operator's default;
// Unlimited (-1) requests no limit.
type Limits struct {
	// Memory is in bytes. It covers all memory of the sandbox's programs together, swap and files
	// in memory included. Swap does not raise it.
	Memory int64
	// CPUs is the largest processor time per second of wall-clock time: 0.5 is half a core, 2 is
	// two cores.
	CPUs float64
	// CPUShares is the sandbox's weight against other sandboxes if the processors are busy. 1024 is
	// a normal share.
	CPUShares int64
	// PIDs is the largest number of processes and threads that exist in the sandbox at once.
	PIDs int64
	// Disk is in bytes. It covers everything the sandbox can write, in all its writable directories
	// together.
	Disk int64
	// Inodes is the largest number of files, directories and links that the sandbox can make.
	Inodes int64
	// Files is the largest number of open descriptors of one process.
	Files int64

	// Timeout is the wall-clock time of one execution. The engine enforces it.
	Timeout time.Duration
	// Output is in bytes, for stdout and stderr together, of one execution. The engine enforces it
	// exactly: it delivers the bytes up to the limit and no further byte.
	Output int64
}

// Enforcement is the mechanism that enforces a limit.
type Enforcement string

// The mechanisms, the strongest first.
const (
	EnforcedCgroup2  Enforcement = "cgroup2"  // the kernel, for the whole sandbox
	EnforcedCgroup1  Enforcement = "cgroup1"  // the kernel, for the whole sandbox
	EnforcedMount    Enforcement = "mount"    // the kernel, by the size of a file system
	EnforcedRlimit   Enforcement = "rlimit"   // the kernel, per process or per user namespace
	EnforcedNice     Enforcement = "nice"     // the scheduler, per process instead of per sandbox
	EnforcedRuntime  Enforcement = "runtime"  // the runtime that replaces the host's kernel (Sandbar's own, or gVisor); exact
	EnforcedWatchdog Enforcement = "watchdog" // Sandbar polls every few milliseconds; a burst can exceed the limit
	EnforcedNone     Enforcement = "none"     // not enforced; a Spec that sets the limit is refused
)

// Enforcements is the mechanism of each limit that a driver enforces.
type Enforcements struct {
	Memory    Enforcement `json:"memory"`
	CPUs      Enforcement `json:"cpus"`
	CPUShares Enforcement `json:"cpu_shares"`
	PIDs      Enforcement `json:"pids"`
	Disk      Enforcement `json:"disk"`
	Inodes    Enforcement `json:"inodes"`
	Files     Enforcement `json:"files"`
}

// Cmd is a program to start in a sandbox.
type Cmd struct {
	// Args is the program and its arguments, never empty. If Args[0] has no slash, it is looked up
	// in the sandbox's PATH.
	Args []string
	// Env extends and overrides the sandbox's environment.
	Env map[string]string
	// Dir is the working directory inside the sandbox. A relative Dir starts at DefaultDir.
	// Default: DefaultDir.
	Dir string
	// Terminal, if not nil, gives the program a terminal as its input and outputs. Unsupported if
	// the driver has none (driver.Caps.Terminals).
	Terminal *Terminal
}

// Terminal is a program's pseudoterminal (pty(7)). It is the program's controlling terminal, and
// all output is Stdout. The end of the standard input is sent as Ctrl-D.
type Terminal struct {
	// Size is the size at the start.
	Size TerminalSize
	// Sizes, if not nil, delivers later sizes. The driver receives until the program's end; invalid
	// sizes are ignored.
	Sizes <-chan TerminalSize
}

// TerminalSize is the size of a terminal in characters, each 1 to MaxTerminalSize.
type TerminalSize struct{ Rows, Cols int }

// MaxTerminalSize bounds the rows and columns of a terminal.
const MaxTerminalSize = 10_000

// Check returns an Invalid error, with the Field "rows" or "cols", if s is out of range.
func (s TerminalSize) Check() error {
	for _, x := range [...]struct {
		field string
		n     int
	}{{"rows", s.Rows}, {"cols", s.Cols}} {
		if x.n < 1 || x.n > MaxTerminalSize {
			return &Error{Code: Invalid, Field: x.field, Message: "the terminal's " + x.field + " are out of range; allowed: 1 to " + strconv.Itoa(MaxTerminalSize)}
		}
	}
	return nil
}

// DefaultDir is the working directory and HOME of programs in a sandbox. It is writable and private
// to the sandbox. Relative paths of FS start here.
const DefaultDir = "/home/user"

// Job is one one-shot execution: Sandbar makes a new sandbox, runs one program in it and destroys
// the sandbox. Either Language and Code or Cmd describe the program, not both.
type Job struct {
	Spec Spec
	// Language is a name from the language catalogue, such as "python".
	Language string
	// Code is the source text for Language's interpreter.
	Code string
	// Args are the program's arguments without its own name, if Language is set.
	Args []string
	// Cmd is the program to run if Language is empty.
	Cmd Cmd
	// Stdin is the program's standard input. The engine reads it only after the program has
	// started. Nil is an empty input.
	Stdin Input
	// Unrecorded excludes the job's code and output from the operator's records of executions (the
	// setting code.store).
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
