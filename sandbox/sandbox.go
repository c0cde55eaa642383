package sandbox

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/all"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

// Agent is the first process of native sandboxes. Open requires one; the zero value is none.
type Agent struct {
	set     bool
	program []byte // nil: the running program
}

// Self makes the running program the agent. Call it first in main, before flags are parsed and
// files are opened: in a process that a driver started it does not return. The program must be
// linked without C (CGO_ENABLED=0), because a sandbox may lack the C libraries.
func Self() Agent {
	all.Main()
	return Agent{set: true}
}

// AgentProgram makes a program the agent: the built cmd/sandbar-agent. A program that does not also
// call Self has no sandboxes with sandbar.NetworkOutbound.
func AgentProgram(program []byte) Agent { return Agent{set: len(program) > 0, program: program} }

// Options is the configuration of a Sandbox.
type Options struct {
	// Agent is the return value of Self or AgentProgram. Required.
	Agent Agent
	// Environ are the variables with the settings, as from os.Environ. Nil: the defaults, and no
	// configuration file except File or the one at its usual place.
	Environ []string
	// File is the configuration file, as for --config. "": SANDBAR_CONFIG, or the file at its usual
	// place if it exists.
	File string
	// Logger is the platform's logger. Nil discards logs.
	Logger *slog.Logger
}

// Sandbox runs code. Each run has a new sandbox that is destroyed afterwards. Its methods may be
// called concurrently.
type Sandbox struct {
	engine *engine.Engine
	rules  Rules
}

// Rules are the operator's settings for every request.
type Rules struct {
	// Timeout, unless it is 0, is the time limit of each request and overrides Request.Timeout.
	Timeout time.Duration
	// MaxOutput is the number of bytes kept of each output stream. Default: 10 KiB;
	// sandbar.Unlimited keeps all.
	MaxOutput int64
	// Network gives every program sandbar.NetworkOutbound.
	Network bool
	// Version is Sandbar's version in Meta.Versions. Default: the version or the revision in the
	// program's build information.
	Version string
}

// defaultMaxOutput is the default of Rules.MaxOutput, in bytes.
const defaultMaxOutput = 10 << 10

// Drivers returns the drivers of this build, the strongest boundary first, for a program that makes
// its own engine.Engine. Invalid: a was not returned by Self or AgentProgram.
func Drivers(a Agent) ([]driver.Factory, error) {
	if !a.set {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "Options.Agent", Message: "there is no agent",
			Fix: "call sandbox.Self first in main, and pass on what it returns"}
	}
	return all.Factories(a.program, nil), nil
}

