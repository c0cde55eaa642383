package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/cli/outcome"
	"github.com/sandbar-dev/sandbar/internal/server/config"
)

func (a *app) execCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec ID [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command in a sandbox of a daemon",
		Long: `Run a command in a sandbox of a daemon. ID is the sandbox's id or name.

Standard input is passed to the command. Standard output and standard error are
streamed byte for byte. Ctrl-C ends the command with its grace period; a second
Ctrl-C exits at once.

With --tty the command has a terminal of the size of yours. Its output is standard
output, all keys go to it, and it has no limits of time and output by default.

With --detach the command runs in the background and its process id is printed, for
"sandbar logs", "sandbar ps" and "sandbar kill".
` + remoteHelp + `

Exit code: the command's own, or
  2        a mistake on the command line or in the configuration
  124      ended at the timeout
  125      the daemon could not run the command, or lost it
  126/127  the program is not executable, or was not found
  128+N    ended by signal N: 130 after Ctrl-C, 137 at the memory limit, 153 at the
           output limit`,
		Example: `  sandbar exec $id -- ls -l /
  echo hello | sandbar exec $id -- tr a-z A-Z
  sandbar exec $id --timeout 5s -e NAME=value --dir /tmp -- sh -c 'echo $NAME'
  sandbar exec $id -it -- bash
  sandbar exec $id --detach -- python3 -m http.server 8000`,
		ValidArgsFunction: a.sandboxIDs,
	}
	f := cmd.Flags()
	f.String("timeout", "", "`duration` after which the command is killed, or unlimited (default the sandbox's)")
	f.String("output", "", "`size` of stdout and stderr together (default the sandbox's)")
	f.StringArrayP("env", "e", nil, "environment variable, `NAME=VALUE`, or NAME to pass on your own; may be repeated")
	f.StringP("dir", "w", "", "working `directory` in the sandbox (default "+sandbar.DefaultDir+")")
	f.String("stdin", "", "`file` the command reads, or - for your own standard input (default -)")
	f.BoolP("detach", "d", false, "run it in the background and print its id")
	terminalFlags(cmd)
	return a.remoteCommand(cmd, (*remote).exec)
}

func (r *remote) exec(args []string) error {
	dash := r.cmd.ArgsLenAtDash()
	switch {
	case len(args) == 0 || dash == 0 || args[0] == "":
		return usagef(r.cmd, "ID is missing; \"sandbar list\" shows the sandboxes")
	case dash != 1:
		return usagef(r.cmd, "the command comes after \"--\", as in: sandbar exec %s -- COMMAND", cli.Printable(args[0]))
	case len(args) == 1 || args[1] == "":
		return usagef(r.cmd, "no command was given after \"--\"")
	}
	if err := checkUTF8(r.cmd, args); err != nil {
		return err
	}
	env, err := r.env()
	if err != nil {
		return err
	}
	dir, _ := r.cmd.Flags().GetString("dir")
	if detach, _ := r.cmd.Flags().GetBool("detach"); detach {
		return r.detach(args[0], args[1:], dir, env)
	}
	return r.attach(args[0], wire.Exec{Args: args[1:], Env: env, Dir: dir})
}

// detach starts a command in the background.
func (r *remote) detach(id string, args []string, dir string, env map[string]string) error {
	for _, flag := range []string{"timeout", "output", "stdin", "tty"} {
		if r.cmd.Flags().Lookup(flag).Changed {
			return usagef(r.cmd, "--detach excludes --%s", flag)
		}
	}
	p, err := r.StartProcess(r.ctx, id, shellWords(args), dir, env)
	if err != nil {
		return cli.Fail(cli.ExitPlatform, err)
	}
	_, err = fmt.Fprintln(r.app.stdout, p.ID)
	return err
}

// shellWords quotes args for a POSIX shell.
func shellWords(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = a
		if a == "" || strings.ContainsFunc(a, func(c rune) bool {
			return !(c == '-' || c == '_' || c == '.' || c == '/' || c == ':' || c == ',' || c == '@' || c == '%' || c == '+' ||
				c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z')
		}) {
			words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// attach runs a command in the foreground and streams its input and outputs.
func (r *remote) attach(id string, x wire.Exec) error {
	timeout, _ := r.cmd.Flags().GetString("timeout")
	var err error
	if x.Timeout, err = r.seconds("timeout", timeout); err != nil {
		return err
	}
	if flag := r.cmd.Flags().Lookup("output"); flag.Changed {
		var l sandbar.Limits
		if err := config.SetLimit(&l, "output", "--output", flag.Value.String()); err != nil {
			return err
		}
		x.Output = wire.Amount(l.Output)
	}
	s := client.Streams{Stdin: cli.Input{Reader: r.app.stdin}, Stdout: r.app.stdout, Stderr: r.app.stderr}
	if name := r.cmd.Flags().Lookup("stdin").Value.String(); name != "" && name != "-" {
		f, err := cli.OpenFile(name)
		if err != nil {
			return usagef(r.cmd, "--stdin: %s", err)
		}
		defer f.Close()
		s.Stdin = f
	}
	t, err := r.app.openTerminal(r.cmd)
	if err != nil {
		return err
	}
	defer t.close()
	if t != nil {
		x.Terminal = (*wire.TerminalSize)(&t.size)
		if name := r.app.term(t); name != "" && x.Env["TERM"] == "" {
			x.Env["TERM"] = name
		}
		s.Sizes = t.sizes
	}
	result, err := r.Exec(r.ctx, id, x, s)
	if err != nil {
		return r.execFailed(err)
	}
	return outcome.Remote(r.app.stderr, result, r.signal())
}

func (r *remote) execFailed(err error) error {
	if e, ok := errors.AsType[*client.OutputError](err); ok {
		return cli.OutputError(e.Err)
	}
	e := sandbar.AsError(err)
	switch {
	case e.Code == sandbar.Canceled && r.signal() != 0:
		return cli.Exit(cli.ExitSignal + r.signal())
	case e.Field == "id" || e.Code == sandbar.Unauthenticated:
		return cli.Fail(cli.ExitPlatform, err)
	case e.Code == sandbar.Invalid || e.Code == sandbar.TooLarge:
		return cli.Fail(cli.ExitUsage, err)
	}
	return cli.Fail(outcome.PlatformCode(err, 0), err)
}
