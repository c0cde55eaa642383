package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/cli"
)

func (a *app) watchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch ID [DIRECTORY] [flags]",
		Short: "Print the changes of files in a sandbox of a daemon",
		Long: `Print the changes of files in a directory of a sandbox as they happen, one in a line:
create, write, remove, rename or chmod, and the path relative to the directory. "lost"
means that changes came faster than they were read, and some are missing. The default
directory is the home directory of the sandbox.

The command ends when the directory or the sandbox is gone, or on Ctrl-C. ID is the
sandbox's id or name.
` + remoteHelp,
		Example:           "  sandbar watch $id src --recursive\n  sandbar watch --json $id | jq -r .path",
		ValidArgsFunction: a.sandboxIDs,
	}
	cmd.Flags().BoolP("recursive", "r", false, "also watch all directories below")
	cmd.Flags().Bool("json", false, "print JSON, one object in a line")
	return a.remoteCommand(cmd, (*remote).watch)
}

func (r *remote) watch(args []string) error {
	if err := needArgs(r.cmd, args, 1, "ID", "DIRECTORY"); err != nil {
		return err
	}
	dir := "."
	if len(args) > 1 {
		dir = args[1]
	}
	recursive, _ := r.cmd.Flags().GetBool("recursive")
	asJSON, _ := r.cmd.Flags().GetBool("json")
	w, err := r.Watch(r.ctx, args[0], dir, recursive)
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		e, err := w.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if asJSON {
			err = json.NewEncoder(r.app.stdout).Encode(wire.FileEvent{Op: e.Op, Path: e.Path})
		} else {
			line := strings.TrimSuffix(string(e.Op)+" "+cli.Printable(e.Path), " ")
			_, err = fmt.Fprintln(r.app.stdout, line)
		}
		if err != nil {
			return cli.OutputError(err)
		}
	}
}
