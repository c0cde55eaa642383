package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/text/suggest"
)

func usagef(cmd *cobra.Command, format string, args ...any) error {
	return cli.Usagef(cmd.CommandPath(), format, args...)
}

// flagError turns an error of pflag into a usage error that names the allowed values.
func flagError(cmd *cobra.Command, err error) error {
	if err == pflag.ErrHelp {
		return err
	}
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name := "--" + e.GetSpecifiedName()
		if e.GetSpecifiedShortnames() != "" {
			name = "-" + e.GetSpecifiedName()
		}
		return usagef(cmd, "unknown flag %s%s%s", cli.Printable(name), suggestion(name, flagNames(cmd)), hintDash(cmd))
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return usagef(cmd, "the flag --%s needs a value", e.GetFlag().Name)
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok && e.GetFlag().Value.Type() == "bool" {
		return usagef(cmd, "--%s: %s is neither true nor false (allowed: --%s, --%[1]s=true or --%[1]s=false)", e.GetFlag().Name, cli.Quote(e.GetValue()), e.GetFlag().Name)
	}
	if e, ok := errors.AsType[*pflag.InvalidSyntaxError](err); ok {
		return usagef(cmd, "%s is not a flag", cli.Quote(e.GetSpecifiedFlag()))
	}
	return usagef(cmd, "%s", err)
}

func flagNames(cmd *cobra.Command) []string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	slices.Sort(names)
	return names
}

// hintDash returns a hint at "--" for commands that take a program's own flags after it.
func hintDash(cmd *cobra.Command) string {
	if strings.Contains(cmd.Use, "--") {
		return "; flags of the program come after \"--\""
	}
	return ""
}

// suggestion returns `; did you mean x?` for a known name close to word, or "".
func suggestion(word string, known []string) string {
	if meant := suggest.Name(word, known); meant != "" {
		return "; did you mean " + meant + "?"
	}
	return ""
}
