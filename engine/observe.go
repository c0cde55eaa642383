package engine

import (
	"context"
	"log/slog"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// observe logs the end of an execution in one line and calls Config.Observe. The log never has
// code, arguments, environment or output.
func (e *Engine) observe(id sandbar.ID, o Observation) {
	attrs := []any{slog.Any("", o.Client), "sandbox", id, "driver", o.Driver, "language", o.Language, "queued", o.Queued, "setup", o.Setup, "total", o.Total}
	if o.Err == nil {
		e.log.Info("execution ended", append(attrs, resultAttrs(o.Result)...)...)
	} else {
		e.logFailure("execution failed", o.Err, attrs...)
	}
	if e.cfg.Observe != nil {
		e.guard("the observer of executions", func() { e.cfg.Observe(o) })
	}
}

// callerIn is the caller in ctx as an attribute of a log line.
func callerIn(ctx context.Context) slog.Attr { return slog.Any("", Client(ctx)) }

// ownerOf is the client that a sandbox belongs to as an attribute of a log line about an event that
// no request has caused.
func ownerOf(s sandbar.Spec) slog.Attr {
	c := s.Client
	c.Request = ""
	return slog.Any("", c)
}

// guard calls a function of the Config, which must not end the daemon.
func (e *Engine) guard(what string, f func()) {
	if err := catchPanic(func() error { f(); return nil }); err != nil {
		e.log.Error(what+" failed", "error", err)
	}
}

func resultAttrs(r sandbar.Result) []any {
	a := []any{"outcome", r.Outcome.String(), "duration", r.Duration, "cpu", r.CPUTime, "peak_memory", r.PeakMemory,
		"stdout_bytes", r.StdoutBytes, "stderr_bytes", r.StderrBytes}
	switch {
	case r.Outcome == sandbar.Exited:
		a = append(a, "exit_code", r.ExitCode)
	case r.Signal != 0:
		a = append(a, "signal", r.Signal)
	}
	if r.DroppedBytes > 0 {
		a = append(a, "dropped_bytes", r.DroppedBytes)
	}
	return a
}

// fillEnforced sets r.Enforced from the driver's Caps if the driver left it unset.
func (e *Engine) fillEnforced(s sandbar.Spec, r *sandbar.Result) {
	if r.Enforced == (sandbar.Enforcements{}) {
		r.Enforced = e.capsOf(s).Enforced
	}
}

// capsOf returns the Caps of the driver of a resolved Spec.
func (e *Engine) capsOf(s sandbar.Spec) driver.Caps {
	b, err := e.backend(s.Driver)
	if err != nil {
		return driver.Caps{Name: s.Driver} // unreachable for a resolved Spec
	}
	return b.caps
}

// logFailure logs an error by its code. It logs the text only for codes whose text is about the
// platform; other texts may quote the caller's data.
func (e *Engine) logFailure(msg string, err error, attrs ...any) {
	code := sandbar.CodeOf(err)
	attrs = append(attrs, "code", string(code), "field", sandbar.AsError(err).Field)
	level := slog.LevelInfo
	switch code {
	case sandbar.Internal:
		level = slog.LevelError
		attrs = append(attrs, "error", err)
	case sandbar.Timeout, sandbar.Unavailable:
		level = slog.LevelWarn
		attrs = append(attrs, "error", err)
	}
	e.log.Log(context.Background(), level, msg, attrs...)
}
