package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/server/importpolicy"
)

// ExitNone is the exit code of a program that did not end by itself: it timed
// out, wrote too much, was cancelled, or was lost with its sandbox.
const ExitNone = -1

// ExitBlocked is the exit code of code that was not run for what it imports.
const ExitBlocked = 1

// exitSignal and the number of a signal are the exit code of a program that was
// ended by that signal, as shells have it.
const (
	exitSignal = 128
	sigkill    = 9
)

// Result is what came of one execution (docs/protocols.md, Execution: "Data
// contracts").
type Result struct {
	// Stdout and Stderr are what the program wrote, as text: what is not UTF-8
	// became U+FFFD. Where something was cut off, a last line says so. Where the
	// program did not end by itself, the last line of Stderr says why.
	Stdout, Stderr string
	// ExitCode is the program's own, 128 and the signal's number if a signal
	// ended it (137 out of memory), ExitBlocked or ExitNone.
	ExitCode int
	// Duration is the wall clock from the program's start to its end.
	Duration time.Duration
	// Truncated: output was cut off, or the program was ended because it wrote
	// too much.
	Truncated bool
	// TimedOut: the program was ended at its time limit.
	TimedOut bool
	Meta     Meta
}

// Meta is what is known of an execution besides.
type Meta struct {
	// Runtime is the name of the driver that ran the program: "native", "local", …
	Runtime string `json:"runtime"`
	// Boundary is what stood between the program and the host.
	Boundary driver.Boundary `json:"boundary"`
	// Language is the one that was asked for.
	Language string `json:"language"`
	// Versions are those of Sandbar ("sandbar") and, where programs run on this machine's kernel, of
	// that ("kernel"). What is not known is left out.
	Versions map[string]string `json:"versions,omitempty"`
	// Outcome is the stable name of a sandbar.Outcome, or "blocked".
	Outcome string `json:"outcome"`
	// Truncated and TimedOut are those of the Result.
	Truncated bool `json:"truncated"`
	TimedOut  bool `json:"timed_out"`
	// BlockedImports are the modules for which the code was not run.
	BlockedImports []string `json:"blocked_imports,omitempty"`
	// Limits are those that the execution had.
	Limits ResourceLimits `json:"resource_limits"`
}

// ResourceLimits are limits in the units of the execution abstraction.
type ResourceLimits struct {
	TimeoutSec  float64 `json:"timeout_sec"`         // 0: none
	MaxOutputKB float64 `json:"max_output_kb"`       // of each stream; 0: no cut
	MemoryMB    float64 `json:"memory_mb,omitempty"` // 0: none
}

// outcomeBlocked is the outcome of code that was not run for what it imports.
const outcomeBlocked = "blocked"

// Succeeded reports whether the program ended by itself with exit code 0.
func (r Result) Succeeded() bool { return r.Meta.Outcome == sandbar.Exited.String() && r.ExitCode == 0 }

// MarshalJSON writes a Result with the names of the execution abstraction: stdout,
// stderr, exit_code, duration (in seconds), truncated, timed_out and meta.
func (r Result) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Stdout    string  `json:"stdout"`
		Stderr    string  `json:"stderr"`
		ExitCode  int     `json:"exit_code"`
		Duration  float64 `json:"duration"`
		Truncated bool    `json:"truncated"`
		TimedOut  bool    `json:"timed_out"`
		Meta      Meta    `json:"meta"`
	}{r.Stdout, r.Stderr, r.ExitCode, r.Duration.Round(time.Microsecond).Seconds(), r.Truncated, r.TimedOut, r.Meta})
}

// Compact is the Result as one text for a model: what the program wrote to stdout,
// "(no output)" if that is nothing, and for a program that failed
// "Error (exit_code=N): " with what it wrote to stderr, followed by its stdout if
// there is any.
func (r Result) Compact() string {
	if r.Succeeded() {
		if strings.TrimSpace(r.Stdout) == "" {
			return "(no output)"
		}
		return r.Stdout
	}
	text := fmt.Sprintf("Error (exit_code=%d):", r.ExitCode)
	if errs := strings.TrimRight(r.Stderr, "\n"); errs != "" {
		text += " " + errs
	}
	if out := strings.TrimRight(r.Stdout, "\n"); out != "" {
		text += "\nstdout:\n" + out
	}
	return text
}

// newResult is what came of an execution that has a Result.
func newResult(r sandbar.Result, out *capture, m Meta, limits sandbar.Limits) Result {
	m.Outcome, m.TimedOut = r.Outcome.String(), r.Outcome == sandbar.TimedOut
	var cut [2]bool
	x := Result{Duration: r.Duration, ExitCode: exitCodeOf(r), TimedOut: m.TimedOut}
	x.Stdout, cut[0] = out.stdout.text()
	x.Stderr, cut[1] = out.stderr.text()
	m.Truncated = cut[0] || cut[1] || r.Outcome == sandbar.OutputLimit
	x.Truncated = m.Truncated
	x.Stderr = withLine(x.Stderr, whyEnded(r, limits))
	x.Meta = m
	return x
}

// newBlocked is what came of code that was not run for what it imports; false if
// the error is another.
func newBlocked(err error, m Meta) (Result, bool) {
	b, ok := errors.AsType[*importpolicy.Blocked](err)
	if !ok {
		return Result{}, false
	}
	m.Outcome, m.BlockedImports = outcomeBlocked, b.Imports
	return Result{ExitCode: ExitBlocked, Stderr: err.Error() + "\n", Meta: m}, true
}

func exitCodeOf(r sandbar.Result) int {
	switch r.Outcome {
	case sandbar.Exited:
		return r.ExitCode
	case sandbar.Signaled:
		return exitSignal + r.Signal
	case sandbar.OutOfMemory:
		return exitSignal + sigkill
	}
	return ExitNone
}

// whyEnded is a line about an end that the program's output does not show.
func whyEnded(r sandbar.Result, l sandbar.Limits) string {
	switch r.Outcome {
	case sandbar.Signaled:
		line := fmt.Sprintf("Killed by signal %d", r.Signal)
		if why := sandbar.ForeignCall(r.Signal); why != "" {
			line += " (" + why + ")"
		}
		return line
	case sandbar.OutOfMemory:
		if l.Memory > 0 {
			return fmt.Sprintf("Killed: out of memory (limit %g MiB)", mib(l.Memory))
		}
		return "Killed: out of memory"
	case sandbar.TimedOut:
		return "Execution timed out after " + l.Timeout.String()
	case sandbar.OutputLimit:
		return fmt.Sprintf("Killed: too much output (limit %g MiB)", mib(l.Output))
	case sandbar.Cancelled:
		return "Execution was cancelled"
	case sandbar.Lost:
		return "The sandbox died under the program; how the program ended is not known"
	}
	return ""
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// withLine is text with one more line.
func withLine(text, line string) string {
	if line == "" {
		return text
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + line + "\n"
}

// limitsOf are limits in the abstraction's units. kept is the cut of each stream.
func limitsOf(l sandbar.Limits, kept int64) ResourceLimits {
	x := ResourceLimits{TimeoutSec: max(l.Timeout, 0).Seconds(), MaxOutputKB: float64(max(kept, 0)) / (1 << 10)}
	if l.Memory > 0 {
		x.MemoryMB = mib(l.Memory)
	}
	return x
}
