package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar/internal/driver/wasm"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

func (a *app) prepareCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prepare",
		Short: "Compile the interpreters of the driver wasm ahead of time",
		Long: `Compile the WebAssembly interpreters of the driver wasm for this machine; otherwise
the first sandbox of the driver waits for that. The result is stored in the user's
cache directory (XDG_CACHE_HOME, or the driver's option cache); a daemon that runs as
another user has its own cache. If the cache is complete, the command does nothing.`,
		Example: "  sandbar prepare\n  sudo XDG_CACHE_HOME=/var/cache sandbar prepare",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.configuration(cmd)
			if err != nil {
				return err
			}
			h := platform.Host(cfg, wasm.Name, commandLogger(cfg, a.stderr))
			h.Waiting = a.showProgress
			d, err := wasm.New(h)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			if err := d.Prepare(ctx); err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.stdout, "the driver wasm is ready")
			return err
		},
	}
	a.settings(cmd)
	return cmd
}
