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
		Short: "Make a sandbox in a daemon and print its id",
		Long: `Make a sandbox in a daemon and print its id. It lives until "sandbar stop", or
until it has been idle for too long.

IMAGE is the sandbox's root file system; without one it is "host", this
machine's own programs, read-only.

Limits that are not given are the daemon's defaults, but one command may take as
long as the daemon allows at most.
` + remoteHelp,
		Example: `  sandbar create
  id=$(sandbar create --memory 512MiB --name builder -e CI=1)
  sandbar create host --idle-timeout 5m --json`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return []string{sandbar.ImageHost + "\tthe daemon's machine's own programs"}, cobra.ShellCompDirectiveNoFileComp
		},
	}
	f := cmd.Flags()
	f.String("name", "", "a `name` to find it by; need not be the only one")
	f.StringArrayP("env", "e", nil, "environment variable, `NAME=VALUE`, or NAME to pass on your own; may be repeated")
	f.StringArray("label", nil, "a note, `NAME=VALUE`, that is kept with it; may be repeated")
	f.String("idle-timeout", "", "`duration`, or seconds, without use after which it ends, or unlimited (default the daemon's)")
	f.String("secret-file", "", "`file` with a token of 16 characters or more that opens this sandbox alone")
	for _, l := range limitFlags {
		help, _, _ := strings.Cut(l.help, " (default")
		if l.flag == "timeout" {
			help = "`duration` that one command may take"
		}
		f.String(l.flag, "", help)
	}
	f.Bool("network", false, networkHelp)
	f.String("driver", "", "`name` of the driver to make it, if the daemon allows that one (default the daemon's)")
	f.Bool("allow-degraded", false, "make it even if the daemon's host cannot enforce a limit")
	f.Bool("cold", false, "make it from nothing even if the daemon keeps one ready")
	f.Bool("json", false, "print all about it as JSON")
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
			return nil, usagef(r.cmd, "--label: %s is no label (allowed: NAME=VALUE)", cli.Quote(l))
		}
		labels[name] = value
	}
	return labels, checkUTF8(r.cmd, given)
}

// seconds reads a duration. A number alone is one of seconds, which is how other
// programs of this kind have it.
func (r *remote) seconds(flag, text string) (wire.Amount, error) {
	if text == "" {
		return 0, nil
	}
	if text == "unlimited" {
		return wire.Unlimited, nil
	}
	d, err := config.ParseDuration(text)
	if err == nil && d == 0 {
		err = errors.New("is no time at all")
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
		return "", usagef(r.cmd, "--secret-file: what is in %s is no secret (allowed: one line of 16 to 4096 visible ASCII characters)", cli.Printable(flag.Value.String()))
	}
	return secret, nil
}
