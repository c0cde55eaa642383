// Package driver defines the interfaces that a backend implements. A backend makes
// sandboxes and starts programs in them.
//
// Driver, Sandbox and Process are required. Every other ability is an optional
// interface that a value implements or not; As finds it. A constant fact about a
// driver is a field of Caps. No property is both.
//
// Every driver must:
//
//   - Refuse. If this host cannot enforce a Spec, Create returns Unsupported before
//     it makes anything, unless the Spec has AllowDegraded.
//   - Clean up. After an error from Create, and after Destroy, nothing remains:
//     process, mount, cgroup, namespace, descriptor, goroutine or file.
//   - Leave time limits, output limits, queues and replay to the engine. Memory,
//     processors, processes, disk, network and the boundary are the driver's.
//   - Report the outcome Lost if it cannot determine how a program ended.
//
// Package drivertest has the test suite that every driver passes.
package driver

import (
	"context"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// Driver makes sandboxes. Its methods may be called concurrently.
type Driver interface {
	// Caps returns the facts about this driver on this host. They are constant.
	Caps() Caps
	// Create makes a sandbox from a Spec without unset fields. ctx bounds the creation only. After
	// an error no part of the sandbox remains.
	Create(ctx context.Context, id sandbar.ID, s sandbar.Spec) (Sandbox, error)
}

// Sandbox is one live sandbox. Its methods may be called concurrently.
type Sandbox interface {
	// Start starts a program and returns when it runs. NotFound: the program or the working
	// directory does not exist. Denied: the program is not executable. Gone: the sandbox has ended.
	// ctx bounds the start only.
	Start(ctx context.Context, c sandbar.Cmd, std Stdio) (Process, error)
	// FS returns the sandbox's files, never nil. After the sandbox's end all its operations return
	// Gone.
	FS() sandbar.FS
	// Destroy kills all processes in the sandbox and removes all its resources before it returns.
	// It is idempotent and may be called at any time.
	Destroy(ctx context.Context) error
}

// Process is a started program.
type Process interface {
	// Wait returns when the program has ended and all its output has been written to its Stdio. It
	// waits at most DrainWindow for descendants that keep the outputs open. It may be called
	// repeatedly and concurrently. An error is a failure of the platform; the death of the sandbox
	// is the outcome Lost.
	Wait() (sandbar.Result, error)
	// Signal sends a signal to the program's process group. After the program's end it does
	// nothing.
	Signal(sig int) error
	// KillTree kills all processes that the program started, also those in another process group or
	// session or with another parent. It returns when none of them runs, or an error after a few
	// seconds if one remains. The program is killed before or together with its children, so that it
	// cannot see their end and exit by itself. It also works after the program's own end. After
	// Destroy it does nothing. It does not affect other programs of the sandbox. It may be called
	// repeatedly and concurrently.
	KillTree() error
	// PID returns the program's process id inside the sandbox; 0 if the driver cannot determine it.
	// After the program's end the kernel may reuse the number.
	PID() int
}

// Stdio is a program's standard input and output. The driver reads and writes in its own
// goroutines. It never calls one writer concurrently.
type Stdio struct {
	// Stdin is the program's input; nil is an empty input. The driver stops reading at the
	// program's end and does not wait for a blocked Read. Stdin may be Sized.
	Stdin io.Reader
	// Stdout and Stderr receive the output; nil discards it. A Write that blocks also blocks the
	// program's output. A Write that fails closes that output.
	Stdout, Stderr io.Writer
}

// Sized is an input of known length, such as a strings.Reader. Its end does not depend on the
// program.
type Sized interface {
	io.Reader
	Len() int // remaining bytes
}

// Boundary is the isolation mechanism between a program and the host.
type Boundary string

// The boundaries, the weakest first.
const (
	BoundaryNone       Boundary = "none"       // trusted code only
	BoundaryNamespaces Boundary = "namespaces" // the host's kernel behind a system-call filter
	BoundaryContainer  Boundary = "container"  // like BoundaryNamespaces, made by a container engine
	BoundaryGVisor     Boundary = "gvisor"     // a kernel in user space
	BoundaryWasm       Boundary = "wasm"       // software fault isolation
	BoundaryVM         Boundary = "vm"         // a virtual machine
	BoundaryRemote     Boundary = "remote"     // another machine
)

// Caps are the facts about a driver on this host.
type Caps struct {
	Name     string   // "native", "local", …
	Boundary Boundary // isolation between program and host
	// Enforced is the mechanism of each limit. A Spec that sets a limit with EnforcedNone is
	// Unsupported.
	Enforced sandbar.Enforcements
	// OOMCounted: out-of-memory kills come from a kernel counter and are not estimated.
	OOMCounted bool
	// PrivateFiles, PrivateNetwork, PrivateProcesses: a program cannot access those of the host.
	// The conformance suite tests each claim in both directions.
	PrivateFiles, PrivateNetwork, PrivateProcesses bool
	// PrivateQuotas: the kernel's limits per user (inotify instances and watches, POSIX message
	// queues, pending signals) are separate for each sandbox. A sandbox that reaches them does not
	// affect other sandboxes and users of the host.
	PrivateQuotas bool
	// HostPrograms: the image sandbar.ImageHost consists of this host's own programs, so it can
	// replace an image that is not installed.
	HostPrograms bool
	// Outbound: a Spec may request sandbar.NetworkOutbound. If false, Notes say why.
	Outbound bool
	// Egress: a Spec with sandbar.NetworkOutbound may have an Egress, and its sandbox is a
	// Restricter.
	Egress bool
	// SavesPrograms: a state of Saver has the programs with their memory. If false, it has the files
	// alone: programs end with the saved sandbox, and a restored one has none.
	SavesPrograms bool
	// Terminals: a Cmd may have a Terminal.
	Terminals bool
	// Setup bounds the creation of a sandbox and the start of a program in it; default 30 s. A driver
	// needs more if its first sandbox boots a machine.
	Setup time.Duration
	// RemoteCreates is how many sandboxes should be created at once where another machine does the
	// work; 0: sandboxes are on this machine.
	RemoteCreates int
	// Notes are sentences for an operator: what is missing, and how to fix it.
	Notes []string
}

// Dialer is an optional interface of a Sandbox that connects to ports inside it.
type Dialer interface {
	// DialPort connects to a TCP port on the sandbox's loopback interface. Invalid: the port is
	// outside 1 to 65535. Unavailable: no process listens on it.
	DialPort(ctx context.Context, port int) (net.Conn, error)
}

// Watcher is an optional interface of a Sandbox that reports its death.
type Watcher interface {
	// Dead returns a channel that is closed when no program can run in the sandbox any more.
	Dead() <-chan struct{}
}

// Explainer is an optional interface of a Sandbox that can tell why it died.
type Explainer interface {
	// Death returns why the sandbox died by itself: an error with the code Gone, whose message
	// completes "the sandbox has ended: ". It returns nil if the sandbox lives, was destroyed, or if
	// the reason is unknown. The result is constant after Watcher.Dead is closed.
	Death() error
}

// Restricter is an optional interface of a Sandbox with sandbar.NetworkOutbound.
type Restricter interface {
	// Restrict replaces the Spec's Egress; e is valid. When it returns nil, connections to denied
	// addresses are cut, and new ones are impossible. Unsupported: the sandbox has no network.
	Restrict(ctx context.Context, e sandbar.Egress) error
}

// Presets is an optional interface of a Driver that has its own images for the presets of
// internal/image ("python", "node"), without Host.Images.
type Presets interface {
	// Preset returns the Spec.Image of a preset and the image's reference for people. ok is false
	// if the driver has none.
	Preset(ctx context.Context, name string) (image, ref string, ok bool)
}

// Collector is an optional interface of a Driver that finds and removes the leftovers of killed
// daemons.
type Collector interface {
	// Collect returns the leftovers. With remove it also removes them; those that it could not
	// remove have an Err. It never touches the resources of a live daemon.
	Collect(ctx context.Context, remove bool) ([]Leftover, error)
}

// Leftover is a resource that a dead daemon left behind.
type Leftover struct {
	Kind string // "process", "cgroup", "directory"
	Name string // pid or path
	Err  error  // why it could not be removed
}

// Ender is an optional interface of a Process.
type Ender interface {
	// Done returns a channel that is closed when Wait returns without blocking.
	Done() <-chan struct{}
}

// Closer is an optional interface of a Driver with resources beyond its sandboxes. The engine calls
// Close once, after the last Destroy.
type Closer interface{ Close() error }

// Unwrapper is implemented by decorators. As looks through them.
type Unwrapper interface{ Unwrap() any }

// As returns v as a T, or the first decorated value of v that implements T.
func As[T any](v any) (T, bool) {
	for v != nil {
		if t, ok := v.(T); ok {
			return t, true
		}
		u, ok := v.(Unwrapper)
		if !ok {
			break
		}
		v = u.Unwrap()
	}
	var zero T
	return zero, false
}

// Host is the configuration of a driver.
type Host struct {
	// RuntimeDir is a directory of the daemon's user, with mode 0700, that does not survive a
	// reboot. Drivers store in it what Collect needs.
	RuntimeDir string
	// Logger is for structured logs, which never have code, environment or output.
	Logger *slog.Logger
	// Options are the driver's section of the configuration. An unknown option is an Invalid error
	// that names the known ones.
	Options map[string]string
	// Images opens the root file systems of images. Nil: only sandbar.ImageHost exists.
	Images Images
	// Outbound are the rules of sandbar.NetworkOutbound. Nil: no sandbox may use it.
	Outbound *Outbound
	// Speculation leaves the kernel's optional mitigations of speculative-execution attacks off for
	// programs, and lets sandboxes share processor cores. Default: the mitigations are on, and
	// cores are not shared, if the kernel has these switches (prctl(2), PR_SET_SPECULATION_CTRL and
	// PR_SCHED_CORE).
	Speculation bool
	// MaxAge is how long a sandbox exists at most, the wait for its first use included. The engine
	// ends sandboxes before; a driver can have something else that does it without the daemon. 0: no
	// limit is known.
	MaxAge time.Duration
	// Waiting, if set, is called before one-time work for the host that takes seconds, such as
	// compilation, with a sentence for the user. The driver calls done at the end. Default: the
	// driver logs the work.
	Waiting func(what string) (done func())
}

// Wait calls Waiting, if it is set.
func (h Host) Wait(what string) (done func()) {
	if h.Waiting == nil {
		return func() {}
	}
	return h.Waiting(what)
}

// Preparer is an optional interface of a Driver with one-time work for a host that takes seconds or
// minutes. Without Prepare the first sandbox waits for this work. Commands call Prepare before they
// make a sandbox, because making one has a time limit. Errors: Unsupported; Canceled or Timeout if
// ctx ends, while the work continues.
type Preparer interface {
	Prepare(ctx context.Context) error
}

// Factory makes a driver. New returns Unsupported, with what is missing and the next step, if the
// host cannot run the driver.
type Factory struct {
	Name    string
	Summary string // one line for help texts
	// Options are the names of options with a line of help each.
	Options map[string]string
	// Alternatives are the values of an option that "sandbar doctor" tries on the host. Default:
	// none.
	Alternatives Alternatives
	// OnlyNamed: New creates objects outside of this host, so "sandbar doctor" opens the driver only
	// if the user names it.
	OnlyNamed bool
	New       func(Host) (Driver, error)
}

// Alternatives are the values of an option that names programs of the host, such as container
// runtimes.
type Alternatives struct {
	Option string
	Values []string
}
