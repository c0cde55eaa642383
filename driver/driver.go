// Package driver is for those who implement a backend: something that can make
// a sandbox and start programs in it.
//
// The interfaces Driver, Sandbox and Process are obligatory. Everything else that
// a backend may be able to do is an ability: an optional interface that a value
// implements or does not, found with As. What is constant about a driver is a
// fact, a field of Caps. Nothing is both.
//
// What a driver promises:
//
//   - It refuses. A Spec that asks for something the driver cannot enforce on
//     this host is an Unsupported error before anything is made, unless the
//     Spec has AllowDegraded.
//   - It cleans up. After an error from Create, and after Destroy, nothing
//     remains: process, mount, cgroup, namespace, descriptor, goroutine, file.
//   - It does not interpret. Clocks, output caps, queues and replay are the
//     engine's; memory, processors, processes, disk, network and the boundary
//     are the driver's.
//   - It does not invent. When it cannot know how a program ended, the Outcome
//     is Lost.
//
// Package drivertest holds the suite that every driver passes.
package driver

import (
	"context"
	"io"
	"log/slog"
	"net"

	"github.com/sandbar-dev/sandbar"
)

// Driver makes sandboxes. Its methods may be called concurrently.
type Driver interface {
	// Caps tells what this driver is and can enforce on this host. Constant.
	Caps() Caps
	// Create makes a sandbox from a Spec without unset fields. ctx bounds the
	// creation only. On error nothing is left behind.
	Create(ctx context.Context, id sandbar.ID, s sandbar.Spec) (Sandbox, error)
}

// Sandbox is one live sandbox. Its methods may be called concurrently.
type Sandbox interface {
	// Start starts a program and returns once it runs, or once it is clear
	// that it cannot: NotFound when there is no such program or directory,
	// Denied when it may not be executed, Gone when the sandbox has ended. ctx
	// bounds the start only.
	Start(ctx context.Context, c sandbar.Cmd, std Stdio) (Process, error)
	// FS returns the sandbox's files. It never returns nil. After the sandbox's end
	// the operations of the FS fail with Gone.
	FS() sandbar.FS
	// Destroy kills everything in the sandbox and removes all of it. It is
	// idempotent, may be called at any time, and when it returns nothing is left.
	Destroy(ctx context.Context) error
}

// Process is one program that was started.
type Process interface {
	// Wait returns when the program has ended and all its output has been
	// written to its Stdio. Descendants that keep the outputs open are waited
	// for only for DrainWindow. It may be called many times, concurrently. An
	// error is the platform's own failure; a lost sandbox is an Outcome.
	Wait() (sandbar.Result, error)
	// Signal sends a signal to the program's whole process group; after its
	// end it does nothing.
	Signal(sig int) error
	// KillTree ends everything the program started, wherever it went: to
	// another process group, session or parent. It returns when nothing of it
	// runs any more, and with an error when something resists for longer than
	// a few seconds. It works also after the program's own end, until the
	// sandbox is destroyed; after that it has nothing to do. Other programs of
	// the sandbox are left alone. It may be called many times, concurrently.
	KillTree() error
	// PID is the program's process id as the sandbox's programs see it; 0 if the
	// driver cannot know it. After the program's end the kernel may give the number
	// to another process.
	PID() int
}

// Stdio connects a program. The driver reads and writes from goroutines of its
// own; one writer is never called concurrently with itself.
type Stdio struct {
	// Stdin is what the program reads; nil is an empty input. The driver stops
	// reading at the program's end but does not wait for a blocked Read. It may be
	// Sized.
	Stdin io.Reader
	// Stdout and Stderr take the output; nil discards it. A Write that blocks
	// holds the program back. A Write that fails closes that output.
	Stdout, Stderr io.Writer
}

// Sized is an input whose length is known, such as a strings.Reader: its end does not depend on
// what the program does.
type Sized interface {
	io.Reader
	Len() int // bytes that are left
}

// Boundary names what stands between a program and the host.
type Boundary string

// The boundaries, weakest first.
const (
	BoundaryNone       Boundary = "none"       // trusted code only
	BoundaryNamespaces Boundary = "namespaces" // the host's kernel, through a filter
	BoundaryContainer  Boundary = "container"  // as namespaces, made by a container engine
	BoundaryGVisor     Boundary = "gvisor"     // a kernel in user space
	BoundaryWasm       Boundary = "wasm"       // software fault isolation
	BoundaryVM         Boundary = "vm"         // a virtual machine
	BoundaryRemote     Boundary = "remote"     // somebody else's machine
)

