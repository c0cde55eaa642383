package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
	"github.com/sandbar-dev/sandbar/internal/text/truncate"
)

// limitFlags are the flags of run and eval for limits, by the limit's name in
// the configuration.
var limitFlags = []struct{ flag, limit, help string }{
	{"timeout", "timeout", "`duration` after which everything is killed, or unlimited (default 30s)"},
	{"memory", "memory", "`size` of all memory together, a number alone being MiB, or unlimited (default 256MiB)"},
	{"cpus", "cpus", "`number` of processors, or unlimited (default unlimited)"},
	{"shares", "cpu_shares", "`weight` against other sandboxes, 1024 is one share (default 512)"},
	{"pids", "pids", "`number` of processes and threads at once, or unlimited (default 128)"},
	{"disk", "disk", "`size` of all that can be written, or unlimited (default 256MiB)"},
	{"output", "output", "`size` of stdout and stderr together (default unlimited; with --json 1MiB)"},
}

// executionHelp is the part of the help texts that run and eval share.
const executionHelp = `
Standard input is passed on (see --stdin), output is streamed as it comes.

A limit may be larger here than the daemon by default allows its callers; a
maximum that the configuration sets (limits.max) still holds. A limit that this
host cannot enforce is refused unless you say --allow-degraded.

Exit code: the program's own, or
  2        a mistake on the command line or in the configuration
  124      killed at the timeout
  125      Sandbar could not run the program, or lost it
  126/127  the program may not be executed, or there is no such program
  128+N    ended by signal N: 130 after Ctrl-C, 137 (with a line that says so)
           for memory, 141 when nobody reads the output, 153 when --output
           was reached

Ctrl-C ends the program with its grace period, a second one kills it at once.`

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

// execution is one program that run or eval runs.
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
	x.job.Spec.Network = networkOf(cmd)
	if cfg.Code.Network && !f.Changed("network") {
		x.job.Spec.Network = sandbar.NetworkOutbound
	}
	names, _ := f.GetStringArray("env")
	var envErr error
	x.job.Spec.Env, envErr = a.environment(cmd, names)
	if err = errors.Join(limitsOf(cmd, &x.job.Spec.Limits), envErr); err != nil {
		return nil, err
	}
	x.chooseOutput()
	return x, nil
}

// limitsOf reads those of limitFlags that the command has and that were given.
func limitsOf(cmd *cobra.Command, l *sandbar.Limits) error {
	var errs []error
	for _, known := range limitFlags {
		if flag := cmd.Flags().Lookup(known.flag); flag != nil && flag.Changed {
			text := flag.Value.String()
			if known.limit == "memory" && text != "" && strings.Trim(text, "0123456789") == "" {
				text += "MiB" // as other programs of this kind have it
			}
			errs = append(errs, config.SetLimit(l, known.limit, "--"+known.flag, text))
		}
	}
	return errors.Join(errs...)
}

// chooseOutput takes the cap off output that is streamed, or cut without ending
// the program, unless somebody set one: it costs no memory, and whoever reads it
// can stop.
func (x *execution) chooseOutput() {
	l := &x.job.Spec.Limits
	if l.Output != 0 || x.json && x.cut() < 0 || x.cfg.Origin("limits.default.output") != "" {
		return
	}
	l.Output = sandbar.Unlimited
	if x.cfg.Origin("limits.max.output") != "" {
		l.Output = x.cfg.Limits.Max.Output
	}
}

// cut is how many bytes of each stream are passed on; negative for all, which is
// what nobody has set.
func (x *execution) cut() int64 {
	if x.cfg.Origin("code.max_output") == "" {
		return sandbar.Unlimited
	}
	return x.cfg.Code.MaxOutput
}

// environment reads the values of --env.
func (a *app) environment(cmd *cobra.Command, entries []string) (map[string]string, error) {
	env := map[string]string{}
	for _, e := range entries {
		name, value, given := strings.Cut(e, "=")
		if name == "" {
			return nil, usagef(cmd, "--env: %s has no name (allowed: NAME=VALUE or NAME)", quote(e))
		}
		if !given {
			own, ok := lookup(a.environ, name)
			if !ok {
				return nil, usagef(cmd, "--env: %s is not set here, so it cannot be passed on (allowed: NAME=VALUE or NAME)", quote(name))
			}
			value = own
		}
		env[name] = value
	}
	return env, nil
}

