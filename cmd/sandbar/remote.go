package main

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client"
	"github.com/sandbar-dev/sandbar/internal/cli"
)

// remoteSettings are the flags of the commands that are clients of a daemon.
var remoteSettings = []setting{
	{"url", "url", "address of the daemon: http://HOST:PORT, https://HOST:PORT or unix:/path (default $SANDBAR_URL or http://127.0.0.1:8080)"},
	{"token-file", "token_file", "`file` that holds the daemon's token"},
}

// remoteHelp is the part of the help texts that these commands share.
const remoteHelp = `
The daemon's address comes from --url, SANDBAR_URL or the configuration; the
default is http://127.0.0.1:8080. The token comes from SANDBAR_TOKEN, --token-file
or the configuration; the default is the token that a daemon of this user
generated.`

// remote is a command's connection to a daemon.
type remote struct {
	*client.Client
	app *app
	cmd *cobra.Command
	// ctx is cancelled by the first signal; the second exits the process.
	ctx    context.Context
	stop   func()
	caught *syscall.Signal // the signal that came; read it after ctx ended
}

// remoteCommand makes cmd a client of a daemon. run is called with the connection.
func (a *app) remoteCommand(cmd *cobra.Command, run func(r *remote, args []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := a.connect(cmd)
		if err != nil {
			return err
		}
		defer r.close()
		err = run(r, args)
		if s := r.signal(); s != 0 && sandbar.CodeOf(err) == sandbar.Canceled {
			return cli.Exit(cli.ExitSignal + s)
		}
		return err
	}
	a.settings(cmd, remoteSettings...)
	return cmd
}

// connect finds the daemon's address and token and installs the signal handler. It sends nothing.
func (a *app) connect(cmd *cobra.Command) (*remote, error) {
	c, err := a.client(cmd)
	if err != nil {
		return nil, err
	}
	r := &remote{Client: c, app: a, cmd: cmd, caught: new(syscall.Signal)}
	ctx, cancel := context.WithCancel(context.Background())
	signals := a.terminationSignals()
	go func() {
		for s := range signals {
			number, _ := s.(syscall.Signal)
			if ctx.Err() != nil {
				os.Exit(cli.ExitSignal + int(number))
			}
			*r.caught = number
			cancel()
		}
	}()
	r.ctx = ctx
	r.stop = func() { signal.Stop(signals); close(signals) }
	return r, nil
}

func (a *app) client(cmd *cobra.Command) (*client.Client, error) {
	cfg, err := a.configuration(cmd, remoteSettings...)
	if err != nil {
		return nil, err
	}
	address, err := cfg.DaemonURL()
	if err != nil {
		return nil, err
	}
	token, err := cfg.FindToken()
	if err != nil {
		return nil, err
	}
	return client.New(address, token)
}

func (r *remote) close() {
	r.stop()
	r.Client.Close()
}

// signal returns the signal that cancelled ctx, or 0.
func (r *remote) signal() int {
	if r.ctx.Err() == nil {
		return 0
	}
	return int(*r.caught)
}

// needArgs checks the number of arguments. names are the arguments in order; the first
// least of them are required, and a last name that ends with "..." may repeat.
func needArgs(cmd *cobra.Command, args []string, least int, names ...string) error {
	if len(args) > len(names) && !strings.HasSuffix(names[len(names)-1], "...") {
		return usagef(cmd, "%s is one argument too many", cli.Quote(args[len(names)]))
	}
	for i, name := range names[:least] {
		if i >= len(args) || args[i] == "" {
			return usagef(cmd, "%s is missing", strings.TrimSuffix(name, "..."))
		}
	}
	return nil
}

// sandboxIDs completes the first argument with the ids of the daemon's sandboxes.
func (a *app) sandboxIDs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	c, err := a.client(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	ctx, cancel := completionTime()
	defer cancel()
	all, err := c.List(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, s := range all {
		ids = append(ids, string(s.ID)+"\t"+s.Name)
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// completionTime returns a context that bounds the completion of one word.
func completionTime() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 2*time.Second)
}

// checkUTF8 returns a usage error if a text is not UTF-8, which JSON cannot carry.
func checkUTF8(cmd *cobra.Command, texts []string) error {
	return cli.CheckUTF8(cmd.CommandPath(), texts)
}
