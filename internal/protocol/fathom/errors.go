package fathom

import (
	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/fathom/wire"
)

// Code is an error code of the protocol.
type Code = wire.Code

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
			return ending{status: wire.Completed, result: true, exitCode: true}
		}
		return ending{status: wire.Failed, result: true, exitCode: true}
	case sandbar.Signaled:
		return ending{status: wire.Failed, result: true}
	case sandbar.OutOfMemory:
		return ending{status: wire.OOM, result: true}
	case sandbar.OutputLimit:
		return ending{status: wire.Failed, result: true, code: wire.CodeOutputLimit,
			message: "output exceeded limits.max_output_bytes; the output up to the limit has been delivered"}
	case sandbar.TimedOut:
		return ending{status: wire.TimedOut, result: true}
	case sandbar.Cancelled:
		return ending{status: wire.Cancelled, result: true}
	}
	// Lost, or an outcome that this table lacks: how the program ended is unknown.
	return ending{code: wire.CodeInternalError,
		message: "the sandbox was lost while the program ran; how the program ended is not known"}
}

// codeOf maps every code of the platform's errors.
func codeOf(e *sandbar.Error) Code {
	switch e.Code {
	case sandbar.Invalid, sandbar.TooLarge, sandbar.Denied, sandbar.Unauthenticated:
		return wire.CodeInvalidRequest
	case sandbar.Unsupported:
		// the catalogue or the sandbox lacks the language; otherwise the host cannot enforce a
		// limit
		if e.Field == "language" {
			return wire.CodeLanguageNotSupported
		}
		return wire.CodeInvalidRequest
	case sandbar.Exhausted:
		return wire.CodeSandboxOverloaded
	case sandbar.Timeout:
		return wire.CodeTimeout
	case sandbar.Unavailable, sandbar.Canceled:
		// The backend cannot be reached, or the server is shutting down. A cancellation by the
		// client is no error, see run.go.
		return wire.CodeNetworkError
	}
	// NotFound, Exists, Conflict, NoSpace, Gone, Internal: not caused by the client's request.
	return wire.CodeInternalError
}
