// Package faulty is a driver for the tests of the engine and of protocols. Its programs are scripts
// that it interprets, and tests make it fail, stall and lose sandboxes. It starts no process, and
// touches no file but those of saved states. It works inside a testing/synctest bubble, because it
// waits only on channels and timers.
//
// # Programs
//
// Cmd.Args[0] selects the kind of program:
//
//   - a verb of the table below: the other Args are its operands. An Arg ";" starts another
//     command: ["print", "stdout", "hello", ";", "exit", "3"].
//   - an interpreter (python3, node, sh, elixir; see Driver.Missing): Args[1] is the file of a
//     script with one command a line, and the other Args are the program's arguments. If Args[1] is
//     "-c", the script is Args[2]. If the file does not exist, the program exits with 2.
//
// Other programs are NotFound. In a script, blanks separate operands. An operand in double quotes
// is a Go string literal. Empty lines and lines that start with # are skipped. A script that ends
// without "exit" exits with 0. For an invalid command the program writes an error to stderr and
// exits with 2.
//
//	print STREAM TEXT...    write the texts, separated by blanks, and a newline
//	write STREAM TEXT...    the same without the newline
//	flood STREAM N          write N bytes of Pattern
//	dribble STREAM TEXT D   write TEXT one byte at a time (not one rune), with a
//	                        pause of D after each
//	echo-stdin              copy the input to stdout until its end
//	count-stdin             read the input to its end, print its length
//	args | dir              print the arguments, one a line | the directory
//	env NAME                print NAME=value, or NAME is unset
//	cat FILE                copy a file of the sandbox to stdout
//	save FILE TEXT          write a file
//	sleep D                 wait; D as in time.ParseDuration
//	block-until NAME        wait until the test calls Driver.Open(NAME)
//	repeat N COMMAND...     run the command N times
//	serve PORT              from now on echo connections to PORT
//	ignore-term             ignore signal 15 from now on
//	on-term COMMAND...      run the command at signal 15 and continue; with
//	                        "exit N" as the command, exit
//	usage CPU BYTES         set the result's CPU time and peak memory
//	drain D                 make Wait return D after the program's end
//	leave                   leave a leftover that stays until KillTree or the
//	                        sandbox's end
//	exit N                  exit with this code
//	signal N                end as if killed by signal N
//	oom                     end as if killed for memory
//	lost                    end the sandbox as if its backend had died
//	hang NAME               as block-until, but KILL and Destroy do not end it;
//	                        neither waits for it
//	panic-wait              make Wait panic after the end
//	fail-wait TEXT          make Wait return an error after the end
//
// STREAM is stdout or stderr. Each output goes through a pipe of two slots of 32 KiB. As with a
// real pipe, a blocked receiver blocks the program; Driver.Written shows how much it has written.
package faulty

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// Hook is called at the beginning of a driver's operation. It can return an error, which fails the
// operation, block, or panic. ctx is the context of the operation.
type Hook func(ctx context.Context) error

// Driver is the faulty driver. Its exported fields must be set before its first use. The driver of
// New works and enforces all limits.
type Driver struct {
	// Capabilities is what Caps returns. Default: FullCaps.
	Capabilities driver.Caps
	// OnCreate, OnStart and OnDestroy are called before the operation. If one fails, the operation
	// has no effect.
	OnCreate, OnStart, OnDestroy Hook
	// AfterCreate is called when the sandbox exists. If it fails, the sandbox is removed and Create
	// fails.
	AfterCreate Hook
	// OnRest and OnWake are called before Rest and Wake. If one fails, the operation has no effect.
	OnRest, OnWake Hook
	// OnKillTree is called before KillTree. If it fails, KillTree has no effect.
	OnKillTree Hook
	// Missing are interpreters that do not exist on this host.
	Missing []string
	// Bare: sandboxes do not implement driver.Dialer, driver.Rester and driver.Watcher.
	Bare bool
	// Death is why sandboxes die, the result of driver.Explainer. Default: the reason is unknown.
	Death error
	// NoFiles makes every file operation fail with Unsupported.
	NoFiles bool
	// Use is what a sandbox measures. Default: Unsupported.
	Use func() (driver.Use, error)
	// Saves: sandboxes implement driver.Saver. A state has the files of a sandbox, not its programs.
	Saves bool
	// OnSave is called when a state is complete but for Commit; OnRestore before a sandbox is
	// restored.
	OnSave, OnRestore Hook

	verbs map[string]verb

	created, destroyed, started, written, closed atomic.Int64

	mu        sync.Mutex
	sandboxes map[sandbar.ID]*sandbox
	processes int
	left      int // number of leftovers of programs
	gates     map[string]*gate
	events    []string
	specs     []sandbar.Spec
}

// gate is an event that programs wait for.
type gate struct {
	open    chan struct{} // closed by Open
	reached chan struct{} // closed by the first program that waits
	opened  sync.Once
	arrived sync.Once
}

// New returns a driver without faults.
func New() *Driver {
	return &Driver{Capabilities: FullCaps(), verbs: newVerbs(), sandboxes: map[sandbar.ID]*sandbox{}, gates: map[string]*gate{}}
}

// FullCaps returns the Caps of a driver that enforces all limits.
func FullCaps() driver.Caps {
	return driver.Caps{
		Name: "faulty", Boundary: driver.BoundaryNone,
		Enforced: sandbar.Enforcements{
			Memory: sandbar.EnforcedCgroup2, CPUs: sandbar.EnforcedCgroup2, CPUShares: sandbar.EnforcedCgroup2,
			PIDs: sandbar.EnforcedCgroup2, Disk: sandbar.EnforcedMount, Inodes: sandbar.EnforcedMount,
			Files: sandbar.EnforcedRlimit,
		},
		OOMCounted: true,
	}
}

