package sandbar

import (
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// Code classifies an Error. The set is closed and its names are stable: they
// appear in logs, metrics and JSON. Each protocol maps every one of them.
type Code string

// The codes.
const (
	// Invalid: the request is malformed or out of range. Field names the culprit.
	Invalid Code = "invalid"
	// Unauthenticated: the token is missing or wrong.
	Unauthenticated Code = "unauthenticated"
	// Denied: the caller may not do this, or a path may not be reached.
	Denied Code = "denied"
	// NotFound: no such sandbox, process, image, file.
	NotFound Code = "not_found"
	// Exists: it is there already.
	Exists Code = "exists"
	// Conflict: the thing is there but in a state that forbids this
	// (a directory where a file is needed, a sandbox that is stopping).
	Conflict Code = "conflict"
	// TooLarge: the request exceeds a size limit.
	TooLarge Code = "too_large"
	// Unsupported: this host, driver or configuration cannot do or enforce it.
	Unsupported Code = "unsupported"
	// Exhausted: the platform is at capacity now; the same call may work later.
	Exhausted Code = "exhausted"
	// NoSpace: the sandbox's own disk or inodes are used up.
	NoSpace Code = "no_space"
	// Timeout: a clock ran out before the work began (a queued job), or the
	// platform's own step took too long.
	Timeout Code = "timeout"
	// Canceled: the caller withdrew before the work began.
	Canceled Code = "canceled"
	// Unavailable: the backend cannot be reached or is shutting down.
	Unavailable Code = "unavailable"
	// Gone: the sandbox died or was stopped while the call was under way.
	Gone Code = "gone"
	// Internal: a fault of Sandbar itself.
	Internal Code = "internal"
)

// Codes is every Code, for tables and the tests that walk them.
var Codes = []Code{Invalid, Unauthenticated, Denied, NotFound, Exists, Conflict, TooLarge,
	Unsupported, Exhausted, NoSpace, Timeout, Canceled, Unavailable, Gone, Internal}

// Retryable reports whether the same call may succeed later without a change.
func (c Code) Retryable() bool {
	return c == Exhausted || c == Unavailable || c == Internal || c == Gone
}

// Error is how the platform says no. Message says what happened, what was
// asked and what is possible; Fix, when there is one, is the next step.
type Error struct {
	Code    Code
	Field   string // the field, flag or variable at fault, if there is one
	Message string
	Fix     string
	// RetryAfter, if not 0, says that the caller itself has or does more than it
	// may now, and when the same call may work.
	RetryAfter time.Duration
	Err        error // the cause; errors.Is and errors.As see it
}

// Error returns the message, the fix and the cause in one line.
func (e *Error) Error() string {
	s := e.Message
	if cause := e.cause(); cause != "" {
		if s != "" {
			s += ": "
		}
		s += cause
	}
	if e.Fix != "" {
		s += " (" + e.Fix + ")"
	}
	return s
}

func (e *Error) cause() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an Error of the given code. As in fmt.Errorf, %w keeps a
// cause; its text is then part of the message.
func Errorf(c Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: c, Message: err.Error(), Err: hidden(errors.Unwrap(err))}
}

// hidden keeps a cause for errors.Is and errors.As whose text already stands
// in the message.
func hidden(err error) error {
	if err == nil {
		return nil
	}
	return silent{err}
}

type silent struct{ error }

func (s silent) Error() string { return "" }
func (s silent) Unwrap() error { return s.error }

// CodeOf returns the code of the first Error in err's chain, Internal for any
// other error, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Internal
}

// AsError returns the first Error in err's chain, or wraps err as Internal.
// It returns nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: Internal, Message: err.Error(), Err: hidden(err)}
}

// Quote makes text from outside safe to print: quoted, control characters
// escaped, cut to max bytes with the loss told.
func Quote(s string, max int) string {
	if len(s) <= max {
		return strconv.QuoteToGraphic(s)
	}
	cut := s[:max]
	for len(cut) > 0 && !utf8.ValidString(cut) {
		cut = cut[:len(cut)-1]
	}
	return strconv.QuoteToGraphic(cut) + "… (" + strconv.Itoa(len(s)) + " bytes)"
}
