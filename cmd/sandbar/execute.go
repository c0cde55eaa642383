package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/cli/outcome"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

// limitFlags are the flags for limits. limit is the name in the configuration.
var limitFlags = []struct{ flag, limit, help string }{
	{"timeout", "timeout", "`duration` after which the program is killed, or unlimited (default 30s)"},
	{"memory", "memory", "`size` of the sandbox's total memory, in MiB without a unit, or unlimited (default 256MiB)"},
	{"cpus", "cpus", "`number` of processors, or unlimited (default unlimited)"},
	{"shares", "cpu_shares", "CPU `weight` relative to other sandboxes; 1024 is one share (default 512)"},
	{"pids", "pids", "`number` of processes and threads at once, or unlimited (default 128)"},
	{"disk", "disk", "`size` of all writable files together, or unlimited (default 256MiB)"},
	{"output", "output", "`size` of stdout and stderr together (default unlimited; with --json 1MiB)"},
}

// executionHelp is the part of the help texts that run and eval share.
const executionHelp = `
Standard input is passed to the program (see --stdin); its output is streamed.

A limit may exceed the daemon's default maximum, but not a maximum that the
configuration sets (limits.max). A limit that this host cannot enforce is an error
unless --allow-degraded is given.

Exit code: the program's own, or
  2        a mistake on the command line or in the configuration
  124      killed at the timeout
  125      Sandbar could not run the program, or lost it
  126/127  the program is not executable, or was not found
  128+N    ended by signal N: 130 after Ctrl-C, 137 (with a message) at the
           memory limit, 141 if the reader closed the output, 153 at the output
           limit

Ctrl-C ends the program with its grace period; a second Ctrl-C kills it at once.`

// executionFlags adds the flags that run and eval share.
func (a *app) executionFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	for _, l := range limitFlags {
		f.String(l.flag, "", l.help)
	}
	f.StringArrayP("env", "e", nil, "environment variable, `NAME=VALUE`, or NAME to pass on your own; may be repeated")
	f.String("stdin", "", "`file` the program reads, or - for your own standard input (default -)")
	f.Bool("allow-degraded", false, "run even if this host cannot enforce a limit")
	f.Bool("network", false, networkHelp)
	f.Bool("json", false, "print one JSON object at the end instead of streaming")
	a.settings(cmd, driverSetting)
}

// execution is the one program of a run or eval command.
type execution struct {
	app  *app
	cmd  *cobra.Command
	cfg  *config.Config
	job  sandbar.Job
	json bool
}

// newExecution reads the flags that run and eval share into a job.
func (a *app) newExecution(cmd *cobra.Command) (*execution, error) {
	cfg, err := a.configuration(cmd, driverSetting)
	if err != nil {
		return nil, err
	}
	x := &execution{app: a, cmd: cmd, cfg: cfg}
	f := cmd.Flags()
	x.json, _ = f.GetBool("json")
	x.job.Spec.AllowDegraded, _ = f.GetBool("allow-degraded")
	x.job.Spec.Network = networkFlag(cmd)
	if cfg.Code.Network && !f.Changed("network") {
		x.job.Spec.Network = sandbar.NetworkOutbound
	}
	names, _ := f.GetStringArray("env")
	var envErr error
	x.job.Spec.Env, envErr = a.parseEnv(cmd, names)
	if err = errors.Join(limitsOf(cmd, &x.job.Spec.Limits), envErr); err != nil {
		return nil, err
	}
	x.liftOutputLimit()
	return x, nil
}

// limitsOf reads those of limitFlags that the command has and that were given.
func limitsOf(cmd *cobra.Command, l *sandbar.Limits) error {
	var errs []error
	for _, known := range limitFlags {
		if flag := cmd.Flags().Lookup(known.flag); flag != nil && flag.Changed {
			text := flag.Value.String()
			if known.limit == "memory" && text != "" && strings.Trim(text, "0123456789") == "" {
				text += "MiB" // as other sandbox tools have it
			}
			errs = append(errs, config.SetLimit(l, known.limit, "--"+known.flag, text))
		}
	}
	return errors.Join(errs...)
}

// liftOutputLimit removes the default output limit if output is streamed, or truncated
// without ending the program: then output costs no memory, and its reader can stop the
// program. A configured limit or maximum stays.
func (x *execution) liftOutputLimit() {
	l := &x.job.Spec.Limits
	if l.Output != 0 || x.json && x.maxPrinted() < 0 || x.cfg.Origin("limits.default.output") != "" {
		return
	}
	l.Output = sandbar.Unlimited
	if x.cfg.Origin("limits.max.output") != "" {
		l.Output = x.cfg.Limits.Max.Output
	}
}

