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

// Agent is the program that native sandboxes have as their first process. Its
// zero value is none; Open needs one.
type Agent struct {
	set     bool
	program []byte // nil: the running program
}

// Self makes the running program the agent. It must be called first in main,
// before flags are read and anything is opened or started: in a process that a
// driver started it does not return. The program must be linked without
// C (CGO_ENABLED=0), as sandboxes need not have the libraries of C.
func Self() Agent {
	all.Main()
	return Agent{set: true}
}

// AgentProgram makes a program the agent: the built cmd/sandbar-agent. A program
// that does not call Self as well has no sandboxes that reach out.
func AgentProgram(program []byte) Agent { return Agent{set: len(program) > 0, program: program} }

// Options are what a Sandbox is made from.
type Options struct {
	// Agent is what Self or AgentProgram returned. Needed.
	Agent Agent
	// Environ are the variables with the settings, as os.Environ has them. Nil:
	// the defaults, and no configuration file but the one that File names or that
	// is at its usual place.
	Environ []string
	// File is the configuration file, as for --config. "" is SANDBAR_CONFIG, or
	// the file at its usual place if there is one.
	File string
	// Logger takes what the platform logs. Nil discards it.
	Logger *slog.Logger
}

// Sandbox runs code, each time in a fresh sandbox that is gone afterwards. Its
// methods may be called concurrently.
type Sandbox struct {
	engine *engine.Engine
	rules  Rules
}

// Rules are what an operator decides for every request.
type Rules struct {
	// Timeout, unless it is 0, is the time limit of each request, whatever the request asks for.
	Timeout time.Duration
	// MaxOutput is how many bytes are kept of each output. Default: 10 KiB;
	// sandbar.Unlimited keeps all.
	MaxOutput int64
	// Network gives every program sandbar.NetworkOutbound.
	Network bool
}

// defaultMaxOutput is Rules.MaxOutput where it is 0, in bytes.
const defaultMaxOutput = 10 << 10

// Drivers returns the drivers of this build, the strongest boundary first, for a program that makes
// an engine.Engine of its own. Invalid: a was not returned by Self or AgentProgram.
func Drivers(a Agent) ([]driver.Factory, error) {
	if !a.set {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "Options.Agent", Message: "there is no agent",
			Fix: "call sandbox.Self first in main, and pass on what it returns"}
	}
	return all.Factories(a.program), nil
}

// Open makes the drivers and the engine that the settings ask for. Errors:
// Invalid for settings that cannot be and for a missing Agent; Unsupported or
// Unavailable where a driver that the settings name does not work here, and
// Unsupported where "auto" finds none with a boundary.
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
	e, err := platform.NewEngine(cfg, ds, log, recorder.Into)
	if err != nil {
		return nil, err
	}
	return Over(e, Rules{Timeout: cfg.Code.Timeout, MaxOutput: cfg.Code.MaxOutput, Network: cfg.Code.Network}), nil
}

// Over returns a Sandbox over an engine. Its Close shuts that engine down.
func Over(e *engine.Engine, r Rules) *Sandbox {
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
	// Timeout is the most time the program may take. Default: the settings', 30 s. Where the
	// settings have code.timeout (SANDBOX_TIMEOUT_SEC) it has no effect.
	Timeout time.Duration
	// Args are given to the program after its own name.
	Args []string
	// Env is the program's environment, besides what its language needs.
	Env map[string]string
	// Stdin is what the program reads. Default: nothing.
	Stdin io.Reader
	// Driver is the name of the driver to run it, one that the settings allow
	// (driver, allowed_drivers). Default: the settings' driver.
	Driver string
}

// Execute runs code in a fresh sandbox and returns when that is known which came
// of it. The end of ctx ends the program; the Result then says "cancelled".
//
// Errors: Invalid, TooLarge, Unsupported for a request that cannot be; Exhausted
// and Timeout where there is no place for it; Canceled where ctx ended before the
// program began; Denied for code that could not be checked for what it imports.
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
	m := newMeta(caps, job.Language, limits, s.rules.MaxOutput)
	if blocked, ok := newBlocked(err, m); ok {
		return blocked, nil
	}
	if err != nil {
		return Result{}, err
	}
	return newResult(result, out, m, limits), nil
}

// job is a request as the engine takes it. What the program writes beyond the cut
// is thrown away up to the most that the settings allow, at which it is ended.
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

// caps are those of a driver by the name it was asked for.
func (s *Sandbox) caps(name string) driver.Caps {
	drivers := s.engine.Drivers()
	if i := slices.IndexFunc(drivers, func(c driver.Caps) bool { return c.Name == name }); i >= 0 {
		return drivers[i]
	}
	return s.engine.Caps()
}

// Languages are the names of the languages that may be asked for, sorted.
func (s *Sandbox) Languages() []string { return s.engine.Languages().Names() }

// Driver tells what runs the code of a request that names no driver.
func (s *Sandbox) Driver() driver.Caps { return s.engine.Caps() }

// Close ends what still runs and removes everything. An error names what is left.
func (s *Sandbox) Close() error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	return s.engine.Shutdown(now)
}

// Execute is Open, Sandbox.Execute and Sandbox.Close in one, for a program that
// runs code once. Whoever runs more keeps a Sandbox.
func Execute(ctx context.Context, o Options, r Request) (Result, error) {
	s, err := Open(o)
	if err != nil {
		return Result{}, err
	}
	result, err := s.Execute(ctx, r)
	return result, errors.Join(err, s.Close())
}
