package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar/client"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/cli"
)

func (a *app) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the sandboxes of a daemon",
		Long: "List the sandboxes of a daemon, oldest first; with --json all their properties.\nA paused one is marked; \"sandbar resume\" continues it.\n" +
			"With --label, --state, --driver or --name it lists those that meet all conditions.\n" + remoteHelp,
		Example: "  sandbar list\n  sandbar list --label owner=me --state paused\n  sandbar list --json | jq -r '.sandboxes[].id'",
		Args:    noArgs,
	}
	cmd.Flags().Bool("json", false, "print JSON")
	cmd.Flags().StringArrayP("label", "l", nil, "only sandboxes with this label, `NAME=VALUE`, or NAME for any value; may be repeated")
	cmd.Flags().String("state", "", "only sandboxes in this `STATE`: running or paused")
	cmd.Flags().String("driver", "", "only sandboxes of this `DRIVER`")
	cmd.Flags().String("name", "", "only sandboxes with this `NAME`")
	cmd.Flags().Bool("all", false, "")
	cmd.Flags().MarkHidden("all") // all are always listed
	return a.remoteCommand(cmd, (*remote).list)
}

func (r *remote) list([]string) error {
	conditions, err := r.search()
	if err != nil {
		return err
	}
	all, err := r.Search(r.ctx, conditions)
	if err != nil {
		return err
	}
	if asJSON, _ := r.cmd.Flags().GetBool("json"); asJSON {
		return cli.WriteJSON(r.app.stdout, map[string]any{"sandboxes": all})
	}
	// The same columns as other sandbox tools, so that scripts work unchanged.
	const row = "%-36v  %-10v  %-8v  %v\n"
	if _, err := fmt.Fprintf(r.app.stdout, row, "SANDBOX_ID", "IMAGE", "AGE_SECS", "NAME"); err != nil {
		return err
	}
	for _, s := range all {
		name := "-"
		if s.Name != "" {
			name = cli.Printable(s.Name)
		}
		if s.State == wire.StatePaused {
			name += " (paused)"
		}
		if _, err := fmt.Fprintf(r.app.stdout, row, s.ID, cli.Printable(s.Image), max(0, int64(time.Since(s.Created).Seconds())), name); err != nil {
			return err
		}
	}
	return nil
}

// search reads the flags with conditions.
func (r *remote) search() (client.Search, error) {
	f := r.cmd.Flags()
	labels, _ := f.GetStringArray("label")
	s := client.Search{Labels: map[string]string{}}
	for _, l := range labels {
		name, value, ok := strings.Cut(l, "=")
		switch {
		case name == "":
			return s, usagef(r.cmd, "--label: %s has no name (allowed: NAME=VALUE, or NAME for any value)", cli.Quote(l))
		case ok:
			s.Labels[name] = value
		default:
			s.HasLabels = append(s.HasLabels, name)
		}
	}
	s.State, _ = f.GetString("state")
	s.Driver, _ = f.GetString("driver")
	s.Name, _ = f.GetString("name")
	return s, checkUTF8(r.cmd, append(labels, s.State, s.Driver, s.Name))
}

func (a *app) stopCommand() *cobra.Command {
	return a.remoteCommand(&cobra.Command{
		Use:     "stop ID...",
		Aliases: []string{"rm"},
		Short:   "Stop and remove sandboxes of a daemon",
		Long: `Kill all processes of sandboxes of a daemon, remove the sandboxes, and wait until
that is done. The state of a paused sandbox is removed from the disk. ID is a sandbox's id, as sb_... or as a UUID, or its name.
` + remoteHelp,
		Example:           "  sandbar stop $id\n  sandbar list --json | jq -r '.sandboxes[].id' | xargs sandbar stop",
		ValidArgsFunction: a.sandboxIDs,
	}, (*remote).stopAll)
}

func (r *remote) stopAll(ids []string) error {
	if err := needArgs(r.cmd, ids, 1, "ID..."); err != nil {
		return err
	}
	return r.eachOf(ids, func(id string) error {
		if err := r.Stop(r.ctx, id); err != nil {
			return err
		}
		_, err := fmt.Fprintf(r.app.stdout, "stopped %s\n", cli.Printable(id))
		return err
	})
}

// eachOf calls do for each name. It reports an error and goes on with the next name; the
// exit code is that of the last error.
func (r *remote) eachOf(names []string, do func(string) error) error {
	var failed error
	for _, name := range names {
		err := do(name)
		switch {
		case err == nil:
		case len(names) == 1 || r.ctx.Err() != nil:
			return err
		default:
			cli.Report(r.app.stderr, err)
			failed = cli.Exit(cli.ExitCode(err))
		}
	}
	return failed
}
