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

// ExitNone is the exit code of a program that did not end by itself: it timed out, wrote too much,
// was cancelled, or died with its sandbox.
const ExitNone = -1

// ExitBlocked is the exit code if the code was not run because of its imports.
const ExitBlocked = 1

// The exit code of a program that a signal ended is exitSignal plus the signal's number, as in
// shells.
const (
	exitSignal = 128
	sigkill    = 9
)

// Result is the result of one execution (docs/protocols.md, Execution: "Data contracts").
type Result struct {
	// Stdout and Stderr are the program's output as text; invalid UTF-8 becomes U+FFFD. A last line
	// marks truncated output. If the program did not end by itself, the last line of Stderr gives
	// the reason.
	Stdout, Stderr string
	// ExitCode is the program's own exit code, 128 plus the signal's number if a signal ended it
	// (137 for out of memory), ExitBlocked, or ExitNone.
	ExitCode int
	// Duration is the wall-clock time from the request to start the program to its end.
	Duration time.Duration
	// Truncated: output was truncated, or the program was ended because it wrote too much.
	Truncated bool
	// TimedOut: the program was ended at its time limit.
	TimedOut bool
	Meta     Meta
}

// Meta is further information on an execution.
type Meta struct {
	// Runtime is the name of the driver that ran the program: "native", "local", …
	Runtime string `json:"runtime"`
	// Boundary is the isolation mechanism between the program and the host.
	Boundary driver.Boundary `json:"boundary"`
	// Language is the requested language.
	Language string `json:"language"`
	// Versions are the versions of Sandbar ("sandbar") and of this machine's kernel ("kernel"), if
	// programs run on it. Unknown versions are left out.
	Versions map[string]string `json:"versions,omitempty"`
	// Outcome is the stable name of a sandbar.Outcome, or "blocked".
	Outcome string `json:"outcome"`
	// Truncated and TimedOut are as in the Result.
	Truncated bool `json:"truncated"`
	TimedOut  bool `json:"timed_out"`
	// BlockedImports are the modules because of which the code was not run.
	BlockedImports []string `json:"blocked_imports,omitempty"`
	// Limits are the limits of the execution.
	Limits ResourceLimits `json:"resource_limits"`
}

// ResourceLimits are limits in the units of the execution abstraction.
type ResourceLimits struct {
	TimeoutSec  float64 `json:"timeout_sec"`         // 0: no limit
	MaxOutputKB float64 `json:"max_output_kb"`       // of each stream; 0: not truncated
	MemoryMB    float64 `json:"memory_mb,omitempty"` // 0: no limit
}

// outcomeBlocked is the outcome if the code was not run because of its imports.
const outcomeBlocked = "blocked"

// Succeeded reports whether the program ended by itself with exit code 0.
func (r Result) Succeeded() bool { return r.Meta.Outcome == sandbar.Exited.String() && r.ExitCode == 0 }

// MarshalJSON writes a Result with the names of the execution abstraction: stdout, stderr,
// exit_code, duration (in seconds), truncated, timed_out and meta.
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

// Compact returns the Result as one text for a model: stdout, or "(no output)" if it is blank. For
// a failed program it is "Error (exit_code=N): " and stderr, followed by stdout if there is any.
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

// newResult makes the Result of an execution that has a sandbar.Result.
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

// newBlocked makes the Result if err says that the code was not run because of its imports; else it
// returns false.
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

// whyEnded returns a line on an end that the program's output does not show.
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

// withLine appends a line to text.
func withLine(text, line string) string {
	if line == "" {
		return text
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + line + "\n"
}

// limitsOf converts limits to the abstraction's units. kept is the largest output kept of each
// stream.
func limitsOf(l sandbar.Limits, kept int64) ResourceLimits {
	x := ResourceLimits{TimeoutSec: max(l.Timeout, 0).Seconds(), MaxOutputKB: float64(max(kept, 0)) / (1 << 10)}
	if l.Memory > 0 {
		x.MemoryMB = mib(l.Memory)
	}
	return x
}
