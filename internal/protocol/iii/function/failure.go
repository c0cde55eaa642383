package function

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"unicode"

	"github.com/sandbar-dev/sandbar"
)

// DocsURL is the page that explains the codes; a code is appended.
const DocsURL = "https://github.com/sandbar-dev/sandbar/blob/main/docs/iii-errors.md#"

// failure is an error of a function.
type failure struct {
	code    Code
	message string // with the code's prefix
	fix     any    // a suggested payload; nil if there is none
	note    string // "" for that of the code
	partial *partial
	cause   error // nil if the caller caused it
}

// Unwrap returns the cause.
func (f *failure) Unwrap() error { return f.cause }

// partial is the output of an exec before its timeout.
type partial struct {
	Stderr    string `json:"stderr"`
	Stdout    string `json:"stdout"`
	Truncated bool   `json:"truncated,omitempty"`
}

// payload is a failure on the wire. Clients expect seven keys, always present and in this order;
// partial is an extension.
type payload struct {
	Code      Code     `json:"code"`
	DocsURL   string   `json:"docs_url"`
	Fix       any      `json:"fix"`
	FixNote   *string  `json:"fix_note"`
	Message   string   `json:"message"`
	Partial   *partial `json:"partial,omitempty"`
	Retryable bool     `json:"retryable"`
	Type      string   `json:"type"`
}

// Error returns the payload, which is the error's text for the caller.
func (f *failure) Error() string {
	m := f.code.properties()
	p := payload{Code: f.code, DocsURL: DocsURL + string(f.code), Fix: f.fix, Message: f.message,
		Partial: f.partial, Retryable: m.retryable, Type: m.kind}
	if f.note == "" && f.fix == nil {
		f.note = m.note
	}
	if f.note != "" {
		p.FixNote = &f.note
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(p); err != nil { // fix is made of JSON, so it cannot fail
		return `{"code":"S300","message":"an error could not be written"}`
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// fail returns a failure. It puts the code's prefix before the message.
func fail(c Code, format string, args ...any) *failure {
	return &failure{code: c, message: c.properties().prefix + fmt.Sprintf(format, args...)}
}

// with adds a suggested payload, and a note if it cannot simply be sent.
func (f *failure) with(fix any, note string) *failure {
	if n, ok := fix.(next); ok {
		fix, note = n.payload, n.note(note)
	}
	if fix != nil {
		f.fix = fix
	}
	if note != "" {
		f.note = note
	}
	return f
}

// quote quotes and shortens a caller's text for a message.
func quote(s string) string { return "'" + clip(s) + "'" }

// clip shortens a caller's text.
func clip(s string) string {
	const most = 512
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// osError returns the kernel's reason of an error in the original's form: "No such file or
// directory (os error 2)". It is "" if the cause is not an errno.
func osError(err error) string {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return ""
	}
	text := []rune(errno.Error())
	text[0] = unicode.ToUpper(text[0])
	return fmt.Sprintf("%s (os error %d)", string(text), int(errno))
}

// fileFailure returns the failure of an operation on path. missing is the text for a path that does
// not exist: for "path not found: /x" it is "path".
func fileFailure(err error, path, missing string) error {
	f := classify(err, path, missing)
	f.cause = err
	return f
}

func classify(err error, path, missing string) *failure {
	reason := osError(err)
	if reason == "" {
		reason = sandbar.AsError(err).Error()
	}
	path = clip(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fail(S211, "%s not found: %s", missing, path)
	case errors.Is(err, syscall.ENOTEMPTY):
		return fail(S214, "directory not empty: %s", path)
	case errors.Is(err, fs.ErrExist):
		return fail(S213, "path already exists: %s", path)
	case errors.Is(err, syscall.EROFS):
		return fail(S216, "%s: %s", path, reason)
	case errors.Is(err, fs.ErrPermission):
		return fail(S215, "%s: %s", path, reason)
	case osError(err) != "":
		return fail(S216, "%s: %s", path, reason)
	}
	switch sandbar.CodeOf(err) {
	case sandbar.NotFound:
		return fail(S211, "%s not found: %s", missing, path)
	case sandbar.Exists:
		return fail(S213, "path already exists: %s", path)
	case sandbar.Denied, sandbar.Unauthenticated:
		return fail(S215, "%s: %s", path, reason)
	case sandbar.Invalid, sandbar.TooLarge:
		return fail(S210, "%s: %s", path, reason)
	case sandbar.Unsupported:
		return fail(S219, "%s", reason)
	case sandbar.Gone:
		return fail(S300, "shell fs: session terminated: %s", reason)
	case sandbar.Conflict, sandbar.NoSpace:
		return fail(S216, "%s: %s", path, reason)
	}
	// Exhausted, Timeout, Canceled, Unavailable, Internal: not caused by the file.
	return fail(S216, "shell client error: %s", reason)
}

// createFailure returns the failure of creating a sandbox.
func createFailure(err error) error {
	e := sandbar.AsError(err)
	switch e.Code {
	case sandbar.Invalid, sandbar.TooLarge, sandbar.Denied, sandbar.Unauthenticated:
		if strings.HasPrefix(e.Field, "limits.") {
			return fail(S400, "%s", e.Error())
		}
		return fail(S001, "%s", e.Error())
	case sandbar.Exhausted, sandbar.Timeout, sandbar.NoSpace:
		return fail(S400, "%s", e.Error())
	case sandbar.NotFound:
		return &failure{code: S101, message: e.Error()}
	}
	// Unsupported, Unavailable, Canceled, Gone, Internal, Exists, Conflict.
	return fail(S300, "%s", e.Error())
}

// startFailure returns the failure of starting a program, or nil and an exit code if the program
// itself is at fault.
func startFailure(err error, id string) (exit int, text string, failed error) {
	e := sandbar.AsError(err)
	switch e.Code {
	case sandbar.NotFound:
		return 127, "not found", nil
	case sandbar.Denied:
		return 126, "permission denied", nil
	case sandbar.Invalid, sandbar.TooLarge, sandbar.Unauthenticated:
		return 0, "", fail(S001, "%s", e.Error())
	case sandbar.Exhausted, sandbar.Conflict, sandbar.NoSpace, sandbar.Exists:
		return 0, "", fail(S400, "%s", e.Error())
	case sandbar.Gone:
		return 0, "", fail(S004, "%s", id)
	}
	// Unsupported, Timeout, Canceled, Unavailable, Internal.
	return 0, "", fail(S300, "shell run: %s", e.Error())
}
