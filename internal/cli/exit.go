package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/sandbar-dev/sandbar"
)

// Exit codes. Those of run and eval are those of shells and timeout(1); all other values
// from 0 to 255 are the program's own.
const (
	ExitFailure       = 1   // doctor, gc, serve: failed
	ExitUsage         = 2   // flags, arguments, configuration
	ExitTimeout       = 124 // killed at --timeout, as by timeout(1)
	ExitPlatform      = 125 // Sandbar could not run the program, or lost it
	ExitNotExecutable = 126
	ExitNotFound      = 127
	ExitSignal        = 128 // and the signal's number
	SignalKill        = 9
	SignalPipe        = 13
	SignalFileSize    = 25 // SIGXFSZ, reported for a program that exceeds its output limit
)

// ExitError is an exit code without a message: the message has been written, or there is none.
type ExitError struct{ Code int }

// Exit returns an ExitError.
func Exit(code int) error { return &ExitError{code} }

// Error implements error.
func (e *ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// Failure is an error with an exit code of its own.
type Failure struct {
	Code int
	Err  error
}

// Fail returns a Failure.
func Fail(code int, err error) error { return &Failure{code, err} }

// Error returns the error's message.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns the error.
func (f *Failure) Unwrap() error { return f.Err }

// UsageError is a mistake on the command line.
type UsageError struct {
	Command string // its path, such as "sandbar eval"
	Message string
}

// Usagef returns a UsageError.
func Usagef(command, format string, args ...any) error {
	return &UsageError{command, fmt.Sprintf(format, args...)}
}

// Error returns the message.
func (u *UsageError) Error() string { return u.Message }

// ExitCode returns the exit code for the error of a command, 0 for nil.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*ExitError](err); ok {
		return e.Code
	}
	if _, ok := errors.AsType[*UsageError](err); ok {
		return ExitUsage
	}
	if f, ok := errors.AsType[*Failure](err); ok {
		return f.Code
	}
	if code := sandbar.CodeOf(err); code == sandbar.Invalid || code == sandbar.TooLarge {
		return ExitUsage
	}
	return ExitFailure
}

// Report writes an error as text, one line for each joined error.
func Report(w io.Writer, err error) {
	if _, ok := errors.AsType[*ExitError](err); ok || err == nil {
		return
	}
	if u, ok := errors.AsType[*UsageError](err); ok {
		Warn(w, "%s", u.Message)
		fmt.Fprintf(w, "Try \"%s --help\".\n", u.Command)
		return
	}
	for _, e := range Each(err) {
		Warn(w, "%s", e.Error())
	}
}

// Warn writes one line of text with the prefix "sandbar: ".
func Warn(w io.Writer, format string, args ...any) {
	fmt.Fprintf(w, "sandbar: "+format+"\n", args...)
}

// Each returns the errors that errors.Join has joined, at any depth, or the one error.
func Each(err error) []error {
	if f, ok := err.(*Failure); ok {
		return Each(f.Err)
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, Each(e)...)
	}
	return all
}
