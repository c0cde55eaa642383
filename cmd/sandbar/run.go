package main

import (
	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/cli"
)

func (a *app) runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run IMAGE [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run one command in a fresh sandbox",
		Long: `Run one command in a fresh sandbox and remove the sandbox afterwards. No daemon
is needed.

IMAGE is the sandbox's root file system. The image "host" has this machine's
programs, read-only, and no other files of it. Any other image was pulled or
imported by "sandbar images": the program runs in it as uid 0 without privileges on
the host, and its changes to the files are private to the sandbox. A reference with
a registry, such as docker.io/library/debian:stable, is pulled if it is not
installed.
` + executionHelp,
		Example: `  sandbar run host -- ls -l /
  sandbar run host --memory 64MiB --timeout 5s -- python3 -c 'print(2+2)'
  echo hello | sandbar run host -- tr a-z A-Z
  sandbar run docker.io/library/python:3-slim -- python3 -c 'print(2+2)'
  sandbar run host -it -- bash
  sandbar run host --json --env NAME=value -- env`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			switch {
			case len(args) == 0 || dash == 0:
				return usagef(cmd, "no image was given (allowed: host, or an installed image)")
			case dash < 0 || dash > 1:
				return usagef(cmd, "the command comes after \"--\", as in: sandbar run %s -- %s", cli.Printable(args[0]), "COMMAND")
			case len(args) == 1 || args[1] == "":
				return usagef(cmd, "no command was given after \"--\"")
			case args[0] == "":
				return usagef(cmd, "the image's name is empty (allowed: host, or an installed image)")
			}
			x, err := a.newExecution(cmd)
			if err != nil {
				return err
			}
			x.job.Spec.Image = args[0]
			x.job.Cmd = sandbar.Cmd{Args: args[1:]}
			closer, err := x.openStdin(false)
			if err != nil {
				return err
			}
			defer closer()
			if err := a.ensureImage(x.cfg, args[0]); err != nil {
				return x.printer().Failed(err)
			}
			t, err := x.openTerminal()
			if err != nil {
				return err
			}
			defer t.close()
			return x.run()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return a.imageNames(cmd), cobra.ShellCompDirectiveNoFileComp
		},
	}
	a.executionFlags(cmd)
	terminalFlags(cmd)
	return cmd
}
