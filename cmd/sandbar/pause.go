package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar/internal/cli"
)

func (a *app) pauseCommand() *cobra.Command {
	return a.remoteCommand(&cobra.Command{
		Use:   "pause ID...",
		Short: "Save sandboxes of a daemon on disk",
		Long: `Save sandboxes of a daemon on disk and end their use of memory and processors.
"sandbar resume" continues them, also after the daemon was restarted or killed. A
sandbox is saved when the command returns.

The driver native saves the files: programs end. The driver vm also saves the running
programs: they go on after "sandbar resume", without input, and nobody sees their
output. Commands that run in the sandbox end with an error, and connections and
transfers are cut.

Other drivers cannot do this. A paused sandbox has no time limits; "sandbar list"
shows it and "sandbar stop" removes it. ID is a sandbox's id, as sb_... or as a
UUID, or its name.
` + remoteHelp,
		Example:           "  sandbar pause $id\n  sandbar resume $id",
		ValidArgsFunction: a.sandboxIDs,
	}, (*remote).pauseAll)
}

func (r *remote) pauseAll(ids []string) error {
	if err := needArgs(r.cmd, ids, 1, "ID..."); err != nil {
		return err
	}
	return r.eachOf(ids, func(id string) error {
		s, err := r.Pause(r.ctx, id)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(r.app.stdout, "paused %s, %s on disk\n", cli.Printable(id), mebibytes(s.DiskBytes))
		return err
	})
}

// mebibytes writes a size in MiB, rounded up.
func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20) }

func (a *app) resumeCommand() *cobra.Command {
	return a.remoteCommand(&cobra.Command{
		Use:   "resume ID...",
		Short: "Continue paused sandboxes of a daemon",
		Long: `Continue sandboxes that "sandbar pause" has saved. They keep their ids and files, and
with the driver vm their programs go on. ID is a sandbox's id, as sb_... or as a UUID, or its name.
` + remoteHelp,
		Example:           "  sandbar resume $id",
		ValidArgsFunction: a.sandboxIDs,
	}, (*remote).resumeAll)
}

func (r *remote) resumeAll(ids []string) error {
	if err := needArgs(r.cmd, ids, 1, "ID..."); err != nil {
		return err
	}
	return r.eachOf(ids, func(id string) error {
		began := time.Now()
		if _, err := r.Resume(r.ctx, id); err != nil {
			return err
		}
		if cli.OnTerminal(r.app.stderr) {
			fmt.Fprintf(r.app.stderr, "sandbox ready in %.1fs\n", time.Since(began).Seconds())
		}
		_, err := fmt.Fprintf(r.app.stdout, "resumed %s\n", cli.Printable(id))
		return err
	})
}

func (a *app) forkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fork ID",
		Short: "Copy a sandbox of a daemon and print the ids",
		Long: `Copy a sandbox of a daemon and print the ids of the copies. The sandbox itself goes on.
With the driver native the copies have its files. With the driver vm they also have
its running programs, and share its memory until they change it; these programs have
no input, and nobody sees their output.

Random numbers of the kernel, the clock and the machine's id are new in each copy.
Random numbers that a program has already drawn, or generates by itself, are the
same in all.

Other drivers cannot do this. ID is a sandbox's id, as sb_... or as a UUID, or its
name.
` + remoteHelp,
		Example:           "  sandbar fork $id\n  sandbar fork $id -n 8 --json",
		ValidArgsFunction: a.sandboxIDs,
	}
	cmd.Flags().IntP("count", "n", 1, "`number` of copies, 1 to 100")
	cmd.Flags().Bool("json", false, "print JSON")
	return a.remoteCommand(cmd, (*remote).fork)
}

func (r *remote) fork(args []string) error {
	if err := needArgs(r.cmd, args, 1, "ID"); err != nil {
		return err
	}
	n, _ := r.cmd.Flags().GetInt("count")
	if n < 1 || n > 100 {
		return usagef(r.cmd, "--count: %d is out of range (allowed: 1 to 100)", n)
	}
	all, err := r.Fork(r.ctx, args[0], n)
	if err != nil {
		return err
	}
	if asJSON, _ := r.cmd.Flags().GetBool("json"); asJSON {
		return cli.WriteJSON(r.app.stdout, map[string]any{"sandboxes": all})
	}
	for _, s := range all {
		if _, err := fmt.Fprintln(r.app.stdout, s.ID); err != nil {
			return err
		}
	}
	return nil
}
