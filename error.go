package sandbar

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// Code classifies an Error. The set is closed and its names are stable: they
// appear in logs, metrics and JSON. Each protocol maps every one of them.
type Code string

// The error codes.
const (
	// Invalid: the request is malformed or a value is out of range. Error.Field names the value.
	Invalid Code = "invalid"
	// Unauthenticated: the token is missing or wrong.
	Unauthenticated Code = "unauthenticated"
	// Denied: the caller has no permission for the request or for a path.
	Denied Code = "denied"
	// NotFound: the sandbox, process, image or file does not exist.
	NotFound Code = "not_found"
	// Exists: the object exists already.
	Exists Code = "exists"
	// Conflict: the object exists, but its state does not allow the request. Examples: a directory
	// instead of a file; a sandbox that is being stopped.
	Conflict Code = "conflict"
	// TooLarge: the request exceeds a size limit.
	TooLarge Code = "too_large"
	// Unsupported: this host, driver or configuration does not have the feature or cannot enforce
	// the limit.
	Unsupported Code = "unsupported"
	// Exhausted: the platform is at capacity. The same call may succeed later.
	Exhausted Code = "exhausted"
	// NoSpace: the sandbox's own disk space or inodes are used up.
	NoSpace Code = "no_space"
	// Timeout: a time limit passed before the program started (in the queue or during setup), or a
	// step of the platform took too long.
	Timeout Code = "timeout"
	// Canceled: the caller cancelled before the program started.
	Canceled Code = "canceled"
	// Unavailable: the backend cannot be reached or is shutting down.
	Unavailable Code = "unavailable"
	// Gone: the sandbox died or was stopped during the call.
	Gone Code = "gone"
	// Internal: a fault in Sandbar.
	Internal Code = "internal"
)

// Codes lists every Code, for tables and for tests.
var Codes = []Code{Invalid, Unauthenticated, Denied, NotFound, Exists, Conflict, TooLarge,
	Unsupported, Exhausted, NoSpace, Timeout, Canceled, Unavailable, Gone, Internal}

// Retryable reports whether the same call may succeed later without a change to the request.
func (c Code) Retryable() bool {
	return c == Exhausted || c == Unavailable || c == Internal || c == Gone
}

// Error is a failure of the platform. Message says what happened, what was requested and what is
// allowed. Fix, if not empty, is the next step for the user.
type Error struct {
	Code    Code
	Field   string // the field, flag or variable at fault, if there is one
	Message string
	Fix     string
	// RetryAfter, if not 0, says that the caller reached a limit of its own, and after what time
	// the same call may succeed.
	RetryAfter time.Duration
	Err        error // the cause, for errors.Is and errors.As
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

// Errorf returns an Error of the given code. As in fmt.Errorf, %w sets the cause. The text of the
// cause is then part of Message, and Error does not repeat it.
func Errorf(c Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: c, Message: err.Error(), Err: withoutText(errors.Unwrap(err))}
}

// withoutText returns err with an empty text, for a cause whose text is already part of the
// message. errors.Is and errors.As still find it.
func withoutText(err error) error {
	if err == nil {
		return nil
	}
	return textlessError{err}
}

type textlessError struct{ error }

func (s textlessError) Error() string { return "" }
func (s textlessError) Unwrap() error { return s.error }

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

// CodeOfContext returns the code of an error because of the end of ctx: Timeout or Canceled.
func CodeOfContext(ctx context.Context) Code {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return Timeout
	}
	return Canceled
}

// AsError returns the first Error in err's chain. It wraps any other error as Internal. It returns
// nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: Internal, Message: err.Error(), Err: withoutText(err)}
}

// Quote makes untrusted text safe to print. It adds quotes, escapes control characters and cuts the
// text after max bytes. The length of a cut text follows in parentheses.
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