// FailFirst fails the first n calls with err; a negative n fails all.
func FailFirst(n int, err error) Hook {
	var calls atomic.Int64
	return func(context.Context) error {
		if k := calls.Add(1); n < 0 || k <= int64(n) {
			return err
		}
		return nil
	}
}

// Stall blocks every call until the channel is closed or ctx ends.
func Stall(until <-chan struct{}) Hook {
	return func(ctx context.Context) error {
		select {
		case <-until:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Block blocks every call until the channel is closed, even if ctx ends.
func Block(until <-chan struct{}) Hook {
	return func(context.Context) error { <-until; return nil }
}

// Slow makes every call take d, even if ctx ends.
func Slow(d time.Duration) Hook {
	return func(context.Context) error { time.Sleep(d); return nil }
}

// Panic panics in every call.
func Panic() Hook {
	return func(context.Context) error { panic("faulty: requested panic") }
}

// Pattern returns the byte at an offset of the output of flood: the repeated alphabet.
func Pattern(offset int64) byte { return 'a' + byte(offset%26) }

// Caps returns Capabilities.
func (d *Driver) Caps() driver.Caps { return d.Capabilities }

// Create creates a sandbox, which exists only in this process's memory. Unsupported: a memory limit
// that Capabilities does not enforce.
func (d *Driver) Create(ctx context.Context, id sandbar.ID, s sandbar.Spec) (driver.Sandbox, error) {
	if err := d.hook(ctx, d.OnCreate); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.Limits.Memory > 0 && d.Capabilities.Enforced.Memory == sandbar.EnforcedNone && !s.AllowDegraded {
		return nil, sandbar.Errorf(sandbar.Unsupported, "faulty: memory cannot be limited")
	}
	b := newSandbox(d, id, s)
	d.mu.Lock()
	d.sandboxes[id] = b
	d.specs = append(d.specs, s)
	d.events = append(d.events, "create")
	d.mu.Unlock()
	d.created.Add(1)
	if err := d.hook(ctx, d.AfterCreate); err != nil {
		b.destroy()
		return nil, err
	}
	switch {
	case d.Bare:
		return b, nil
	case d.Saves:
		return savingSandbox{fullSandbox{b}}, nil
	}
	return fullSandbox{b}, nil
}

func (d *Driver) hook(ctx context.Context, h Hook) error {
	if h == nil {
		return nil
	}
	return h(ctx)
}

// Close only counts its calls.
func (d *Driver) Close() error {
	d.closed.Add(1)
	return nil
}

// Open unblocks all programs that wait for name, now or later.
func (d *Driver) Open(name string) {
	g := d.gate(name)
	g.opened.Do(func() { close(g.open) })
}

// Reached returns a channel that is closed when the first program waits for name.
func (d *Driver) Reached(name string) <-chan struct{} { return d.gate(name).reached }

func (d *Driver) gate(name string) *gate {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.gates[name]
	if g == nil {
		g = &gate{open: make(chan struct{}), reached: make(chan struct{})}
		d.gates[name] = g
	}
	return g
}

// Die ends a sandbox as if its backend had died. It returns false if the sandbox does not exist.
func (d *Driver) Die(id sandbar.ID) bool {
	d.mu.Lock()
	b := d.sandboxes[id]
	d.mu.Unlock()
	if b != nil {
		b.die()
	}
	return b != nil
}

// DieAll ends all sandboxes as if the backend had died. It returns false if there are none.
func (d *Driver) DieAll() bool {
	d.mu.Lock()
	all := slices.Collect(maps.Values(d.sandboxes))
	d.mu.Unlock()
	for _, b := range all {
		b.die()
	}
	return len(all) > 0
}

// Counts has the numbers of a driver's objects and operations.
type Counts struct {
	Sandboxes, Processes        int // existing now
	Leftovers                   int // leftovers of programs, existing now
	Created, Destroyed, Started int // in total
	Closed                      int // calls of Close
}

// Counts returns the current numbers.
func (d *Driver) Counts() Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Counts{Sandboxes: len(d.sandboxes), Processes: d.processes, Leftovers: d.left, Created: int(d.created.Load()),
		Destroyed: int(d.destroyed.Load()), Started: int(d.started.Load()), Closed: int(d.closed.Load())}
}

// Leaks returns an error if a sandbox, process or leftover exists.
func (d *Driver) Leaks() error {
	if c := d.Counts(); c.Sandboxes != 0 || c.Processes != 0 || c.Leftovers != 0 || c.Created != c.Destroyed {
		return fmt.Errorf("faulty: something is left: %+v", c)
	}
	return nil
}

// Written returns the number of bytes that programs have written, including those that are still in
// a pipe.
func (d *Driver) Written() int64 { return d.written.Load() }

// Events returns the operations and signals in their order: "create", "start", "signal 15", "kill
// tree", "end" (of a program), "destroy".
func (d *Driver) Events() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.events)
}

// Specs returns the Specs of all sandboxes that were ever created.
func (d *Driver) Specs() []sandbar.Spec {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.specs)
}

func (d *Driver) event(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, fmt.Sprintf(format, args...))
}

// errGone is the error of all operations on a sandbox that has ended.
var errGone = errors.New("the sandbox has ended")

func gone() error { return &sandbar.Error{Code: sandbar.Gone, Err: errGone} }
