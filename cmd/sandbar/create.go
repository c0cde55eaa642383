package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/server/config"
)

func (a *app) createCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create [IMAGE] [flags]",
		Short: "Create a sandbox in a daemon and print its id",
		Long: `Create a sandbox in a daemon and print its id. The sandbox lives until "sandbar
stop", or until its idle timeout.

IMAGE is the sandbox's root file system. The default is "host": the programs of the
daemon's machine, read-only.

A limit that is not given is the daemon's default, except the timeout of a command:
its default is the daemon's maximum.
` + remoteHelp,
		Example: `  sandbar create
  id=$(sandbar create --memory 512MiB --name builder -e CI=1)
  sandbar create host --idle-timeout 5m --json`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return []string{sandbar.ImageHost + "\tthe programs of the daemon's machine"}, cobra.ShellCompDirectiveNoFileComp
		},
	}
	f := cmd.Flags()
	f.String("name", "", "`name` of the sandbox; need not be unique")
	f.StringArrayP("env", "e", nil, "environment variable, `NAME=VALUE`, or NAME to pass on your own; may be repeated")
	f.StringArray("label", nil, "label, `NAME=VALUE`, that is stored with the sandbox; may be repeated")
	f.String("idle-timeout", "", "`duration`, or seconds, without use after which the sandbox is removed, or unlimited (default the daemon's)")
	f.String("secret-file", "", "`file` with a token, 16 characters or more, that grants access to this sandbox alone")
	for _, l := range limitFlags {
		help, _, _ := strings.Cut(l.help, " (default")
		if l.flag == "timeout" {
			help = "`duration` that one command may take"
		}
		f.String(l.flag, "", help)
	}
	f.Bool("network", false, networkHelp)
	f.String("driver", "", "`name` of the driver, if the daemon allows it (default the daemon's)")
	f.Bool("allow-degraded", false, "create the sandbox even if the daemon's host cannot enforce a limit")
	f.Bool("cold", false, "do not take a sandbox from the daemon's warm pool")
	f.Bool("json", false, "print the sandbox's description as JSON")
	return a.remoteCommand(cmd, (*remote).create)
}

func (r *remote) create(args []string) error {
	if err := needArgs(r.cmd, args, 0, "IMAGE"); err != nil {
		return err
	}
	x, err := r.createRequest(args)
	if err != nil {
		return err
	}
	began := time.Now()
	s, err := r.Create(r.ctx, x)
	if err != nil {
		return err
	}
	if asJSON, _ := r.cmd.Flags().GetBool("json"); asJSON {
		return cli.WriteJSON(r.app.stdout, s)
	}
	if cli.OnTerminal(r.app.stderr) {
		fmt.Fprintf(r.app.stderr, "sandbox ready in %.1fs\n", time.Since(began).Seconds())
	}
	_, err = fmt.Fprintln(r.app.stdout, s.ID)
	return err
}

func (r *remote) createRequest(args []string) (wire.Create, error) {
	var x wire.Create
	if len(args) > 0 {
		x.Image = args[0]
	}
	f := r.cmd.Flags()
	x.Name, _ = f.GetString("name")
	x.AllowDegraded, _ = f.GetBool("allow-degraded")
	x.Cold, _ = f.GetBool("cold")
	x.Network = networkFlag(r.cmd)
	x.Driver, _ = f.GetString("driver")
	var limits sandbar.Limits
	var errs [5]error
	errs[0] = limitsOf(r.cmd, &limits)
	if l := wire.LimitsOf(limits); l != (wire.Limits{}) {
		x.Limits = &l
	}
	x.Env, errs[1] = r.env()
	x.Labels, errs[2] = r.labels()
	idle, _ := f.GetString("idle-timeout")
	x.IdleTimeout, errs[3] = r.seconds("idle-timeout", idle)
	x.Secret, errs[4] = r.secret()
	return x, errors.Join(errs[:]...)
}

// env reads --env.
func (r *remote) env() (map[string]string, error) {
	names, _ := r.cmd.Flags().GetStringArray("env")
	env, err := r.app.parseEnv(r.cmd, names)
	for name, value := range env {
		err = errors.Join(err, checkUTF8(r.cmd, []string{name, value}))
	}
	return env, err
}

func (r *remote) labels() (map[string]string, error) {
	given, _ := r.cmd.Flags().GetStringArray("label")
	labels := map[string]string{}
	for _, l := range given {
		name, value, ok := strings.Cut(l, "=")
		if !ok || name == "" {
			return nil, usagef(r.cmd, "--label: %s is not a label (allowed: NAME=VALUE)", cli.Quote(l))
		}
		labels[name] = value
	}
	return labels, checkUTF8(r.cmd, given)
}

// seconds parses the duration that a flag gives, for the wire. A number without a unit
// is in seconds, as in other sandbox tools. "" is 0.
func (r *remote) seconds(flag, text string) (wire.Amount, error) {
	if text == "" {
		return 0, nil
	}
	if text == "unlimited" {
		return wire.Unlimited, nil
	}
	d, err := config.ParseDuration(text)
	if err == nil && d == 0 {
		err = errors.New("is zero")
	}
	if err != nil {
		return 0, usagef(r.cmd, "--%s: %s %v (allowed: a duration such as 500ms, 30s or 5m, or unlimited)", flag, cli.Quote(text), err)
	}
	return wire.Seconds(d), nil
}

func (r *remote) secret() (string, error) {
	flag := r.cmd.Flags().Lookup("secret-file")
	if !flag.Changed {
		return "", nil
	}
	b, err := os.ReadFile(flag.Value.String())
	if err != nil {
		return "", usagef(r.cmd, "--secret-file: %v", err)
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	if len(secret) < 16 || len(secret) > 4096 || strings.ContainsFunc(secret, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", usagef(r.cmd, "--secret-file: %s does not hold a valid secret (allowed: one line of 16 to 4096 visible ASCII characters)", cli.Printable(flag.Value.String()))
	}
	return secret, nil
}
