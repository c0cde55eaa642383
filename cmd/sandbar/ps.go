package main

import (
	"bufio"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar/client"
	"github.com/sandbar-dev/sandbar/internal/cli"
)

func (a *app) psCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ps ID",
		Short: "List the background processes of a sandbox",
		Long: `List the background processes of a sandbox of a daemon, in the order of their
start: those of "sandbar exec --detach" and of the executor's /start_process,
including finished ones that the daemon has not yet forgotten. ID is the sandbox's id
or name.
` + remoteHelp,
		Example:           "  sandbar ps $id\n  sandbar ps $id --json",
		ValidArgsFunction: a.sandboxIDs,
	}
	cmd.Flags().Bool("json", false, "print JSON")
	return a.remoteCommand(cmd, (*remote).ps)
}

func (r *remote) ps(args []string) error {
	if err := needArgs(r.cmd, args, 1, "ID"); err != nil {
		return err
	}
	all, err := r.Processes(r.ctx, args[0])
	if err != nil {
		return err
	}
	if asJSON, _ := r.cmd.Flags().GetBool("json"); asJSON {
		if all == nil {
			all = []client.Process{}
		}
		return cli.WriteJSON(r.app.stdout, map[string]any{"processes": all})
	}
	w := tabwriter.NewWriter(r.app.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROCESS_ID\tPID\tSTATUS\tEXIT\tCOMMAND")
	for _, p := range all {
		code := "-"
		if p.ExitCode != nil {
			code = fmt.Sprint(*p.ExitCode)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", cli.Printable(p.ID), p.PID, cli.Printable(p.Status), code, cli.Printable(p.Command))
	}
	return w.Flush()
}

func (a *app) killCommand() *cobra.Command {
	return a.remoteCommand(&cobra.Command{
		Use:   "kill ID PROCESS...",
		Short: "Kill background processes of a sandbox",
		Long: `Kill background processes of a sandbox of a daemon with all their descendants, and
wait for their end. ID is the sandbox's id or name, PROCESS a PROCESS_ID of
"sandbar ps".
` + remoteHelp,
		Example:           "  sandbar kill $id $process",
		ValidArgsFunction: a.processIDs,
	}, func(r *remote, args []string) error {
		if err := needArgs(r.cmd, args, 2, "ID", "PROCESS..."); err != nil {
			return err
		}
		return r.eachOf(args[1:], func(process string) error {
			if err := r.Kill(r.ctx, args[0], process); err != nil {
				return err
			}
			_, err := fmt.Fprintf(r.app.stdout, "killed %s\n", cli.Printable(process))
			return err
		})
	})
}

func (a *app) logsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "logs ID PROCESS [flags]",
		Short: "Print the output of a background process",
		Long: `Print the output of a background process of a sandbox line by line: its standard
output to standard output, its standard error to standard error. With --follow go on
until the process ends; a broken connection is resumed. ID is the sandbox's id or
name, PROCESS a PROCESS_ID of "sandbar ps".

The number of lines that the daemon has discarded is reported. Bytes that are not
UTF-8 are shown as U+FFFD.
` + remoteHelp,
		Example:           "  sandbar logs $id $process\n  sandbar logs -f --timestamps $id $process",
		ValidArgsFunction: a.processIDs,
	}
	cmd.Flags().BoolP("follow", "f", false, "print new lines until the process ends")
	cmd.Flags().BoolP("timestamps", "t", false, "begin each line with the time when it was written")
	return a.remoteCommand(cmd, (*remote).logs)
}

func (r *remote) logs(args []string) error {
	if err := needArgs(r.cmd, args, 2, "ID", "PROCESS"); err != nil {
		return err
	}
	follow, _ := r.cmd.Flags().GetBool("follow")
	p := &logPrinter{app: r.app}
	p.times, _ = r.cmd.Flags().GetBool("timestamps")
	err := r.Logs(r.ctx, args[0], args[1], follow, p.print)
	if p.err != nil {
		return cli.OutputError(p.err)
	}
	return err
}

// logPrinter writes lines of a log to standard output or standard error.
type logPrinter struct {
	app   *app
	times bool
	open  [2]bool // the last line of the stream (0 stdout, 1 stderr) is not terminated
	err   error   // of a write
}

func (p *logPrinter) print(l client.Line) error {
	if l.Lost > 0 {
		p.app.warn("%d lines of %s are lost: the daemon has discarded them", l.Lost, cli.Printable(l.Stream))
		return nil
	}
	var w io.Writer = p.app.stdout
	open := &p.open[0]
	if l.Stream == "stderr" {
		w, open = p.app.stderr, &p.open[1]
	}
	out := bufio.NewWriter(w)
	if p.times && !*open {
		out.WriteString(l.Time + " ")
	}
	out.WriteString(l.Data)
	if !l.Partial {
		out.WriteByte('\n')
	}
	*open = l.Partial
	p.err = out.Flush()
	return p.err
}

// processIDs completes the id of a sandbox, then the ids of its processes.
func (a *app) processIDs(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.sandboxIDs(cmd, args, word)
	}
	c, err := a.client(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	ctx, cancel := completionTime()
	defer cancel()
	all, err := c.Processes(ctx, args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, p := range all {
		ids = append(ids, p.ID+"\t"+cli.Printable(p.Command))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
