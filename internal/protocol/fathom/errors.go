package fathom

import "github.com/sandbar-dev/sandbar"

// Code is an error code of the protocol (docs/protocols.md, Fathom: "Error
// Codes"). The set is closed.
type Code string

// The codes.
const (
	CodeTimeout              Code = "TIMEOUT"
	CodeOOM                  Code = "OOM"
	CodeOutputLimit          Code = "OUTPUT_LIMIT"
	CodeLanguageNotSupported Code = "LANGUAGE_NOT_SUPPORTED"
	CodeInvalidRequest       Code = "INVALID_REQUEST"
	CodeUnknownExecution     Code = "UNKNOWN_EXECUTION"
	CodeSandboxOverloaded    Code = "SANDBOX_OVERLOADED"
	CodeInternalError        Code = "INTERNAL_ERROR"
	CodeNetworkError         Code = "NETWORK_ERROR"
)

// Retryable returns the "Retryable" column of the table of error codes.
func (c Code) Retryable() bool {
	switch c {
	case CodeSandboxOverloaded, CodeInternalError, CodeNetworkError:
		return true
	}
	return false
}

// ending is the report of an execution's end: a terminal status, an error, or both, and whether a
// result follows.
type ending struct {
	status   Status // "" for none
	code     Code   // "" for none
	message  string // of the error
	result   bool
	exitCode bool // the result has an exit code; otherwise it is null
}

// endingOf maps every outcome of a program.
func endingOf(r sandbar.Result) ending {
	switch r.Outcome {
	case sandbar.Exited:
		if r.ExitCode == 0 {
			return ending{status: Completed, result: true, exitCode: true}
		}
		return ending{status: Failed, result: true, exitCode: true}
	case sandbar.Signaled:
		return ending{status: Failed, result: true}
	case sandbar.OutOfMemory:
		return ending{status: OOM, result: true}
	case sandbar.OutputLimit:
		return ending{status: Failed, result: true, code: CodeOutputLimit,
			message: "output exceeded limits.max_output_bytes; the output up to the limit has been delivered"}
	case sandbar.TimedOut:
		return ending{status: TimedOut, result: true}
	case sandbar.Cancelled:
		return ending{status: Cancelled, result: true}
	}
	// Lost, or an outcome that this table lacks: how the program ended is unknown.
	return ending{code: CodeInternalError,
		message: "the sandbox was lost while the program ran; how the program ended is not known"}
}

// codeOf maps every code of the platform's errors.
func codeOf(e *sandbar.Error) Code {
	switch e.Code {
	case sandbar.Invalid, sandbar.TooLarge, sandbar.Denied, sandbar.Unauthenticated:
		return CodeInvalidRequest
	case sandbar.Unsupported:
		// the catalogue or the sandbox lacks the language; otherwise the host cannot enforce a
		// limit
		if e.Field == "language" {
			return CodeLanguageNotSupported
		}
		return CodeInvalidRequest
	case sandbar.Exhausted:
		return CodeSandboxOverloaded
	case sandbar.Timeout:
		return CodeTimeout
	case sandbar.Unavailable, sandbar.Canceled:
		// The backend cannot be reached, or the server is shutting down. A cancellation by the
		// client is no error, see run.go.
		return CodeNetworkError
	}
	// NotFound, Exists, Conflict, NoSpace, Gone, Internal: not caused by the client's request.
	return CodeInternalError
}
