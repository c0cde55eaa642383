// Package faulty is a driver without sandboxes: its programs are scripts that
// it interprets, and it fails, stalls, dribbles and dies when it is told to. It
// is for the tests of the engine and of protocols, which need every kind of
// end and of trouble, at once and on command. It runs nothing real, starts no
// process and touches no file, so it works inside a testing/synctest bubble:
// everything that waits, waits on channels and timers.
//
// # Programs
//
// A program is chosen by Cmd.Args. Args[0] is
//
//   - a verb of the table below, with its operands as further Args; an Arg ";"
//     begins another command: ["print", "stdout", "hello", ";", "exit", "3"];
//   - an interpreter (python3, node, sh, elixir; see Driver.Missing): the file
//     named by Args[1] is a script, one command a line, and what follows are
//     the program's arguments; with "-c" as Args[1] the script is Args[2]. If there
//     is no such file the program exits 2.
//
// Anything else is NotFound. In a script, operands are separated by blanks; one
// in double quotes is a Go string literal. Empty lines and lines that begin
// with # are skipped. A script that ends without "exit" exits 0. A command that
// is not understood is told on stderr, and the program exits 2.
//
//	print STREAM TEXT...    write the texts, blanks between, and a newline
//	write STREAM TEXT...    the same without the newline
//	flood STREAM N          write N bytes of Pattern
//	dribble STREAM TEXT D   write TEXT a byte at a time, pausing D after each;
//	                        cuts UTF-8 sequences apart
//	echo-stdin              copy the input to stdout until its end
//	count-stdin             read the input to its end, print its length
//	args | dir              print the arguments, one a line | the directory
//	env NAME                print NAME=value, or NAME is unset
//	cat FILE                copy a file of the sandbox to stdout
//	save FILE TEXT          make a file
//	sleep D                 wait; D as in time.ParseDuration
//	block-until NAME        wait until the test calls Driver.Open(NAME)
//	repeat N COMMAND...     the command N times
//	serve PORT              from now on connections to PORT are echoed
//	ignore-term             ignore signal 15 from now on
//	on-term COMMAND...      run the command at signal 15, then go on; to end,
//	                        let it be "exit N"
//	usage CPU BYTES         set the result's CPU time and peak memory
//	drain D                 let Wait return D later than the program's end
//	leave                   leave something behind that lives until KillTree or
//	                        the sandbox's end
//	exit N                  end with this exit code
//	signal N                end as if killed by signal N
//	oom                     end as if killed for memory
//	lost                    the sandbox dies, and all in it
//	hang NAME               as block-until, but nothing ends it: not KILL, not
//	                        Destroy, neither of which waits for it
//	panic-wait              let Wait panic after the end
//	fail-wait TEXT          let Wait return an error after the end
//
// STREAM is stdout or stderr. A program's output goes through a pipe of two
// times 32 KiB, as a real one's does: a receiver that blocks holds the program
// back, which Driver.Written shows.
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

// Hook is called at the beginning of a driver's step and can fail it, hold it
// up or panic. ctx is the step's own.
type Hook func(ctx context.Context) error

// Driver is the faulty driver. Its exported fields are set before its first
// use; the zero values are a driver that works and enforces everything.
type Driver struct {
	// Capabilities is what Caps returns. Default: FullCaps.
	Capabilities driver.Caps
	// OnCreate, OnStart and OnDestroy are called before the step is done. When
	// one fails, the step is not done.
	OnCreate, OnStart, OnDestroy Hook
	// AfterCreate is called with the sandbox made. When it fails, the sandbox
	// is removed again and Create fails.
	AfterCreate Hook
	// OnKillTree is called before KillTree does anything. When it fails,
	// nothing is done.
	OnKillTree Hook
	// Missing are interpreters that this host lacks.
	Missing []string
	// Bare makes sandboxes without the abilities driver.Dialer and driver.Watcher.
	Bare bool
	// NoFiles makes every file operation fail with Unsupported.
	NoFiles bool

	verbs map[string]verb

	created, destroyed, started, written, closed atomic.Int64

	mu        sync.Mutex
	sandboxes map[sandbar.ID]*sandbox
	processes int
	left      int // what programs have left behind
	gates     map[string]*gate
	events    []string
	specs     []sandbar.Spec
}