func lookup(environ []string, name string) (string, bool) {
	for i := len(environ) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(environ[i], name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// input is a program's standard input. It hides that it may be a file: no
// program gets a descriptor of ours, least of all one of a terminal.
type input struct{ io.Reader }

// openStdin sets the program's standard input from --stdin. taken tells that
// our own has been read for something else.
func (x *execution) openStdin(taken bool) (closer func(), err error) {
	flag := x.cmd.Flags().Lookup("stdin")
	switch name := flag.Value.String(); {
	case name == "-" && taken:
		return nil, usagef(x.cmd, "--stdin: standard input holds the code already (allowed: a file)")
	case name == "" && flag.Changed:
		return nil, usagef(x.cmd, "--stdin: the name is empty (allowed: a file, or -)")
	case name == "" && taken:
		return func() {}, nil
	case name == "" || name == "-":
		x.job.Stdin = input{x.app.stdin}
		return func() {}, nil
	default:
		f, err := openFile(name)
		if err != nil {
			return nil, usagef(x.cmd, "--stdin: %s", err)
		}
		x.job.Stdin = input{f}
		return func() { f.Close() }, nil
	}
}

// openFile opens a file to read: anything but a directory.
func openFile(name string) (*os.File, error) {
	f, err := os.Open(name)
	if err == nil {
		if info, serr := f.Stat(); serr == nil && info.IsDir() {
			f.Close()
			err = &os.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
		}
	}
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return nil, errors.New(printable(name) + " cannot be read: " + pe.Err.Error() + " (allowed: a file that can be read)")
	}
	return f, err
}

// run runs the job to its end and returns what the process's exit code is to
// say. Nothing is left behind.
func (x *execution) run() error {
	a := x.app
	d, err := a.newDriver(x.cfg, commandLogger(x.cfg, a.stderr))
	if err != nil {
		return x.failed(err)
	}
	e, err := a.newEngine(x.cfg, d, commandLogger(x.cfg, a.stderr), func(c *engine.Config) { ownLimits(x.cfg, c) })
	if err != nil {
		return x.failed(err)
	}
	defer a.removeSandbox(e)
	run, err := e.Admit(x.job)
	if err != nil {
		if err := sandbar.AsError(err); err.Field == "language" {
			return &failure{exitUsage, err}
		}
		return x.failed(err)
	}
	brake := a.listen(run)
	defer brake.close()
	out := newStreams(a, x.cut())
	if x.json {
		out.stdout, out.stderr = &out.captured[0], &out.captured[1]
	}
	result, err := run.Run(out)
	return x.ended(result, err, out, brake, e.Caps())
}

// ownLimits are the limits of a command that has one sandbox, its caller's own.
func ownLimits(cfg *config.Config, c *engine.Config) {
	platform.OwnLimits(cfg, c)
	c.MaxSandboxes = 1
}

// removalTime bounds the end of the one sandbox of a command.
const removalTime = 10 * time.Second

// removeSandbox ends the engine of a command that has one sandbox.
func (a *app) removeSandbox(e *engine.Engine) {
	ctx, cancel := context.WithTimeout(context.Background(), removalTime)
	defer cancel()
	if err := e.Shutdown(ctx); err != nil {
		a.warn("the sandbox could not be removed: %v (\"sandbar gc\" removes what is left)", err)
	}
}

// ended turns what came of the program into output and an exit code.
func (x *execution) ended(r sandbar.Result, err error, out *streams, b *brake, caps driver.Caps) error {
	if x.json {
		if err := writeReport(x.app.stdout, newReport(r, err, out, caps)); err != nil {
			return outputError(err)
		}
		if err != nil {
			return &exit{platformCode(err, b)}
		}
		return &exit{resultCode(r, b)}
	}
	switch {
	case err != nil && sandbar.CodeOf(err) == sandbar.Canceled && b.signal() != 0:
		return &exit{exitSignal + b.signal()}
	case err != nil:
		return &failure{platformCode(err, b), err}
	case out.err != nil && b.signal() == 0:
		return outputError(out.err)
	}
	for _, name := range out.cut() {
		x.app.warn("%s was cut off after %s", name, config.FormatSize(x.cut()))
	}
	if line := x.explain(r); line != "" {
		x.app.warn("%s", line)
	}
	return &exit{resultCode(r, b)}
}

// outputError is what becomes of output that cannot be written.
func outputError(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return &exit{exitSignal + signalPipe}
	}
	return &failure{exitPlatform, sandbar.Errorf(sandbar.Unavailable, "the output cannot be written: %w", err)}
}

