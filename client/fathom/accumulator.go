package fathom

import (
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar/client/fathom/wire"
)

// Message is a message of the server. Fields that its type does not have are zero.
type Message struct {
	V         int         `json:"v"`
	Type      string      `json:"type"` // a type of package wire
	ID        string      `json:"id"`
	Status    wire.Status `json:"status"`
	Data      string      `json:"data"`
	ExitCode  *int        `json:"exit_code"`
	Duration  int64       `json:"duration_ms"`
	Usage     *Usage      `json:"resource_usage"`
	Code      wire.Code   `json:"code"`
	Message   string      `json:"message"`
	Retryable bool        `json:"retryable"`
	Load      *Load       `json:"load"`
}

// Usage is what a program has used.
type Usage struct {
	PeakMemoryMB int64 `json:"peak_memory_mb"` // of 1048576 bytes; 0 if unknown
	CPUTimeMS    int64 `json:"cpu_time_ms"`
}

// Load is the load of the server.
type Load struct {
	Active int `json:"active_executions"`
	Queued int `json:"queue_depth"`
}

// Result is the end of an execution.
type Result struct {
	ID string
	// Acknowledged: the server has accepted the execution.
	Acknowledged bool
	// Status is the last one; "" if there was none.
	Status         wire.Status
	Stdout, Stderr string
	// ExitCode is nil if a signal, a limit or a cancellation ended the program.
	ExitCode *int
	Duration time.Duration
	Usage    Usage
}

// Accumulator collects the messages of one execution ("Client-Side Event Accumulation").
type Accumulator struct {
	result         Result
	stdout, stderr strings.Builder
	err            *Error
	done           bool
}

// NewAccumulator returns an Accumulator for the messages with an id.
func NewAccumulator(id string) *Accumulator { return &Accumulator{result: Result{ID: id}} }

// Apply adds a message. Messages with another id, of an unknown type and after the last one are
// ignored.
func (a *Accumulator) Apply(m Message) {
	if m.ID != a.result.ID || a.done {
		return
	}
	switch m.Type {
	case wire.Ack:
		a.result.Acknowledged = true
	case wire.StatusType:
		a.result.Status = m.Status
	case wire.Stdout:
		a.stdout.WriteString(m.Data)
	case wire.Stderr:
		a.stderr.WriteString(m.Data)
	case wire.ErrorType:
		a.err = &Error{Code: m.Code, Message: m.Message, Retryable: m.Retryable}
		// An error in place of a status is the last message. After a status, as at the output limit, a
		// result follows.
		a.done = !a.result.Status.Terminal()
	case wire.ResultType:
		a.result.ExitCode, a.result.Duration = m.ExitCode, time.Duration(m.Duration)*time.Millisecond
		if m.Usage != nil {
			a.result.Usage = *m.Usage
		}
		a.done = true
	}
}

// Done reports whether the last message has arrived.
func (a *Accumulator) Done() bool { return a.done }

// Size is the number of bytes of output so far.
func (a *Accumulator) Size() int64 { return int64(a.stdout.Len() + a.stderr.Len()) }

// Result returns what has arrived, and the error message if there was one. An OUTPUT_LIMIT comes
// with a complete Result.
func (a *Accumulator) Result() (Result, error) {
	r := a.result
	r.Stdout, r.Stderr = a.stdout.String(), a.stderr.String()
	if a.err != nil {
		return r, a.err
	}
	return r, nil
}

// Error is an error of the server, or of the connection with the code NETWORK_ERROR. The failure of
// a program is not an error but a Result.
type Error struct {
	Code      wire.Code
	Message   string
	Retryable bool
}

// Error returns the code and the message.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// lost is the error of an execution or a call without a connection.
func lost(message string) *Error {
	return &Error{Code: wire.CodeNetworkError, Message: message, Retryable: true}
}

// wrong is the error for a request that cannot succeed.
func wrong(message string) *Error {
	return &Error{Code: wire.CodeInvalidRequest, Message: message}
}
