// Package engine implements the platform: the type Engine, which every protocol calls and which
// calls a driver. It has everything that is the same for all drivers: admission and queue, time
// limits, output limits, replay, the idle timeout, the precedence of outcomes, and shutdown.
//
// There are two ways to use it. A one-shot execution (Admit, then Run) makes a new sandbox, runs
// one program and destroys the sandbox. A long-lived sandbox (Create) runs programs with Start and
// Exec until it is stopped, idle for too long, or too old.
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

// Config is the configuration of an Engine. New sets zero fields to the defaults given here.
type Config struct {
	Driver       driver.Driver   // makes the sandboxes of a Spec that names no driver
	ExtraDrivers []ExtraDriver   // further drivers that a Spec may name
	Languages    *lang.Catalogue // default: lang.Default()
	Logger       *slog.Logger    // default: discards

	// Default is the value of limits that a Spec leaves unset. Its own zero fields: Memory 256 MiB,
	// CPUs Unlimited, CPUShares 512, PIDs 128, Disk half of the sandbox's memory (256 MiB if that is
	// Unlimited), Inodes 65536, Files 1024, Timeout 30 s, Output 1 MiB. These values move into the
	// range of Min and Max. A value set here outside that range is Invalid, except Unlimited.
	Default sandbar.Limits
	// Min and Max are the range that a caller may request. A limit outside is Invalid, and the
	// message names the range. Zero fields of Max: Memory 1 GiB, CPUs the host's processors,
	// CPUShares 262144, PIDs 4096, Disk 4 GiB, Inodes 1 Mi, Files 65536, Timeout 300 s, Output 64
	// MiB. A field of Max that is Unlimited allows Unlimited. Zero fields of Min: Memory 16 MiB, CPUs
	// 0.01, CPUShares 2, PIDs 4, Disk 64 KiB, Inodes 16, Files 16, Timeout 1 ms, Output 0 (0 in a
	// Spec is "unset").
	Min, Max sandbar.Limits

	MaxSandboxes int           // number of slots: live sandboxes, one-shot and long-lived together; default 64
	MaxQueue     int           // waiting requests, each with its code in memory; default 1024, <0 none; more is Exhausted
	QueueTimeout time.Duration // longest wait for a slot; default 60 s, <0 no limit; then Timeout
	MaxCode      int64         // bytes of Job.Code; default 1 MiB; more is TooLarge
	MaxEnv       int64         // bytes of names and values; default 64 KiB; more is TooLarge
	MaxFile      int64         // bytes of a file read from a sandbox, holes included; default 16 GiB; more is TooLarge

	// Clients are the limits of clients by name; see sandbar.Client. A client that is not listed has
	// no limits of its own.
	Clients map[string]ClientLimits
	// Tenants are the quotas of tenants by name. A tenant that is not listed has none. The default
	// tenant, whose name is "", has the limits of its clients.
	Tenants map[string]TenantLimits
	// Elsewhere, if set, returns what a tenant has of its quotas in all other engines that serve it,
	// so that the quotas hold over all. It is called for each request that makes or pauses a sandbox,
	// if the tenant has a quota besides Rate, while the request counts here. Its error is that of the
	// request. It must return in bounded time even if ctx never ends, as that of Admit.
	Elsewhere func(ctx context.Context, tenant string) (TenantUsage, error)

	Grace        time.Duration // grace period between TERM and KILL; default 500 ms; <0 KILL at once
	IdleTimeout  time.Duration // default of Spec.IdleTimeout; default 10 min; <0 never
	MaxLifetime  time.Duration // of a long-lived sandbox; default 24 h; <0 no limit
	ReplayBytes  int           // bytes kept of each output stream of a process; default 1 MiB
	KeepFinished int           // finished processes kept per sandbox; default 64, <0 none

	// AllowDegraded accepts limits that this host cannot enforce, for every Spec. Without it such a
	// limit is Unsupported if the caller requests it, and in any case for memory and pids. Any other
	// default that cannot be enforced is dropped, and New logs it.
	AllowDegraded bool

	// CheckLanguages makes Admit refuse a job whose interpreter does not exist in its sandbox.
	// Without it the start of the program fails. The check runs once for each driver and image; for
	// the defaults it begins in New.
	CheckLanguages bool

	// Templates describe prestarted sandboxes; see Template. They use free slots of MaxSandboxes and
	// give them up when requests wait.
	Templates []Template
	// ReadyMemory bounds the memory of all prestarted sandboxes together, in bytes. The sandboxes of
	// Template.Min are made even beyond it. Default 512 MiB, <0 only Template.Min.
	ReadyMemory int64
	// PausedDir is the directory of paused sandboxes, with mode 0700. No other process may use it.
	// New removes incomplete states from it. Default: none; Pause is Unsupported.
	PausedDir string
	// MaxPaused bounds the paused sandboxes; default 64, <0 no bound. MaxPausedBytes bounds the space
	// that they take on disk together; default 16 GiB, <0 no bound. More is Exhausted.
	MaxPaused      int
	MaxPausedBytes int64
	// PausedShare is the share of MaxPaused and MaxPausedBytes that one client with a name can use,
	// in percent; default 25, <0 all. A share of MaxPaused is at least one sandbox. More is
	// Exhausted.
	PausedShare int

	// Vet, if set, checks the code of a job before it is written to the sandbox. An error refuses the
	// code. Vet may start programs in the sandbox. Its time counts as setup, which ctx bounds.
	Vet func(ctx context.Context, s driver.Sandbox, l lang.Language, code string) error

	// Record, if set, is called at the start of Run of each execution with its job: the Spec is
	// complete, and Stdin is nil. The execution uses the returned Sink instead of s. The returned
	// function, if not nil, is called with the result before Run returns.
	Record func(j sandbar.Job, s Sink) (Sink, func(sandbar.Result, error))

	// Observe, if set, is called at the end of every execution, in the goroutine that ran it. It must
	// return quickly.
	Observe func(Observation)

	// ObserveRefusal, if set, is called for each call of a client that fails before it begins work. It
	// must return quickly.
	ObserveRefusal func(Refusal)

	// Tracer, if set, records traces of requests.
	Tracer Tracer

	// Audit, if set, records what clients do. The client of an execution and of Create is that of the
	// Spec, of all other calls that of WithClient.
	Audit Auditor

	halfDisk bool // Default.Disk was not set
}

