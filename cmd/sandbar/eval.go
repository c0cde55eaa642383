package main

import (
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/server/config"
)

func (a *app) evalCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "eval LANGUAGE [-c CODE | FILE | -] [flags] [-- ARGUMENT...]",
		Short: "Run code of a language in a fresh sandbox",
		Long: `Run code in a fresh sandbox and remove the sandbox afterwards. No daemon is
needed.

LANGUAGE is python, javascript, shell, elixir, or one that the configuration
adds. The code is CODE, the content of FILE, or standard input (-, or neither). The
ARGUMENTs are passed to the program.
` + executionHelp + `

If the code comes from standard input, the program's own input is empty.`,
		Example: `  sandbar eval python -c 'print(2+2)'
  echo hi | sandbar eval python program.py
  echo 'console.log(process.argv.slice(2))' | sandbar eval javascript - -- a b
  sandbar eval shell --timeout 1s -c 'sleep 60'; echo $?
  sandbar eval python --json -c 'import os; print(os.getuid())'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			x, err := a.newExecution(cmd)
			if err != nil {
				return err
			}
			source, err := a.evalSource(cmd, args)
			if err != nil {
				return err
			}
			x.job.Language, x.job.Args = source.language, source.args
			fromStdin, err := x.readCode(source)
			if err != nil {
				return err
			}
			closer, err := x.openStdin(fromStdin)
			if err != nil {
				return err
			}
			defer closer()
			return x.run()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return a.languageNames(cmd), cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().StringP("code", "c", "", "the `code` to run")
	a.executionFlags(cmd)
	return cmd
}

func (a *app) languageNames(cmd *cobra.Command) []string {
	cfg, err := a.configuration(cmd, driverSetting)
	if err != nil {
		return nil
	}
	languages, err := cfg.Catalogue()
	if err != nil {
		return nil
	}
	return languages.Names()
}

// source describes where eval finds its code.
type source struct {
	language string
	code     string
	file     string // "" for code, "-" for standard input
	args     []string
}

// evalSource reads the arguments of eval.
func (a *app) evalSource(cmd *cobra.Command, args []string) (source, error) {
	own, rest := args, []string(nil)
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		own, rest = args[:dash], args[dash:]
	}
	flag := cmd.Flags().Lookup("code")
	s := source{code: flag.Value.String(), args: rest}
	switch {
	case len(own) == 0 || own[0] == "":
		return s, usagef(cmd, "no language was given (allowed: %s)", strings.Join(a.languageNames(cmd), ", "))
	case len(own) > 2 || len(own) == 2 && flag.Changed:
		return s, usagef(cmd, "%s is one argument too many; arguments of the program come after \"--\"", cli.Quote(own[len(own)-1]))
	case len(own) == 2 && own[1] == "":
		return s, usagef(cmd, "the file's name is empty (allowed: a file, or -)")
	}
	s.language = own[0]
	switch {
	case flag.Changed:
	case len(own) == 2:
		s.file = own[1]
	case term.IsTerminal(int(a.stdin.Fd())):
		return s, usagef(cmd, "no code was given (allowed: -c CODE, a file, or code on standard input)")
	default:
		s.file = "-"
	}
	return s, nil
}

// readCode reads the code into the job. It reads at most max_code+1 bytes.
func (x *execution) readCode(s source) (fromStdin bool, err error) {
	if s.file == "" {
		x.job.Code = s.code
		return false, nil
	}
	var r io.Reader = x.app.stdin
	if s.file != "-" {
		f, err := cli.OpenFile(s.file)
		if err != nil {
			return false, usagef(x.cmd, "%s", err)
		}
		defer f.Close()
		r = f
	}
	code, err := io.ReadAll(io.LimitReader(r, x.cfg.MaxCode+1))
	if err != nil {
		return false, cli.Fail(cli.ExitUsage, errors.New("the code cannot be read: "+err.Error()))
	}
	if int64(len(code)) > x.cfg.MaxCode {
		return false, usagef(x.cmd, "the code is larger than %s (allowed: up to max_code, which the configuration sets)", config.FormatSize(x.cfg.MaxCode))
	}
	x.job.Code = string(code)
	return s.file == "-", nil
}
