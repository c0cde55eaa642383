package engine

import (
	"log/slog"

	"github.com/sandbar-dev/sandbar"
)

// observe writes the one log line of an execution and calls Config.Observe.
// What is logged is chosen field by field: never code, arguments, environment
// or output. The text of an error is logged only for codes whose messages are
// about the platform; others may quote what the caller sent.
func (e *Engine) observe(id sandbar.ID, o Observation) {
	attrs := []any{"sandbox", id, "language", o.Language, "queued", o.Queued, "setup", o.Setup, "total", o.Total}
	if o.Err == nil {
		e.log.Info("execution ended", append(attrs, resultAttrs(o.Result)...)...)
	} else {
		level := slog.LevelInfo
		code := sandbar.CodeOf(o.Err)
		attrs = append(attrs, "code", string(code), "field", sandbar.AsError(o.Err).Field)
		if code == sandbar.Internal || code == sandbar.Timeout || code == sandbar.Unavailable {
			level = slog.LevelError
			attrs = append(attrs, "error", o.Err)
		}
		e.log.Log(nil, level, "execution failed", attrs...)
	}
	if e.cfg.Observe == nil {
		return
	}
	if err := guarded(func() error { e.cfg.Observe(o); return nil }); err != nil {
		e.log.Error("the observer of executions failed", "error", err)
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

// enforced fills in how limits were held, where the driver left it to its Caps.
func (e *Engine) enforced(r *sandbar.Result) {
	if r.Enforced == (sandbar.Enforcements{}) {
		r.Enforced = e.caps.Enforced
	}
}
