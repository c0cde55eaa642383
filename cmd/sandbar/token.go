package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/server/config"
)

func (a *app) tokenCommand() *cobra.Command {
	parent := &cobra.Command{
		Use:   "token",
		Short: "Make tokens",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef(cmd, "unknown command %s%s", cli.Quote(args[0]), suggestion(args[0], commandNames(cmd)))
			}
			return cmd.Help()
		},
	}
	parent.AddCommand(a.tokenNewCommand())
	return parent
}

func (a *app) tokenNewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Print a new random token",
		Long: `Print a new random token. No daemon knows it yet: set it as SANDBAR_TOKEN, write it to
the file of token_file, or to that of a client in the setting clients.

With --e2b it has the form of E2B's API keys, which some versions of E2B's SDKs check.`,
		Example: `  export SANDBAR_TOKEN=$(sandbar token new)
  sandbar token new --e2b > ci.token`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token := config.NewToken()
			if e2b, _ := cmd.Flags().GetBool("e2b"); e2b {
				token = config.NewE2BToken()
			}
			_, err := fmt.Fprintln(a.stdout, token)
			return err
		},
	}
	cmd.Flags().Bool("e2b", false, "print one of the form of E2B's API keys: e2b_ and 40 hexadecimal digits")
	return cmd
}
