package main

import (
	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
)

func (a *app) runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run IMAGE [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run one command in a fresh sandbox",
		Long: `Run one command in a fresh sandbox that is gone afterwards. No daemon is needed.

IMAGE is the sandbox's root file system. "host" is this machine's own programs,
read-only, and nothing else of it.
` + executionHelp,
		Example: `  sandbar run host -- ls -l /
  sandbar run host --memory 64MiB --timeout 5s -- python3 -c 'print(2+2)'
  echo hello | sandbar run host -- tr a-z A-Z
  sandbar run host --json --env NAME=value -- env`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			switch {
			case len(args) == 0 || dash == 0:
				return usagef(cmd, "no image was given (allowed: host)")
			case dash < 0 || dash > 1:
				return usagef(cmd, "the command comes after \"--\", as in: sandbar run %s -- %s", printable(args[0]), "COMMAND")
			case len(args) == 1 || args[1] == "":
				return usagef(cmd, "no command was given after \"--\"")
			case args[0] == "":
				return usagef(cmd, "the image's name is empty (allowed: host)")
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
			return x.run()
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return []string{sandbar.ImageHost + "\tthis machine's own programs"}, cobra.ShellCompDirectiveNoFileComp
		},
	}
	a.executionFlags(cmd)
	return cmd
}