// gate is something that programs wait for.
type gate struct {
	open    chan struct{} // closed by Open
	reached chan struct{} // closed by the first program that waits
	opened  sync.Once
	arrived sync.Once
}

// New returns a driver that works.
func New() *Driver {
	return &Driver{Capabilities: FullCaps(), verbs: newVerbs(), sandboxes: map[sandbar.ID]*sandbox{}, gates: map[string]*gate{}}
}

// FullCaps are the Caps of a driver that enforces everything.
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

// Stall holds up every call until the channel is closed or ctx ends.
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

// Deaf holds up every call until the channel is closed, whatever its ctx says.
func Deaf(until <-chan struct{}) Hook {
	return func(context.Context) error { <-until; return nil }
}

// Slow makes every call take d, whatever its ctx says.
func Slow(d time.Duration) Hook {
	return func(context.Context) error { time.Sleep(d); return nil }
}

// Panic panics in every call.
func Panic() Hook {
	return func(context.Context) error { panic("faulty: told to panic") }
}

// Pattern is the byte at an offset of what flood writes: the alphabet, over
// and over.
func Pattern(offset int64) byte { return 'a' + byte(offset%26) }

// Caps returns Capabilities.
func (d *Driver) Caps() driver.Caps { return d.Capabilities }

// Create makes a sandbox, which is a name and some memory. As a real driver
// does, it refuses a Spec that it cannot enforce.
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
	if d.Bare {
		return b, nil
	}
	return able{b}, nil
}

func (d *Driver) hook(ctx context.Context, h Hook) error {
	if h == nil {
		return nil
	}
	return h(ctx)
}

// Close is counted.
func (d *Driver) Close() error {
	d.closed.Add(1)
	return nil
}

// Open lets all programs go on that wait for name, now or later.
func (d *Driver) Open(name string) {
	g := d.gate(name)
	g.opened.Do(func() { close(g.open) })
}

// Reached returns a channel that is closed when a program waits for name.
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

// Die ends a sandbox as if its backend had died; false if there is none.
func (d *Driver) Die(id sandbar.ID) bool {
	d.mu.Lock()
	b := d.sandboxes[id]
	d.mu.Unlock()
	if b != nil {
		b.die()
	}
	return b != nil
}

// DieAll ends all sandboxes as if the backend had died; false if there is none.
func (d *Driver) DieAll() bool {
	d.mu.Lock()
	all := slices.Collect(maps.Values(d.sandboxes))
	d.mu.Unlock()
	for _, b := range all {
		b.die()
	}
	return len(all) > 0
}

// Counts are what a driver has now and has had.
type Counts struct {
	Sandboxes, Processes        int // alive now
	Left                        int // what programs have left behind, alive now
	Created, Destroyed, Started int // ever
	Closed                      int // calls of Close
}

// Counts returns the numbers of this moment.
func (d *Driver) Counts() Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Counts{Sandboxes: len(d.sandboxes), Processes: d.processes, Left: d.left, Created: int(d.created.Load()),
		Destroyed: int(d.destroyed.Load()), Started: int(d.started.Load()), Closed: int(d.closed.Load())}
}

// Leaks is an error if anything is alive.
func (d *Driver) Leaks() error {
	if c := d.Counts(); c.Sandboxes != 0 || c.Processes != 0 || c.Left != 0 || c.Created != c.Destroyed {
		return fmt.Errorf("faulty: something is left: %+v", c)
	}
	return nil
}

// Written is how many bytes programs have got rid of, whether they have been
// received or lie in a pipe.
func (d *Driver) Written() int64 { return d.written.Load() }

// Events are the steps done and the signals received, in order: "create",
// "start", "signal 15", "kill tree", "end" (of a program), "destroy".
func (d *Driver) Events() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.events)
}

// Specs are the Specs of all sandboxes ever made.
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

// errGone is the error of everything in a sandbox that has ended.
var errGone = errors.New("the sandbox has ended")

func gone() error { return &sandbar.Error{Code: sandbar.Gone, Err: errGone} }
