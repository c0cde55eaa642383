// Package engine is the platform: one concrete type that every protocol calls
// and that calls a driver. It owns what must be the same behind every
// boundary: admission and queue, clocks, output caps, replay, idle reaping,
// the precedence of outcomes, and an orderly end.
//
// There are two ways to use it. A one-shot execution (Admit, then Run) makes a
// fresh sandbox, runs one program and destroys the sandbox. A long-lived
// sandbox (Create) is driven by Start and Exec until it is stopped or reaped.
package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine/lang"
)

// Config is what an Engine is made from. New fills zero fields with the
// defaults given here.
type Config struct {
	Driver       driver.Driver   // makes the sandboxes of a Spec that names none
	ExtraDrivers []ExtraDriver   // drivers that a Spec may name besides
	Languages    *lang.Catalogue // default: lang.Default()
	Logger       *slog.Logger    // default: discards

	// Default fills limits a Spec leaves unset. Its own zero fields: Memory
	// 256 MiB, CPUs Unlimited, CPUShares 512, PIDs 128, Disk half of the memory
	// that the sandbox has (256 MiB where that is Unlimited), Inodes 65536,
	// Files 1024, Timeout 30 s, Output 1 MiB. These move into the range of Min and Max; what is set here and lies outside is Invalid,
	// except Unlimited, which is then what a caller who asks for nothing gets.
	Default sandbar.Limits
	// Min and Max are the range a caller may ask for; a limit outside is
	// Invalid and the message names the range. Zero fields of Max: Memory
	// 1 GiB, CPUs the host's processors, CPUShares 262144, PIDs 4096, Disk
	// 4 GiB, Inodes 1 Mi, Files 65536, Timeout 300 s, Output 64 MiB. A field of
	// Max that is Unlimited allows Unlimited. Zero fields of Min: Memory
	// 16 MiB, CPUs 0.01, CPUShares 2, PIDs 4, Disk 64 KiB, Inodes 16, Files 16,
	// Timeout 1 ms, Output 0 (see Limits.Output: 0 in a Spec is "unset").
	Min, Max sandbar.Limits

	MaxSandboxes int           // live at once, one-shot and long-lived together; default 64
	MaxQueue     int           // waiting for a place, each with its code; default 1024, <0 none may; more is Exhausted
	QueueTimeout time.Duration // longest wait for a place; default 60 s, <0 no end; then Timeout
	MaxCode      int64         // bytes of Job.Code; default 1 MiB; more is TooLarge
	MaxEnv       int64         // bytes of keys and values; default 64 KiB; more is TooLarge
	MaxFile      int64         // bytes of a file that is read out of a sandbox, holes included; default 16 GiB; more is TooLarge

	// Clients bounds clients by their names; see sandbar.Client. All others may
	// have what there is.
	Clients map[string]ClientLimits

	Grace        time.Duration // between TERM and KILL; default 500 ms; <0 none: KILL at once
	IdleTimeout  time.Duration // long-lived sandbox without work, where its Spec does not say; default 10 min; <0 never
	MaxLifetime  time.Duration // of a long-lived sandbox; default 24 h; <0 no end
	ReplayBytes  int           // kept per stream of a followed process; default 1 MiB
	KeepFinished int           // finished processes kept per sandbox; default 64, <0 none

	// AllowDegraded accepts limits that this host cannot enforce for every
	// Spec, as the operator's decision. Without it such a limit is refused when
	// a caller asks for it, and always for memory and pids; any other default
	// that cannot be held is dropped, and New logs it.
	AllowDegraded bool

	// CheckLanguages has Admit refuse a job whose interpreter is not in its sandbox. Without it that
	// is found when the program is started. What is there is looked for once for each driver and
	// image, from New on for the defaults.
	CheckLanguages bool

	// Templates are sandboxes to keep ready; see Template. They take places of
	// MaxSandboxes that are free, and give them back when they are needed.
	Templates []Template
	// ReadyMemory is how many bytes ready sandboxes may hold together, as far as
	// they are more than the floors of Templates; default 512 MiB, <0 nothing.
	ReadyMemory int64
	// Vet, if set, is asked about the code of a job before it is written to the
	// sandbox: a nil error lets it run. It may start programs in the sandbox. Its time
	// is part of the setup's, which ctx bounds.
	Vet func(ctx context.Context, s driver.Sandbox, l lang.Language, code string) error

	// Record, if set, is called as the Run of each execution begins, with its job:
	// the Spec is complete, and the input is left out. The Sink it returns is used
	// instead of the one it is given, and the function, if it is not nil, is told
	// what came of the execution before Run returns.
	Record func(j sandbar.Job, s Sink) (Sink, func(sandbar.Result, error))

	// Observe, if set, is called at the end of every execution, from the
	// goroutine that ran it; it must return quickly.
	Observe func(Observation)

	halfDisk bool // Default.Disk was not set
}

// Other is a driver that a Spec may name. All drivers of an Engine share its
// places and its queue.
type ExtraDriver struct {
	Driver driver.Driver
	// Default is Config.Default for sandboxes of this driver. Zero fields are
	// those of Config.Default.
	Default sandbar.Limits
}

// Observation is one ended execution, for metrics. It holds no code, no
// environment and no output.
type Observation struct {
	Language string // "" for a plain command
	Result   sandbar.Result
	Err      error         // the platform's failure, if it was one
	Queued   time.Duration // waiting for a place
	Setup    time.Duration // making the sandbox
	Total    time.Duration // Admit to the result
}

// Stats is the engine's load at one moment.
type Stats struct {
	Active    int // one-shot executions that have a place: set up, running or torn down
	Queued    int // admitted and waiting for a place
	Sandboxes int // live long-lived sandboxes
	Ready     int // sandboxes of templates that wait for a job, are being made, or give way
	Capacity  int // Config.MaxSandboxes
	Removing  int // ended sandboxes that resist removal; each keeps its place until it is gone
}

// Sink receives what an execution does, in order, from one goroutine at a
// time. A Sink that blocks holds the program back.
//
// An error or a panic of a Sink cancels the execution and is the last call.
// After an error the result is Cancelled; after a panic it is an Internal error.
type Sink interface {
	// Started is called once, when the program runs.
	Started()
	// Output is called for each piece of output, after Started. The chunk's
	// Data is valid only during the call. ErrFull ends the execution with
	// OutputLimit; any other error cancels it.
	Output(c sandbar.Chunk) error
}

// ErrFull is what a Sink's Output returns when the output, in the form that the
// sink gives it, would be longer than the limit.
var ErrFull = errors.New("the output limit is reached")

// Discard is a Sink that ignores everything.
var Discard Sink = discard{}

type discard struct{}

func (discard) Started()                   {}
func (discard) Output(sandbar.Chunk) error { return nil }

// Info describes a long-lived sandbox.
type Info struct {
	ID       sandbar.ID
	Spec     sandbar.Spec
	Created  time.Time
	LastUsed time.Time
	Enforced sandbar.Enforcements
	Running  int // programs running in it
}

// Offsets are places in the two outputs of a process.
type Offsets struct{ Stdout, Stderr int64 }
