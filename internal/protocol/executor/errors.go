package executor

import (
	"net/http"
	"strconv"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// statusOf returns the HTTP status of each code. 503 makes the protocol's client retry up to three
// times, so it is only for requests that were refused before they had an effect.
func statusOf(c sandbar.Code) int {
	switch c {
	case sandbar.Invalid:
		return http.StatusBadRequest
	case sandbar.Unauthenticated:
		return http.StatusUnauthorized
	case sandbar.Denied:
		return http.StatusForbidden
	case sandbar.NotFound:
		return http.StatusNotFound
	case sandbar.Exists, sandbar.Conflict:
		return http.StatusConflict
	case sandbar.TooLarge:
		return http.StatusRequestEntityTooLarge
	case sandbar.Unsupported:
		return http.StatusNotImplemented
	case sandbar.Exhausted, sandbar.Unavailable:
		return http.StatusServiceUnavailable
	case sandbar.NoSpace:
		return http.StatusInsufficientStorage
	}
	// Timeout, Canceled, Gone, Internal, and unknown codes.
	return http.StatusInternalServerError
}

// startStatusOf is statusOf for a program that could not be started. A status from 404 to 409 would
// be about the endpoint instead of the program.
func startStatusOf(c sandbar.Code) int {
	switch status := statusOf(c); status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusServiceUnavailable:
		return status
	}
	return http.StatusInternalServerError
}

// state is the status of a process.
type state string

// The states (docs/protocols.md, Executor: "Start Process").
const (
	running   state = "running"
	completed state = "completed"
	failed    state = "failed"
	killed    state = "killed"
)

// nonZero is the protocol's error text of every command with an exit code other than 0.
const nonZero = "Non-zero exit code"

// ending is the report of a program's end.
type ending struct {
	code   int    // -1 without an exit code
	state  state  // of a process
	reason string // of a command: the reason for a code other than 0
}

// endingOf maps every outcome of a program. timeout is the program's time limit, if it has one.
func endingOf(r sandbar.Result, timeout time.Duration) ending {
	switch r.Outcome {
	case sandbar.Exited:
		if r.ExitCode == 0 {
			return ending{code: 0, state: completed}
		}
		return ending{code: r.ExitCode, state: failed, reason: nonZero}
	case sandbar.Signaled, sandbar.Cancelled:
		e := ending{code: -1, state: killed, reason: nonZero}
		if why := sandbar.ForeignCall(r.Signal); why != "" {
			e.reason = why
		}
		return e
	case sandbar.OutOfMemory:
		return ending{code: -1, state: killed, reason: "out of memory"}
	case sandbar.OutputLimit:
		return ending{code: -1, state: killed, reason: "output limit exceeded"}
	case sandbar.TimedOut:
		e := ending{code: -1, state: killed, reason: "timed out"}
		if timeout > 0 {
			e.reason += " after " + strconv.FormatFloat(timeout.Seconds(), 'f', -1, 64) + "s"
		}
		return e
	}
	// Lost, or an outcome that this table lacks: how the program ended is unknown.
	return ending{code: -1, state: killed, reason: "the sandbox was lost while the program ran; how it ended is not known"}
}
