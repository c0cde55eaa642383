package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/settings"
)

// maxForeignConfig is the largest config.yaml that addWorker changes, in bytes.
const maxForeignConfig = 1 << 20

// iiiCommand spells "iii worker add" as the iii engine does, so that commands of its
// documentation work after "sandbar".
func (a *app) iiiCommand() *cobra.Command {
	parent := func(use, short string, child *cobra.Command) *cobra.Command {
		cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs,
			RunE: func(cmd *cobra.Command, args []string) error {
				if len(args) > 0 {
					return usagef(cmd, "unknown command %s%s", cli.Quote(cmd.Name()+" "+args[0]), suggestion(args[0], commandNames(cmd)))
				}
				return cmd.Help()
			}}
		cmd.AddCommand(child)
		return cmd
	}
	add := &cobra.Command{
		Use:   "add iii-sandbox [flags]",
		Short: "Append the iii-sandbox worker to an iii engine's config.yaml",
		Long: `Append the block of the iii-sandbox worker, with its defaults, to the workers in an
iii engine's config.yaml. The rest of the file does not change. A file that already
has the worker does not change; a missing file is created.

"sandbar serve" and "sandbar worker" accept that file as --config.`,
		Example: `  sandbar iii worker add iii-sandbox
  sandbar serve --iii 127.0.0.1:49134 --config config.yaml`,
		RunE: a.iiiWorkerAdd,
	}
	add.Flags().String("file", "config.yaml", "the `file` to append to")
	return parent("iii COMMAND", "Configure sandboxes for an iii engine", parent("worker COMMAND", "Configure the workers of an iii engine", add))
}

func (a *app) iiiWorkerAdd(cmd *cobra.Command, args []string) error {
	if err := needArgs(cmd, args, 1, "iii-sandbox"); err != nil {
		return err
	}
	if args[0] != "iii-sandbox" {
		return usagef(cmd, "%s is not a worker that can be added (allowed: iii-sandbox; to pull an image: sandbar images pull REFERENCE)", cli.Quote(args[0]))
	}
	name, _ := cmd.Flags().GetString("file")
	added, err := addWorker(name)
	if err != nil {
		return cli.Fail(cli.ExitFailure, err)
	}
	message := "%s already has the worker iii-sandbox; nothing was changed\n"
	if added {
		message = "added the worker iii-sandbox to %s\n"
	}
	_, err = fmt.Fprintf(a.stdout, message, cli.Printable(name))
	return err
}

// addWorker appends the block to a file and replaces the file atomically. It follows a
// symbolic link. added is false if the file already has the block.
func addWorker(name string) (added bool, err error) {
	mode := fs.FileMode(0o666)
	if to, err := filepath.EvalSymlinks(name); err == nil {
		name = to
	}
	data, err := os.ReadFile(name)
	switch info, serr := os.Stat(name); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return false, err
	case serr != nil || !info.Mode().IsRegular() || len(data) > maxForeignConfig:
		return false, fmt.Errorf("%s is not a file of at most %d MiB", cli.Printable(name), maxForeignConfig>>20)
	default:
		mode = info.Mode().Perm()
	}
	out, added, err := settings.Add(data)
	if err != nil || !added {
		return false, err
	}
	root, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return false, err
	}
	defer root.Close()
	temporary := ".sandbar-" + rand.Text()
	if err = root.WriteFile(temporary, out, mode); err == nil {
		err = root.Rename(temporary, filepath.Base(name))
	}
	if err != nil {
		root.Remove(temporary)
	}
	return err == nil, err
}
