package executor

import (
	"net/http"
	"strconv"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// statusOf maps every code of the platform's errors to a status. 503 makes the
// protocol's client try again up to three times, so it stands only for what was
// refused before anything was done.
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
	// Timeout, Canceled, Gone, Internal, and any code this table does not know.
	return http.StatusInternalServerError
}

// startStatusOf is statusOf for a program that was not started. Statuses
// between 404 and 409 would speak of the endpoint, not of the program.
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

// nonZero is what the text has every command say that did not exit with 0.
const nonZero = "Non-zero exit code"

// ending is what a client is told about how a program ended.
type ending struct {
	code   int    // -1 for what has no exit code
	state  state  // of a process
	reason string // of a command: why code is not 0
}

// endingOf maps every outcome of a program that ran. timeout is what it was
// given, where it was given one.
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
	// Lost, and any outcome this table does not know: the truth is that the end
	// is not known.
	return ending{code: -1, state: killed, reason: "the sandbox was lost while the program ran; how it ended is not known"}
}
