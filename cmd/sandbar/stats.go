package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/cli"
)

func (a *app) statsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stats ID",
		Short: "Measure what a sandbox of a daemon uses",
		Long: `Measure what a sandbox of a daemon uses: processor time since its creation, memory
with its limit, the part of the memory in files that programs have written, and
processes and threads. A number that the driver or the host does not count is 0. The
measurement does not count as use. ID is the sandbox's id or name.
` + remoteHelp,
		Example:           "  sandbar stats $id\n  sandbar stats $id --json | jq .memory_bytes",
		ValidArgsFunction: a.sandboxIDs,
	}
	cmd.Flags().Bool("json", false, "print JSON")
	return a.remoteCommand(cmd, (*remote).stats)
}

func (r *remote) stats(args []string) error {
	if err := needArgs(r.cmd, args, 1, "ID"); err != nil {
		return err
	}
	m, err := r.Metrics(r.ctx, args[0])
	if err != nil {
		return err
	}
	if asJSON, _ := r.cmd.Flags().GetBool("json"); asJSON {
		return cli.WriteJSON(r.app.stdout, m)
	}
	s, err := r.Get(r.ctx, args[0])
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(r.app.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CPU_TIME\tMEMORY\tMEMORY_LIMIT\tFILES\tPROCESSES\tPROCESS_LIMIT")
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", time.Duration(m.CPUTimeMS*float64(time.Millisecond)).Round(time.Millisecond),
		cli.FormatBytes(m.Memory), limitText(s.Limits.Memory, cli.FormatBytes), cli.FormatBytes(m.Files), m.Processes,
		limitText(s.Limits.PIDs, func(n int64) string { return fmt.Sprint(n) }))
	return w.Flush()
}

// limitText shows a limit.
func limitText(a wire.Amount, show func(int64) string) string {
	if a < 0 {
		return "unlimited"
	}
	return show(int64(a))
}

func (a *app) renewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "renew ID",
		Short: "Keep a sandbox of a daemon from being idle",
		Long: `Count as a use of a sandbox of a daemon, so that its idle timeout begins again.
--idle-timeout replaces the timeout, up to the operator's. Nothing extends the operator's
max_lifetime: the command prints its end, or "-" if there is none. ID is the sandbox's id
or name.
` + remoteHelp,
		Example:           "  sandbar renew $id\n  sandbar renew $id --idle-timeout 5m",
		ValidArgsFunction: a.sandboxIDs,
	}
	cmd.Flags().String("idle-timeout", "", "remove the sandbox after this `DURATION` without use, or unlimited")
	return a.remoteCommand(cmd, (*remote).renew)
}

func (r *remote) renew(args []string) error {
	if err := needArgs(r.cmd, args, 1, "ID"); err != nil {
		return err
	}
	text, _ := r.cmd.Flags().GetString("idle-timeout")
	idle, err := r.seconds("idle-timeout", text)
	if err != nil {
		return err
	}
	s, err := r.Renew(r.ctx, args[0], idle.Duration())
	if err != nil {
		return err
	}
	expires := "-"
	if !s.Expires.IsZero() {
		expires = s.Expires.Format(time.RFC3339)
	}
	_, err = fmt.Fprintln(r.app.stdout, expires)
	return err
}