// Caps are the facts about a driver on this host.
type Caps struct {
	Name     string   // "native", "local", …
	Boundary Boundary // what stands between program and host
	// Enforced tells how each limit is held; a Spec that sets one which is
	// EnforcedNone is refused.
	Enforced sandbar.Enforcements
	// OOMCounted: out-of-memory kills come from a counter, not from a guess.
	OOMCounted bool
	// PrivateFiles, PrivateNetwork, PrivateProcesses: a program sees none of
	// the host's. The conformance suite tests each both ways.
	PrivateFiles, PrivateNetwork, PrivateProcesses bool
	// PrivateQuotas: a sandbox that uses up what the kernel counts by user (inotify
	// instances and watches, POSIX message queues, pending signals) leaves its
	// neighbours and the host's users enough.
	PrivateQuotas bool
	// HostPrograms: the image sandbar.ImageHost is this host's own programs, so that
	// they can stand in for an image that is not installed.
	HostPrograms bool
	// Outbound: a Spec may ask for sandbar.NetworkOutbound. Where it may not,
	// Notes tell why.
	Outbound bool
	// Notes are sentences for an operator: what is missing and how to get it.
	Notes []string
}

// Dialer is the ability of a Sandbox to connect to a port inside it.
type Dialer interface {
	// DialPort connects to a TCP port on the sandbox's own loopback. Invalid
	// for a port outside 1 to 65535, Unavailable when nothing listens there.
	DialPort(ctx context.Context, port int) (net.Conn, error)
}

// Watcher is the ability of a Sandbox to tell of its own death.
type Watcher interface {
	// Dead is closed when the sandbox can run nothing any more.
	Dead() <-chan struct{}
}

// Presets is the ability of a Driver to give the programs of a preset of
// internal/image ("python", "node") without an image of Host.Images.
type Presets interface {
	// Preset returns what a Spec names for it, and the reference by which people
	// know that image. ok is false where the driver has none.
	Preset(ctx context.Context, name string) (image, ref string, ok bool)
}

// Collector is the ability of a Driver to find and remove what daemons that
// were killed have left behind.
type Collector interface {
	// Collect returns what is left over. With remove it also removes it; what
	// could not be removed has an Err. It never touches what a live daemon owns.
	Collect(ctx context.Context, remove bool) ([]Leftover, error)
}

// Leftover is one thing that a dead daemon left behind.
type Leftover struct {
	Kind string // "process", "cgroup", "directory"
	Name string // pid or path
	Err  error  // why it could not be removed
}

// Closer is the ability of a Driver to release what it holds beyond its
// sandboxes. The engine calls it once, after the last Destroy.
type Closer interface{ Close() error }

// Unwrapper is implemented by decorators; As looks through them.
type Unwrapper interface{ Unwrap() any }

// As finds the ability T of v, looking through decorators.
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

// Host is what a driver is made from.
type Host struct {
	// RuntimeDir is a directory of the daemon's user, mode 0700, that does not
	// survive a reboot. Drivers keep in it what Collect needs.
	RuntimeDir string
	// Logger takes structured logs. Never code, environment or output.
	Logger *slog.Logger
	// Options are the driver's section of the configuration. An option that
	// the driver does not know is an Invalid error naming those it knows.
	Options map[string]string
	// Images finds the root file systems of images. Nil: there is none but
	// sandbar.ImageHost.
	Images Images
	// Outbound are the rules for sandboxes that reach out. Nil: no sandbox may.
	Outbound *Outbound
	// Speculation lets programs keep what the kernel could switch off against
	// attacks by speculation, and sandboxes share processor cores. Default: where
	// the kernel has switches, both are off (prctl PR_SET_SPECULATION_CTRL and
	// PR_SCHED_CORE).
	Speculation bool
	// Waiting is called before work of seconds that a host needs once, such as
	// compiling, with a sentence for the person who waits; the function that it
	// returns is called at the end. Default: the work is logged.
	Waiting func(what string) (done func())
}

// Wait calls Waiting, if there is one.
func (h Host) Wait(what string) (done func()) {
	if h.Waiting == nil {
		return func() {}
	}
	return h.Waiting(what)
}

// Preparer is a driver with work to do once for a host, of seconds or minutes, that
// its first sandbox waits for otherwise. Commands have it done before they ask for a
// sandbox, whose making has a time limit. Errors: Unsupported; Canceled or Timeout
// when ctx ends, while the work goes on.
type Preparer interface {
	Prepare(ctx context.Context) error
}

// Factory makes a driver. It fails with Unsupported, naming what is missing
// and the next step, where the host cannot run it.
type Factory struct {
	Name    string
	Summary string // one line for help texts
	// Options are the names of options with a line of help each.
	Options map[string]string
	// Alternatives are what the driver can be made with on a host, so that
	// "sandbar doctor" tells what each would do there. Default: there is nothing to
	// choose from.
	Alternatives Alternatives
	New          func(Host) (Driver, error)
}

// Alternatives are values of an option that name programs of the host, such as
// container runtimes.
type Alternatives struct {
	Option string
	Values []string
}
