package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/sandbar-dev/sandbar"
)

// Quote returns untrusted text in quotes, escaped and truncated to 80 bytes.
func Quote(s string) string { return sandbar.Quote(s, 80) }

// Printable returns s, or if it has unprintable characters or more than 500 bytes, s quoted.
func Printable(s string) string {
	if len(s) > 500 || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return sandbar.Quote(s, 500)
	}
	return s
}

// OpenFile opens a file for reading. A directory is an error.
func OpenFile(name string) (*os.File, error) {
	f, err := os.Open(name)
	if err == nil {
		if info, serr := f.Stat(); serr == nil && info.IsDir() {
			f.Close()
			err = &os.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
		}
	}
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return nil, errors.New(Printable(name) + " cannot be read: " + pe.Err.Error() + " (allowed: a file that can be read)")
	}
	return f, err
}

// OutputError returns the error of a command whose output cannot be written: the exit code of
// SIGPIPE if the reader has closed its pipe, else ExitPlatform with a message.
func OutputError(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return Exit(ExitSignal + SignalPipe)
	}
	return Fail(ExitPlatform, sandbar.Errorf(sandbar.Unavailable, "the output cannot be written: %w", err))
}

// Input is a program's standard input. It hides a file behind io.Reader: a sandbox must not get a
// descriptor of this process, least of all one of a terminal.
type Input struct{ io.Reader }

// Cause returns err without the operation and path of a *fs.PathError.
func Cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// WriteReport writes v as one line of JSON.
func WriteReport(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// WriteJSON writes v as indented JSON.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// OnTerminal reports whether w is a terminal.
func OnTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// FormatBytes formats a number of bytes with a decimal unit, such as "1.5 kB".
func FormatBytes(n int64) string {
	for _, u := range []struct {
		name string
		of   float64
	}{{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}} {
		if float64(n) >= u.of {
			return fmt.Sprintf("%.1f %s", float64(n)/u.of, u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// CheckUTF8 returns a UsageError if a text is not UTF-8, which JSON needs.
func CheckUTF8(command string, texts []string) error {
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return Usagef(command, "%s is not UTF-8 and cannot be sent", Quote(s))
		}
	}
	return nil
}
