package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar/internal/cli"
)

func (a *app) completionCommand() *cobra.Command {
	generate := map[string]func(*cobra.Command) error{
		"bash":       func(root *cobra.Command) error { return root.GenBashCompletionV2(a.stdout, true) },
		"zsh":        func(root *cobra.Command) error { return root.GenZshCompletion(a.stdout) },
		"fish":       func(root *cobra.Command) error { return root.GenFishCompletion(a.stdout, true) },
		"powershell": func(root *cobra.Command) error { return root.GenPowerShellCompletionWithDesc(a.stdout) },
	}
	shells := slices.Sorted(maps.Keys(generate))
	allowed := "(allowed: " + strings.Join(shells, ", ") + ")"
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the script that completes commands in a shell",
		Long:  "Print the script that completes commands, flags, languages and drivers in a shell:\nbash, zsh, fish or powershell.",
		Example: `  source <(sandbar completion bash)
  sandbar completion zsh > "${fpath[1]}/_sandbar"
  sandbar completion fish > ~/.config/fish/completions/sandbar.fish`,
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef(cmd, "the shell's name is missing %s", allowed)
			}
			write, ok := generate[args[0]]
			if !ok {
				return usagef(cmd, "no completion for the shell %s %s", cli.Quote(args[0]), allowed)
			}
			return write(cmd.Root())
		},
	}
}