// ExtraDriver is a further driver that a Spec may name. All drivers of an Engine share its slots
// and its queue.
type ExtraDriver struct {
	Driver driver.Driver
	// Default is Config.Default for sandboxes of this driver. Zero fields are taken from
	// Config.Default.
	Default sandbar.Limits
}

// Observation is one ended execution, for metrics. It has no code, environment or output.
type Observation struct {
	Client   sandbar.Client // the zero Client for a program of this process itself
	Driver   string
	Language string // "" for a plain command
	Result   sandbar.Result
	Err      error         // the failure of the platform; nil for none
	Queued   time.Duration // waiting for a slot
	Setup    time.Duration // making the sandbox
	Total    time.Duration // from Admit to the result
}

// Refusal is a call that failed before it began work, for metrics.
type Refusal struct {
	Client sandbar.Client
	Verb   Verb
	Code   sandbar.Code
}

// Stats is the engine's load at one moment.
type Stats struct {
	Active    int // one-shot executions with a slot: in setup, running or being removed
	Queued    int // admitted and waiting for a slot
	Sandboxes int // live long-lived sandboxes
	Ready     int // slots of prestarted sandboxes: being made, ready, or being removed unused
	Capacity  int // Config.MaxSandboxes
	Removing  int // ended sandboxes whose removal failed repeatedly; each keeps its slot until it is gone
}

// ClientStats is the load of one client of the default tenant, or of another tenant with all its
// clients.
type ClientStats struct {
	Name   string // "" for the daemon's own token, and for a tenant
	Tenant string // "" for the default tenant

	Sandboxes int   // long-lived sandboxes with a slot
	Active    int   // one-shot executions with a slot
	Queued    int   // requests that wait for a slot
	Memory    int64 // the memory limits of all of these together, in bytes
}

// ContextLanguage is a language of contexts.
type ContextLanguage struct {
	Name    string
	Aliases []string
}

// Sink receives the events of an execution in order, from one goroutine at a time. A Sink that
// blocks also blocks the program's output.
//
// An error or a panic of a Sink cancels the execution and is the last call. After an error the
// result is Cancelled; after a panic it is an Internal error.
type Sink interface {
	// Started is called once, when the program runs.
	Started()
	// Output is called for each piece of output, after Started. The chunk's Data is valid only during
	// the call. ErrFull ends the execution with OutputLimit; any other error cancels it.
	Output(c sandbar.Chunk) error
}

// ErrFull is the error that a Sink's Output returns if the output, in the Sink's own encoding,
// would exceed the limit.
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
	Expires  time.Time // the end of Config.MaxLifetime; zero for no end
	Enforced sandbar.Enforcements
	Running  int // programs that run in it
}

// Offsets are positions in the two output streams of a process.
type Offsets struct{ Stdout, Stderr int64 }
