package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/text/suggest"
)

// Exit codes. Those of run and eval are what shells and timeout(1) use, so that
// scripts need to learn nothing new; the rest of 0 to 255 is the program's own.
const (
	exitFailure       = 1   // doctor, gc, serve: it did not work
	exitUsage         = 2   // flags, arguments, configuration
	exitTimeout       = 124 // killed at --timeout, as by timeout(1)
	exitPlatform      = 125 // Sandbar could not run the program, or lost it
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // and the signal's number
	signalKill        = 9
	signalPipe        = 13
	signalFileSize    = 25 // SIGXFSZ: what ends a program that writes too much
)

// exit is an error that has been told already, or needs no telling: only its
// code is left.
type exit struct{ code int }

func (e *exit) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// failure is an error with the exit code of its place.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// usage is a mistake on the command line.
type usage struct {
	command string
	message string
}

func (u *usage) Error() string { return u.message }

func usagef(cmd *cobra.Command, format string, args ...any) error {
	return &usage{cmd.CommandPath(), fmt.Sprintf(format, args...)}
}

// exitCode is the code for what a command returned.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*exit](err); ok {
		return e.code
	}
	if _, ok := errors.AsType[*usage](err); ok {
		return exitUsage
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code
	}
	if code := sandbar.CodeOf(err); code == sandbar.Invalid || code == sandbar.TooLarge {
		return exitUsage
	}
	return exitFailure
}

// report writes an error for a person, one line for each if there are several.
func (a *app) report(err error) {
	if _, ok := errors.AsType[*exit](err); ok || err == nil {
		return
	}
	if u, ok := errors.AsType[*usage](err); ok {
		a.warn("%s", u.message)
		fmt.Fprintf(a.stderr, "Try \"%s --help\".\n", u.command)
		return
	}
	for _, e := range each(err) {
		a.warn("%s", e.Error())
	}
}

// each is the errors that errors.Join has joined, at any depth, or the one error.
func each(err error) []error {
	if f, ok := err.(*failure); ok {
		return each(f.err)
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, each(e)...)
	}
	return all
}

// flagError turns what pflag says into an error that tells what is allowed.
func flagError(cmd *cobra.Command, err error) error {
	if err == pflag.ErrHelp {
		return err
	}
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name := "--" + e.GetSpecifiedName()
		if e.GetSpecifiedShortnames() != "" {
			name = "-" + e.GetSpecifiedName()
		}
		return usagef(cmd, "there is no flag %s%s%s", printable(name), suggestion(name, flagNames(cmd)), hintDash(cmd))
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return usagef(cmd, "the flag --%s needs a value", e.GetFlag().Name)
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok && e.GetFlag().Value.Type() == "bool" {
		return usagef(cmd, "--%s: %s is neither true nor false (allowed: --%s, --%[1]s=true or --%[1]s=false)", e.GetFlag().Name, quote(e.GetValue()), e.GetFlag().Name)
	}
	if e, ok := errors.AsType[*pflag.InvalidSyntaxError](err); ok {
		return usagef(cmd, "%s is not a flag", quote(e.GetSpecifiedFlag()))
	}
	return usagef(cmd, "%s", err)
}

func flagNames(cmd *cobra.Command) []string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	slices.Sort(names)
	return names
}

// hintDash reminds of "--" where a program's own flags are the likely mistake.
func hintDash(cmd *cobra.Command) string {
	if strings.Contains(cmd.Use, "--") {
		return "; what belongs to the program comes after \"--\""
	}
	return ""
}

// suggestion is `; did you mean "x"?`, or nothing.
func suggestion(word string, known []string) string {
	if meant := suggest.Name(word, known); meant != "" {
		return "; did you mean " + meant + "?"
	}
	return ""
}

// quote makes text from outside safe to print.
func quote(s string) string { return sandbar.Quote(s, 80) }

// printable is s, in quotes if it could harm a terminal.
func printable(s string) string {
	if len(s) > 500 || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return sandbar.Quote(s, 500)
	}
	return s
}
