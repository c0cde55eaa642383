// Package outcome reports how a program ended: by an exit code, a line on standard error, or one
// JSON object.
package outcome

import (
	"io"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/server/config"
)

// Printer reports how one program ended.
type Printer struct {
	Stdout, Stderr io.Writer
	JSON           bool           // one Report on Stdout instead of lines on Stderr
	MaxOutput      int64          // maximum of printed bytes of each output; negative: no maximum
	Limits         sandbar.Limits // of the program
	Signal         int            // the signal that ended the command; 0 for none
	Caps           driver.Caps    // of the driver that ran the program
}

// Ended writes how the program ended, and returns the exit code as an error. r and err are the
// results of its Run; out received its output.
func (p Printer) Ended(r sandbar.Result, err error, out *Streams) error {
	if p.JSON {
		if err := cli.WriteReport(p.Stdout, NewReport(r, err, out, p.Caps)); err != nil {
			return cli.OutputError(err)
		}
		if err != nil {
			return cli.Exit(PlatformCode(err, p.Signal))
		}
		return cli.Exit(ResultCode(r, p.Signal))
	}
	switch {
	case err != nil && sandbar.CodeOf(err) == sandbar.Canceled && p.Signal != 0:
		return cli.Exit(cli.ExitSignal + p.Signal)
	case err != nil:
		return cli.Fail(PlatformCode(err, p.Signal), err)
	case out.Err != nil && p.Signal == 0:
		return cli.OutputError(out.Err)
	}
	for _, name := range out.Cut() {
		cli.Warn(p.Stderr, "%s was truncated after %s", name, config.FormatSize(p.MaxOutput))
	}
	if line := Explain(r, p.Limits); line != "" {
		cli.Warn(p.Stderr, "%s", line)
	}
	return cli.Exit(ResultCode(r, p.Signal))
}

// Failed is Ended for an error from before the program was admitted.
func (p Printer) Failed(err error) error {
	code := cli.ExitPlatform
	if c := sandbar.CodeOf(err); c == sandbar.Invalid || c == sandbar.TooLarge {
		code = cli.ExitUsage
	}
	if p.JSON && code == cli.ExitPlatform {
		if err := cli.WriteReport(p.Stdout, NewReport(sandbar.Result{}, err, &Streams{}, driver.Caps{})); err != nil {
			return cli.OutputError(err)
		}
		return cli.Exit(code)
	}
	return cli.Fail(code, err)
}

// Explain returns a line about an end that the program's output does not show, such as a timeout,
// and "" for other ends. l are the limits of the program.
func Explain(r sandbar.Result, l sandbar.Limits) string {
	switch r.Outcome {
	case sandbar.Signaled:
		return sandbar.ForeignCall(r.Signal)
	case sandbar.OutOfMemory:
		return "killed: out of memory" + limitNote(l.Memory, config.FormatSize)
	case sandbar.TimedOut:
		return "killed: timeout" + limitNote(l.Timeout, config.FormatDuration)
	case sandbar.OutputLimit:
		return "killed: too much output" + limitNote(l.Output, config.FormatSize)
	case sandbar.Lost:
		return "the sandbox died while the program ran; the program's result is unknown"
	}
	return ""
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

// ResultCode returns the exit code for a program that ran. signal is the one that ended the
// command, or 0.
func ResultCode(r sandbar.Result, signal int) int {
	switch r.Outcome {
	case sandbar.Exited:
		return r.ExitCode
	case sandbar.Signaled:
		return cli.ExitSignal + r.Signal
	case sandbar.OutOfMemory:
		return cli.ExitSignal + cli.SignalKill
	case sandbar.OutputLimit:
		return cli.ExitSignal + cli.SignalFileSize
	case sandbar.TimedOut:
		return cli.ExitTimeout
	case sandbar.Cancelled:
		if signal != 0 {
			return cli.ExitSignal + signal
		}
	}
	return cli.ExitPlatform
}

// PlatformCode returns the exit code for a program that did not run. signal is the one that ended
// the command, or 0.
func PlatformCode(err error, signal int) int {
	if signal != 0 && sandbar.CodeOf(err) == sandbar.Canceled {
		return cli.ExitSignal + signal
	}
	e := sandbar.AsError(err)
	if e.Field == "language" && e.Err != nil { // no interpreter: the code is that of the cause
		e = sandbar.AsError(e.Err)
	}
	switch {
	case e.Field == "image" || e.Field == "dir":
	case e.Code == sandbar.NotFound:
		return cli.ExitNotFound
	case e.Code == sandbar.Denied:
		return cli.ExitNotExecutable
	}
	return cli.ExitPlatform
}

// Remote is Ended for a program in a daemon's sandbox, from the daemon's response. signal is the
// one that ended the command, or 0.
func Remote(stderr io.Writer, x wire.Result, signal int) error {
	switch x.Outcome {
	case sandbar.Exited.String():
		if x.ExitCode != nil {
			return cli.Exit(*x.ExitCode)
		}
	case sandbar.Signaled.String():
		if x.Signal != nil {
			if why := sandbar.ForeignCall(*x.Signal); why != "" {
				cli.Warn(stderr, "%s", why)
			}
			return cli.Exit(cli.ExitSignal + *x.Signal)
		}
	case sandbar.OutOfMemory.String():
		cli.Warn(stderr, "killed: out of memory")
		return cli.Exit(cli.ExitSignal + cli.SignalKill)
	case sandbar.OutputLimit.String():
		cli.Warn(stderr, "killed: too much output")
		return cli.Exit(cli.ExitSignal + cli.SignalFileSize)
	case sandbar.TimedOut.String():
		cli.Warn(stderr, "killed: timeout")
		return cli.Exit(cli.ExitTimeout)
	case sandbar.Cancelled.String():
		if signal != 0 {
			return cli.Exit(cli.ExitSignal + signal)
		}
		return cli.Fail(cli.ExitPlatform, sandbar.Errorf(sandbar.Gone, "the command was killed with its sandbox"))
	}
	return cli.Fail(cli.ExitPlatform, sandbar.Errorf(sandbar.Gone, "the sandbox died while the command ran; the command's result is unknown"))
}