// Open makes the drivers and the engine of the settings. Errors: Invalid for wrong settings and for
// a missing Agent; Unsupported or Unavailable if a driver that the settings name does not work
// here, and Unsupported if "auto" finds no driver with a boundary.
func Open(o Options) (*Sandbox, error) {
	factories, err := Drivers(o.Agent)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Load(config.Input{File: o.File, Environ: o.Environ, Drivers: platform.Settings(factories)})
	if err != nil {
		return nil, err
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ds, err := platform.OpenDrivers(cfg, factories, log)
	if err != nil {
		return nil, err
	}
	recorder, err := NewRecorder(RecorderOptions{
		Dir: cfg.Code.Executions(), FailedOnly: cfg.Code.Store == config.StoreOnError, MaxOutput: cfg.Code.MaxOutput,
		Caps: ds.Caps, Failed: func(err error) { log.Error("an execution could not be kept", "error", err) },
	})
	if err != nil {
		return nil, errors.Join(err, ds.Close())
	}
	e, err := platform.NewEngine(cfg, ds, log, recorder.Configure)
	if err != nil {
		return nil, err
	}
	return FromEngine(e, Rules{Timeout: cfg.Code.Timeout, MaxOutput: cfg.Code.MaxOutput, Network: cfg.Code.Network}), nil
}

// FromEngine returns a Sandbox that uses e. Its Close shuts e down.
func FromEngine(e *engine.Engine, r Rules) *Sandbox {
	if r.MaxOutput == 0 {
		r.MaxOutput = defaultMaxOutput
	}
	return &Sandbox{e, r}
}

// Request is one piece of code to run.
type Request struct {
	// Code is the source text.
	Code string
	// Language is the name of a language. Default: "python".
	Language string
	// Timeout is the time limit of the program. Default: the settings', 30 s. It has no effect if
	// the settings have code.timeout (SANDBOX_TIMEOUT_SEC).
	Timeout time.Duration
	// Args are the program's arguments without its own name.
	Args []string
	// Env extends the environment of the language.
	Env map[string]string
	// Stdin is the program's standard input. Default: empty.
	Stdin io.Reader
	// Driver is the name of a driver that the settings allow (driver, allowed_drivers). Default:
	// the settings' driver.
	Driver string
}

// Execute runs code in a new sandbox and returns its result. The end of ctx ends the program; the
// Result's outcome is then "cancelled".
//
// Errors: Invalid, TooLarge, Unsupported for a wrong request; Exhausted and Timeout if there is no
// free slot; Canceled if ctx ended before the program started; Denied if the imports of the code
// could not be checked.
func (s *Sandbox) Execute(ctx context.Context, r Request) (Result, error) {
	if ctx.Err() != nil {
		return Result{}, sandbar.Errorf(sandbar.Canceled, "cancelled before it was admitted: %w", context.Cause(ctx))
	}
	job := s.job(r)
	x, err := s.engine.Admit(job)
	if err != nil {
		return Result{}, err
	}
	defer context.AfterFunc(ctx, x.Cancel)()
	out := newCapture(s.rules.MaxOutput, nil)
	result, err := x.Run(out)
	caps := s.caps(r.Driver)
	limits := x.Limits()
	m := newMeta(caps, s.rules.Version, job.Language, limits, s.rules.MaxOutput)
	if blocked, ok := newBlocked(err, m); ok {
		return blocked, nil
	}
	if err != nil {
		return Result{}, err
	}
	return newResult(result, out, m, limits), nil
}

// job converts a request to a job. Output beyond Rules.MaxOutput is discarded up to the settings'
// largest output limit, at which the program is ended.
func (s *Sandbox) job(r Request) sandbar.Job {
	language := r.Language
	if language == "" {
		language = "python"
	}
	timeout := r.Timeout
	if s.rules.Timeout > 0 {
		timeout = s.rules.Timeout
	}
	_, _, highest := s.engine.Limits()
	network := sandbar.NetworkNone
	if s.rules.Network {
		network = sandbar.NetworkOutbound
	}
	return sandbar.Job{Language: language, Code: r.Code, Args: r.Args, Stdin: r.Stdin,
		Spec: sandbar.Spec{Env: r.Env, Driver: r.Driver, Network: network, Limits: sandbar.Limits{Timeout: timeout, Output: highest.Output}}}
}

// caps returns the facts about the driver of a name; "" and unknown names are the engine's first.
func (s *Sandbox) caps(name string) driver.Caps {
	drivers := s.engine.Drivers()
	if i := slices.IndexFunc(drivers, func(c driver.Caps) bool { return c.Name == name }); i >= 0 {
		return drivers[i]
	}
	return s.engine.Caps()
}

// Languages returns the names of the available languages, sorted.
func (s *Sandbox) Languages() []string { return s.engine.Languages().Names() }

// Driver returns the facts about the driver of requests that name none.
func (s *Sandbox) Driver() driver.Caps { return s.engine.Caps() }

// Close ends running programs and removes all sandboxes. An error names what remains.
func (s *Sandbox) Close() error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	return s.engine.Shutdown(now)
}

// Execute is Open, Sandbox.Execute and Sandbox.Close, for a program that runs code once. To run
// code more often, keep a Sandbox.
func Execute(ctx context.Context, o Options, r Request) (Result, error) {
	s, err := Open(o)
	if err != nil {
		return Result{}, err
	}
	result, err := s.Execute(ctx, r)
	return result, errors.Join(err, s.Close())
}
