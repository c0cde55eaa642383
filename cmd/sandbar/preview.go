package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/cli"
)

func (a *app) previewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "preview ID [PORT] [flags]",
		Short: "Print a URL at which a browser opens a port of a sandbox",
		Long: `Print a URL at which a browser opens a port of a sandbox of a daemon. Each port has a
host name of its own. The URL has a token; the browser keeps it as a cookie. With
--public the URL has none, and everybody who can reach the daemon may open it.

Without PORT the previews of the sandbox are listed. ID is a sandbox's id, as sb_... or
as a UUID, or its name.
` + remoteHelp,
		Example:           "  sandbar preview $id 8000\n  sandbar preview $id 8000 --remove",
		ValidArgsFunction: a.sandboxIDs,
	}
	cmd.Flags().Bool("public", false, "let everybody open it, without a token")
	cmd.Flags().Bool("remove", false, "make the URL of the port invalid")
	cmd.Flags().Bool("json", false, "print JSON")
	cmd.MarkFlagsMutuallyExclusive("public", "remove")
	return a.remoteCommand(cmd, (*remote).preview)
}

func (r *remote) preview(args []string) error {
	if err := needArgs(r.cmd, args, 1, "ID", "PORT"); err != nil {
		return err
	}
	flag := func(name string) bool { v, _ := r.cmd.Flags().GetBool(name); return v }
	if len(args) == 1 {
		if flag("public") || flag("remove") {
			return usagef(r.cmd, "PORT is missing")
		}
		all, err := r.Previews(r.ctx, args[0])
		if err != nil {
			return err
		}
		return r.printPreviews(all, flag("json"))
	}
	port, err := strconv.ParseUint(args[1], 10, 16)
	if err != nil || port == 0 {
		return usagef(r.cmd, "%s is not a port (allowed: 1 to 65535)", cli.Quote(args[1]))
	}
	if flag("remove") {
		return r.RemovePreview(r.ctx, args[0], int(port))
	}
	p, err := r.Preview(r.ctx, args[0], int(port), flag("public"))
	if err != nil {
		return err
	}
	return r.printPreviews([]wire.Preview{p}, flag("json"))
}

func (r *remote) printPreviews(all []wire.Preview, asJSON bool) error {
	if asJSON {
		return cli.WriteJSON(r.app.stdout, wire.Previews{Previews: all})
	}
	for _, p := range all {
		if _, err := fmt.Fprintln(r.app.stdout, p.URL); err != nil {
			return err
		}
	}
	return nil
}
