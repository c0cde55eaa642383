package sandbar

import (
	"io"
	"time"
)

// Outcome says how an execution ended. The set is closed; every protocol maps
// each of them, and a test walks them all.
type Outcome int

// The outcomes. When several apply, the engine reports the first of:
// Cancelled, TimedOut, OutputLimit, then what the driver saw.
const (
	// Exited: the program ended by itself; Result.ExitCode holds its code.
	Exited Outcome = iota + 1
	// Signaled: a signal that Sandbar did not send ended the program.
	Signaled
	// OutOfMemory: the kernel (or the watchdog) killed for memory, and the
	// program did not exit 0 all the same.
	OutOfMemory
	// OutputLimit: the program wrote more than Limits.Output and was killed.
	OutputLimit
	// TimedOut: Limits.Timeout passed and the program was killed.
	TimedOut
	// Cancelled: the caller asked for the end.
	Cancelled
	// Lost: the sandbox died under the program (its agent or its backend
	// ended). How the program itself ended cannot be known, and is not invented.
	Lost
)

// Outcomes is every Outcome, for tables and the tests that walk them.
var Outcomes = []Outcome{Exited, Signaled, OutOfMemory, OutputLimit, TimedOut, Cancelled, Lost}

// String returns the outcome's stable name, used in logs, metrics and JSON.
func (o Outcome) String() string {
	switch o {
	case Exited:
		return "exited"
	case Signaled:
		return "signaled"
	case OutOfMemory:
		return "oom"
	case OutputLimit:
		return "output_limit"
	case TimedOut:
		return "timeout"
	case Cancelled:
		return "cancelled"
	case Lost:
		return "lost"
	}
	return "unknown"
}

// Result is what came of one program. A Result exists whenever the program
// started, however badly it ended.
type Result struct {
	Outcome Outcome
	// ExitCode is 0 to 255 and has a meaning only if Outcome is Exited.
	ExitCode int
	// Signal is the number of the signal that ended the program, when one did.
	Signal int
	// Duration is the wall clock from the program's start to its end.
	Duration time.Duration
	// CPUTime is user and system time of the program and its descendants.
	CPUTime time.Duration
	// PeakMemory is in bytes: of the sandbox where the kernel counts it, else
	// of the largest process. 0 if unknown.
	PeakMemory int64
	// OOMKills is how many processes of the sandbox were killed for memory
	// while the program ran.
	OOMKills int64
	// StdoutBytes and StderrBytes count what was delivered.
	StdoutBytes, StderrBytes int64
	// DroppedBytes counts what the program wrote beyond Limits.Output and was
	// seen but not delivered.
	DroppedBytes int64
	// Enforced tells how each limit was held.
	Enforced Enforcements
}

// ForeignCall is what to tell of a program that signal ended, if that is SIGSYS, and "" for any other
// signal. System-call filters of drivers refuse most calls with an error and end only programs that
// call the kernel by another architecture's interface.
func ForeignCall(signal int) string {
	const sigsys = 31 // on Linux, amd64 and arm64
	if signal != sigsys {
		return ""
	}
	return "bad system call: the program is built for another architecture, such as 32-bit x86, which sandboxes do not run"
}

// Stream is one of a program's two outputs.
type Stream uint8

// The streams.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// String returns "stdout" or "stderr".
func (s Stream) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}

// Chunk is a run of bytes of one stream. Offset is the place of its first byte
// in that stream, counted from 0 at the program's start. Chunks of one stream
// come in order; between the two streams no order is promised. A reader that
// sees an Offset beyond the one it expected has missed the bytes between.
type Chunk struct {
	Stream Stream
	Offset int64
	Data   []byte // valid only until the receiver returns; copy it to keep it
}

// Input is a source of a program's standard input.
type Input = io.Reader
