package sandbar

import (
	"io"
	"time"
)

// Outcome says how an execution ended. The set is closed. Every protocol maps every outcome.
type Outcome int

// The outcomes. If several apply, the engine reports the first of Cancelled, TimedOut and
// OutputLimit, and else the outcome that the driver reported.
const (
	// Exited: the program ended by itself. Result.ExitCode is its exit code.
	Exited Outcome = iota + 1
	// Signaled: a signal ended the program, and Sandbar did not send it.
	Signaled
	// OutOfMemory: the kernel or the watchdog killed a process for memory, and the program did not
	// exit with 0.
	OutOfMemory
	// OutputLimit: the program wrote more than Limits.Output, and Sandbar killed it.
	OutputLimit
	// TimedOut: Limits.Timeout passed, and Sandbar ended the program.
	TimedOut
	// Cancelled: the caller cancelled the execution.
	Cancelled
	// Lost: the sandbox died during the execution, because its agent or backend ended. Sandbar
	// cannot determine how the program ended.
	Lost
)

// Outcomes lists every Outcome, for tables and for tests.
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

// Result describes one ended program. Every program that started has a Result, unless the platform
// failed.
type Result struct {
	Outcome Outcome
	// ExitCode is 0 to 255. It is valid only if Outcome is Exited.
	ExitCode int
	// Signal is the number of the signal that ended the program; 0 for none.
	Signal int
	// Duration is the wall-clock time from the request to start the program to its end.
	Duration time.Duration
	// CPUTime is the user and system time of the program and its descendants. If the driver started
	// an interpreter ahead, before the request, the time of that start may be included.
	CPUTime time.Duration
	// PeakMemory is in bytes. It covers the sandbox if the kernel counts that, and else the largest
	// process. 0 if unknown.
	PeakMemory int64
	// OOMKills is the number of processes of the sandbox that were killed for memory during the
	// execution.
	OOMKills int64
	// StdoutBytes and StderrBytes are the numbers of delivered bytes.
	StdoutBytes, StderrBytes int64
	// DroppedBytes is the number of bytes beyond Limits.Output that Sandbar read and discarded.
	DroppedBytes int64
	// Enforced is the mechanism that enforced each limit.
	Enforced Enforcements
}

// ForeignCall returns an explanation for a program that SIGSYS ended, and "" for any other signal.
// The system-call filters of drivers answer most forbidden calls with an error. They end a program
// only if it uses the system-call interface of another architecture.
func ForeignCall(signal int) string {
	const sigsys = 31 // on Linux, amd64 and arm64
	if signal != sigsys {
		return ""
	}
	return "bad system call: the program is built for another architecture, such as 32-bit x86, which sandboxes do not run"
}

// Stream is one of a program's two output streams.
type Stream uint8

// The output streams.
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

// Chunk is a contiguous piece of one output stream. Offset is the position of its first byte,
// counted from the program's start. Chunks of one stream arrive in order. The order between the two
// streams is undefined. An Offset beyond the expected one means that the bytes between are lost.
type Chunk struct {
	Stream Stream
	Offset int64
	Data   []byte // valid only until the receiver returns; copy it to keep it
}

// Input is the source of a program's standard input.
type Input = io.Reader
