package main

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/cli/transfer"
)

const transferHelp = `
The destination file is replaced atomically, after all data has arrived. With
--recursive a directory is copied with all files and directories in it; symbolic
links, devices and sockets are skipped with a warning.

Progress is shown on a terminal.
` + remoteHelp

func (a *app) uploadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upload ID LOCAL REMOTE",
		Short: "Copy a file into a sandbox",
		Long: `Copy the file LOCAL, or with - standard input, to REMOTE in a sandbox of a
daemon. ID is the sandbox's id or name. If REMOTE ends with /, it is the directory
for the file.
` + transferHelp,
		Example: `  sandbar upload $id main.py /home/user/main.py
  tar c src | sandbar upload $id - /tmp/src.tar
  sandbar upload -r $id src /home/user/src`,
		ValidArgsFunction: a.sandboxIDs,
	}
	cmd.Flags().String("mode", "", "`permissions` of the file, octal (default 0644; with --recursive those of each file)")
	cmd.Flags().BoolP("parents", "p", false, "create missing parent directories")
	cmd.Flags().BoolP("recursive", "r", false, "copy a directory")
	return a.remoteCommand(cmd, (*remote).upload)
}

func (a *app) downloadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "download ID REMOTE LOCAL",
		Short: "Copy a file out of a sandbox",
		Long: `Copy the file REMOTE of a sandbox of a daemon to the file LOCAL, or with - to
standard output. ID is the sandbox's id or name. If LOCAL is a directory, the
file is written into it.

File names from the sandbox are not trusted: the command writes neither outside of
LOCAL nor through a symbolic link.
` + transferHelp,
		Example: `  sandbar download $id /home/user/result.json .
  sandbar download $id /tmp/src.tar - | tar x
  sandbar download -r $id /home/user/src src`,
		ValidArgsFunction: a.sandboxIDs,
	}
	cmd.Flags().BoolP("recursive", "r", false, "copy a directory")
	return a.remoteCommand(cmd, (*remote).download)
}

// transfer returns a Transfer for a sandbox.
func (r *remote) transfer(id string) *transfer.Transfer {
	return &transfer.Transfer{Client: r.Client, Sandbox: id, Stdin: r.app.stdin, Stdout: r.app.stdout, Stderr: r.app.stderr, Command: r.cmd.CommandPath()}
}

func (r *remote) upload(args []string) error {
	if err := needArgs(r.cmd, args, 3, "ID", "LOCAL", "REMOTE"); err != nil {
		return err
	}
	if err := checkUTF8(r.cmd, args[2:]); err != nil {
		return err
	}
	id, local, to := args[0], args[1], args[2]
	mode, err := r.mode()
	if err != nil {
		return err
	}
	parents, _ := r.cmd.Flags().GetBool("parents")
	recursive, _ := r.cmd.Flags().GetBool("recursive")
	if strings.HasSuffix(to, "/") && local != "-" && !recursive {
		to += filepath.Base(local)
	}
	t, sent := r.transfer(id), int64(0)
	if recursive {
		if local == "-" || mode != 0 {
			return usagef(r.cmd, "--recursive excludes - and --mode")
		}
		sent, err = t.UploadTree(r.ctx, local, to)
	} else {
		sent, err = t.UploadFile(r.ctx, local, to, mode, parents)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(r.app.stdout, "uploaded %d bytes to %s:%s\n", sent, cli.Printable(id), cli.Printable(to))
	return err
}

func (r *remote) mode() (fs.FileMode, error) {
	flag := r.cmd.Flags().Lookup("mode")
	if !flag.Changed {
		return 0, nil
	}
	n, err := strconv.ParseUint(flag.Value.String(), 8, 16)
	if err != nil || n == 0 || n > 0o777 {
		return 0, usagef(r.cmd, "--mode: %s is not a file mode (allowed: octal from 1 to 777)", cli.Quote(flag.Value.String()))
	}
	return fs.FileMode(n), nil
}

func (r *remote) download(args []string) error {
	if err := needArgs(r.cmd, args, 3, "ID", "REMOTE", "LOCAL"); err != nil {
		return err
	}
	id, from, local := args[0], args[1], args[2]
	if err := checkUTF8(r.cmd, []string{from}); err != nil {
		return err
	}
	recursive, _ := r.cmd.Flags().GetBool("recursive")
	switch {
	case recursive && local == "-":
		return usagef(r.cmd, "--recursive excludes -")
	case local == "-":
		return r.transfer(id).DownloadTo(r.ctx, from, r.app.stdout)
	case recursive:
		return r.transfer(id).DownloadTree(r.ctx, from, local)
	}
	return r.transfer(id).DownloadFile(r.ctx, from, local)
}
