package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/tenant"
)

func (a *app) tokenCommand() *cobra.Command {
	parent := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke tokens",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef(cmd, "unknown command %s%s", cli.Quote(args[0]), suggestion(args[0], commandNames(cmd)))
			}
			return cmd.Help()
		},
	}
	parent.AddCommand(a.tokenNewCommand(), a.tokenCreateCommand(), a.tokenListCommand(), a.tokenRevokeCommand())
	return parent
}

func (a *app) tokenNewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Print a new random token",
		Long: `Print a new random token. No daemon knows it yet: set it as SANDBAR_TOKEN, write it to
the file of token_file, or to that of a client in the setting clients.

With --e2b it has the form of E2B's API keys, which some versions of E2B's SDKs check.`,
		Example: `  export SANDBAR_TOKEN=$(sandbar token new)
  sandbar token new --e2b > ci.token`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token := config.NewToken()
			if e2b, _ := cmd.Flags().GetBool("e2b"); e2b {
				token = config.NewE2BToken()
			}
			_, err := fmt.Fprintln(a.stdout, token)
			return err
		},
	}
	cmd.Flags().Bool("e2b", false, "print one of the form of E2B's API keys: e2b_ and 40 hexadecimal digits")
	return cmd
}

const tokenFileHelp = `
The tokens of tenants are in the file tokens.json of state_dir, which has their hashes only.
Run the command as the daemon's user. A running daemon reads the file again within a second.`

// tokenFile returns the path of the file of tenants' tokens. Its directory is created if make is
// set.
func (a *app) tokenFile(cmd *cobra.Command, make bool) (string, error) {
	cfg, err := a.configuration(cmd)
	if err != nil {
		return "", err
	}
	if cfg.StateDir == "" {
		return "", &sandbar.Error{Code: sandbar.Invalid, Field: "state_dir", Message: "there is no home directory to keep tokens in", Fix: "set HOME or state_dir"}
	}
	if make {
		err = config.PrivateDir(cfg.StateDir, "state_dir")
	}
	return filepath.Join(cfg.StateDir, tenant.FileName), err
}

// oneName checks that a command has one argument, which is a name.
func oneName(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef(cmd, "%s takes one argument, the name of a token, got %d", cmd.Name(), len(args))
	}
	return nil
}

func (a *app) tokenCreateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a token of a tenant, and print it",
		Long: `Make a token of a tenant, and print it. It is shown once: nothing keeps it but its bearer.

A tenant begins with its first token. Its sandboxes, snapshots, previews, events and lists are
its own. Roles: "user" may do everything in its tenant, "read-only" may list and read, "admin"
of the tenant "default" may do everything in all tenants.
` + tokenFileHelp,
		Example: `  sandbar token create --tenant team-a ci
  sandbar token create --tenant team-a --role read-only --expires 720h dashboard
  sandbar token create --tenant team-b --e2b sdk`,
		Args: oneName,
	}
	f := cmd.Flags()
	f.String("tenant", sandbar.DefaultTenant, "`NAME` of the tenant")
	f.String("role", string(sandbar.RoleUser), "`ROLE` of the token: admin, user or read-only")
	f.Duration("expires", 0, "`TIME` after which the token is invalid, such as 720h (default never)")
	f.Bool("e2b", false, "make one of the form of E2B's API keys: e2b_ and 40 hexadecimal digits")
	a.settings(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t := tenant.Token{Name: args[0], Created: time.Now().UTC().Truncate(time.Second)}
		t.Tenant, _ = f.GetString("tenant")
		role, _ := f.GetString("role")
		t.Role = sandbar.Role(role)
		if after, _ := f.GetDuration("expires"); after > 0 {
			end := t.Created.Add(after)
			t.Expires = &end
		} else if f.Changed("expires") {
			return usagef(cmd, "--expires: %s is out of range (allowed: a time above 0, such as 720h)", after)
		}
		path, err := a.tokenFile(cmd, true)
		if err != nil {
			return err
		}
		token := config.NewToken()
		if e2b, _ := f.GetBool("e2b"); e2b {
			token = config.NewE2BToken()
		}
		t.Hash = tenant.HashOf(token)
		if err := tenant.Create(path, t); err != nil {
			return err
		}
		if _, err = fmt.Fprintln(a.stdout, token); err != nil {
			return cli.OutputError(err)
		}
		return nil
	}
	return cmd
}

func (a *app) tokenListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the tokens of tenants",
		Long:    "List the tokens of tenants: names, tenants, roles and ends, not the tokens.\n" + tokenFileHelp,
		Example: "  sandbar token list\n  sandbar token list --json | jq -r '.[].name'",
		Args:    noArgs,
	}
	cmd.Flags().Bool("json", false, "print JSON, a list of objects")
	a.settings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		path, err := a.tokenFile(cmd, false)
		if err != nil {
			return err
		}
		all, err := tenant.Read(path)
		if err != nil {
			return err
		}
		if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
			if all == nil {
				all = []tenant.Token{}
			}
			if err := json.NewEncoder(a.stdout).Encode(all); err != nil {
				return cli.OutputError(err)
			}
			return nil
		}
		w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "NAME\tTENANT\tROLE\tCREATED\tEXPIRES")
		for _, t := range all {
			end := "never"
			switch {
			case t.Expired(time.Now()):
				end = "expired"
			case t.Expires != nil:
				end = t.Expires.Local().Format(time.RFC3339)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", t.Name, t.Tenant, t.Role, t.Created.Local().Format(time.RFC3339), end)
		}
		if err := w.Flush(); err != nil {
			return cli.OutputError(err)
		}
		return nil
	}
	return cmd
}

func (a *app) tokenRevokeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke NAME",
		Short: "Make a token of a tenant invalid",
		Long: `Make a token of a tenant invalid. A running daemon refuses it at once, and ends its open
connections within two seconds. The sandboxes that were created with it stay.
` + tokenFileHelp,
		Example: "  sandbar token revoke ci",
		Args:    oneName,
	}
	a.settings(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path, err := a.tokenFile(cmd, true)
		if err != nil {
			return err
		}
		return tenant.Revoke(path, args[0])
	}
	return cmd
}