// explain is a line about an end that the program's output does not show.
func (x *execution) explain(r sandbar.Result) string {
	switch r.Outcome {
	case sandbar.Signaled:
		return sandbar.ForeignCall(r.Signal)
	case sandbar.OutOfMemory:
		return "killed: out of memory" + limitNote(x.limits().Memory, config.FormatSize)
	case sandbar.TimedOut:
		return "killed: timeout" + limitNote(x.limits().Timeout, config.FormatDuration)
	case sandbar.OutputLimit:
		return "killed: too much output" + limitNote(x.limits().Output, config.FormatSize)
	case sandbar.Lost:
		return "the sandbox died under the program; how the program ended is not known"
	}
	return ""
}

// limits is what the program ran with, as far as it was asked for or configured.
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

func limitNote[T int64 | time.Duration](v T, format func(T) string) string {
	if v <= 0 {
		return ""
	}
	text := format(v)
	unit := strings.TrimLeft(text, "0123456789")
	if _, isSize := any(v).(int64); isSize {
		text = strings.TrimSuffix(text, unit) + " " + unit
	}
	return " (limit " + text + ")"
}

// resultCode is the exit code for a program that ran.
func resultCode(r sandbar.Result, b *brake) int {
	switch r.Outcome {
	case sandbar.Exited:
		return r.ExitCode
	case sandbar.Signaled:
		return exitSignal + r.Signal
	case sandbar.OutOfMemory:
		return exitSignal + signalKill
	case sandbar.OutputLimit:
		return exitSignal + signalFileSize
	case sandbar.TimedOut:
		return exitTimeout
	case sandbar.Cancelled:
		if b.signal() != 0 {
			return exitSignal + b.signal()
		}
	}
	return exitPlatform
}

// failed is an error from before the program was admitted.
func (x *execution) failed(err error) error {
	code := exitPlatform
	if c := sandbar.CodeOf(err); c == sandbar.Invalid || c == sandbar.TooLarge {
		code = exitUsage
	}
	if x.json && code == exitPlatform {
		if err := writeReport(x.app.stdout, newReport(sandbar.Result{}, err, &streams{}, driver.Caps{})); err != nil {
			return outputError(err)
		}
		return &exit{code}
	}
	return &failure{code, err}
}

// platformCode is the exit code for a program that did not run.
func platformCode(err error, b *brake) int {
	if b.signal() != 0 && sandbar.CodeOf(err) == sandbar.Canceled {
		return exitSignal + b.signal()
	}
	e := sandbar.AsError(err)
	if e.Field == "language" && e.Err != nil { // no interpreter; the cause tells why
		e = sandbar.AsError(e.Err)
	}
	switch {
	case e.Field == "image" || e.Field == "dir":
	case e.Code == sandbar.NotFound:
		return exitNotFound
	case e.Code == sandbar.Denied:
		return exitNotExecutable
	}
	return exitPlatform
}

// streams passes a program's output on.
type streams struct {
	stdout, stderr io.Writer
	excerpts       [2]truncate.Prefix
	captured       [2]bytes.Buffer
	err            error // what kept it from being written
}

// newStreams passes on as many bytes of each stream as most says; negative: all.
func newStreams(a *app, most int64) *streams {
	e := truncate.Prefix{Max: most}
	return &streams{stdout: a.stdout, stderr: a.stderr, excerpts: [2]truncate.Prefix{e, e}}
}

// cut names the streams of which something was left out.
func (s *streams) cut() (names []string) {
	for i, stream := range []sandbar.Stream{sandbar.Stdout, sandbar.Stderr} {
		if s.excerpts[i].Truncated {
			names = append(names, stream.String())
		}
	}
	return names
}

// Started implements engine.Sink.
func (s *streams) Started() {}

// Output implements engine.Sink. An error ends the program.
func (s *streams) Output(c sandbar.Chunk) error {
	w, e := s.stdout, &s.excerpts[0]
	if c.Stream == sandbar.Stderr {
		w, e = s.stderr, &s.excerpts[1]
	}
	p := e.Take(c.Data)
	if len(p) == 0 {
		return nil
	}
	if _, err := w.Write(p); err != nil {
		s.err = err
		return err
	}
	return nil
}