// maxPrinted returns how many bytes of each stream are printed; negative for all, the default.
func (x *execution) maxPrinted() int64 {
	if x.cfg.Origin("code.max_output") == "" {
		return sandbar.Unlimited
	}
	return x.cfg.Code.MaxOutput
}

// environment reads the values of --env.
func (a *app) parseEnv(cmd *cobra.Command, entries []string) (map[string]string, error) {
	env := map[string]string{}
	for _, e := range entries {
		name, value, given := strings.Cut(e, "=")
		if name == "" {
			return nil, usagef(cmd, "--env: %s has no name (allowed: NAME=VALUE or NAME)", cli.Quote(e))
		}
		if !given {
			own, ok := lookupEnv(a.environ, name)
			if !ok {
				return nil, usagef(cmd, "--env: %s is not set here, so it cannot be passed on (allowed: NAME=VALUE or NAME)", cli.Quote(name))
			}
			value = own
		}
		env[name] = value
	}
	return env, nil
}

func lookupEnv(environ []string, name string) (string, bool) {
	for i := len(environ) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(environ[i], name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// openStdin sets the program's standard input from --stdin. taken reports that this
// process's standard input has been read as code.
func (x *execution) openStdin(taken bool) (closer func(), err error) {
	flag := x.cmd.Flags().Lookup("stdin")
	switch name := flag.Value.String(); {
	case name == "-" && taken:
		return nil, usagef(x.cmd, "--stdin: standard input already holds the code (allowed: a file)")
	case name == "" && flag.Changed:
		return nil, usagef(x.cmd, "--stdin: the name is empty (allowed: a file, or -)")
	case name == "" && taken:
		return func() {}, nil
	case name == "" || name == "-":
		x.job.Stdin = cli.Input{Reader: x.app.stdin}
		return func() {}, nil
	default:
		f, err := cli.OpenFile(name)
		if err != nil {
			return nil, usagef(x.cmd, "--stdin: %s", err)
		}
		x.job.Stdin = cli.Input{Reader: f}
		return func() { f.Close() }, nil
	}
}

// run runs the job, removes the sandbox, and returns an error that holds the exit code.
func (x *execution) run() error {
	a := x.app
	d, err := a.newDriver(x.cfg, commandLogger(x.cfg, a.stderr))
	if err != nil {
		return x.printer().Failed(err)
	}
	e, err := a.newEngine(x.cfg, d, commandLogger(x.cfg, a.stderr), func(c *engine.Config) { ownLimits(x.cfg, c) })
	if err != nil {
		return x.printer().Failed(err)
	}
	defer a.removeSandbox(e)
	run, err := e.Admit(x.job)
	if err != nil {
		if err := sandbar.AsError(err); err.Field == "language" {
			return cli.Fail(cli.ExitUsage, err)
		}
		return x.printer().Failed(err)
	}
	canceller := a.cancelOnSignals(run)
	defer canceller.close()
	out := outcome.NewStreams(a.stdout, a.stderr, x.maxPrinted())
	if x.json {
		out.Capture()
	}
	result, err := run.Run(out)
	p := x.printer()
	p.Signal, p.Caps = canceller.signal(), e.Caps()
	return p.Ended(result, err, out)
}

// ownLimits sets the limits of a command with one sandbox, which its user owns.
func ownLimits(cfg *config.Config, c *engine.Config) {
	platform.OwnLimits(cfg, c)
	c.MaxSandboxes = 1
}

// removalTime bounds the removal of a command's only sandbox.
const removalTime = 10 * time.Second

// removeSandbox shuts down the engine of a command with one sandbox.
func (a *app) removeSandbox(e *engine.Engine) {
	ctx, cancel := context.WithTimeout(context.Background(), removalTime)
	defer cancel()
	if err := e.Shutdown(ctx); err != nil {
		a.warn("the sandbox could not be removed: %v (\"sandbar gc\" removes leftovers)", err)
	}
}

// printer returns the printer of the program's outcome.
func (x *execution) printer() outcome.Printer {
	return outcome.Printer{Stdout: x.app.stdout, Stderr: x.app.stderr, JSON: x.json, MaxOutput: x.maxPrinted(), Limits: x.limits()}
}

// limits returns the limits that were in force, as far as flags or configuration set them.
func (x *execution) limits() sandbar.Limits {
	l := x.job.Spec.Limits
	def := x.cfg.Limits.Default
	if l.Memory == 0 {
		l.Memory = def.Memory
	}
	if l.Timeout == 0 {
		l.Timeout = def.Timeout
	}
	if l.Output == 0 {
		l.Output = def.Output
	}
	return l
}
