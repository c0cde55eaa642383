package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

// collectTimeout bounds one driver's search for leftovers.
const collectTimeout = time.Minute

// gcReport is the output of gc --json. The names are stable.
type gcReport struct {
	DryRun    bool       `json:"dry_run"`
	Leftovers []leftover `json:"leftovers"`
	Skipped   []skipped  `json:"skipped"` // drivers that this host cannot run
}

type leftover struct {
	Driver  string `json:"driver"`
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Removed bool   `json:"removed"`
	Error   string `json:"error,omitempty"`
}

type skipped struct {
	Driver string `json:"driver"`
	Reason string `json:"reason"`
}

// collectSetting is the flag --driver of gc.
var collectSetting = setting{"driver", "driver", "search only for leftovers of this driver (default all)"}

func (a *app) gcCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove leftovers of killed daemons",
		Long: `Find and remove processes, cgroups and directories of daemons that were killed
before they could clean up. Those of a live daemon are not touched. The daemon does
the same at each start.

Exit code: 0, or 1 if something could not be removed.`,
		Example: "  sandbar gc --dry-run\n  sandbar gc --json\n  sandbar gc --driver native",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.configuration(cmd, collectSetting)
			if err != nil {
				return err
			}
			dryRun, _ := cmd.Flags().GetBool("dry-run")
			asJSON, _ := cmd.Flags().GetBool("json")
			report, err := a.collectAll(cmd.Context(), cfg, !dryRun)
			if err != nil {
				return err
			}
			if asJSON {
				err = cli.WriteReport(a.stdout, report)
			} else {
				err = a.printLeftovers(report, cfg.Driver)
			}
			return errors.Join(err, report.failed())
		},
	}
	cmd.Flags().Bool("dry-run", false, "only show what would be removed")
	cmd.Flags().Bool("json", false, "print JSON")
	a.settings(cmd, collectSetting)
	return cmd
}

func (a *app) collectAll(ctx context.Context, cfg *config.Config, remove bool) (gcReport, error) {
	report := gcReport{DryRun: !remove, Leftovers: []leftover{}, Skipped: []skipped{}}
	if err := config.PrivateDir(cfg.RuntimeDir, "runtime_dir"); err != nil {
		return report, err
	}
	one := cfg.Origin("driver") == "--driver" && cfg.Driver != config.AutoDriver
	for _, f := range a.factories {
		if one && f.Name != cfg.Driver {
			continue
		}
		d, err := f.New(platform.Host(cfg, f.Name, commandLogger(cfg, a.stderr)))
		if err != nil {
			report.Skipped = append(report.Skipped, skipped{f.Name, err.Error()})
			continue
		}
		left, err := collectWithin(ctx, d, remove)
		if err = errors.Join(err, platform.CloseDriver(d)); err != nil {
			return report, fmt.Errorf("driver %s: %w", f.Name, err)
		}
		for _, l := range left {
			entry := leftover{Driver: f.Name, Kind: l.Kind, Name: l.Name, Removed: remove && l.Err == nil}
			if l.Err != nil {
				entry.Error = l.Err.Error()
			}
			report.Leftovers = append(report.Leftovers, entry)
		}
	}
	return report, nil
}

func collectWithin(ctx context.Context, d driver.Driver, remove bool) ([]driver.Leftover, error) {
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	return collect(ctx, d, remove)
}

// failed returns exit code 1 if a leftover could not be removed.
func (c gcReport) failed() error {
	for _, l := range c.Leftovers {
		if l.Error != "" {
			return cli.Exit(cli.ExitFailure)
		}
	}
	return nil
}

// printLeftovers prints a table. It warns of a skipped driver only if --driver names it;
// --json has all skipped drivers.
func (a *app) printLeftovers(c gcReport, asked string) error {
	for _, s := range c.Skipped {
		if s.Driver == asked {
			a.warn("driver %s was skipped: %s", s.Driver, s.Reason)
		}
	}
	if len(c.Leftovers) == 0 {
		_, err := fmt.Fprintln(a.stdout, "no leftovers")
		return err
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DRIVER\tKIND\tNAME\tSTATE")
	for _, l := range c.Leftovers {
		state := "would be removed"
		switch {
		case l.Error != "":
			state = "not removed: " + l.Error
		case l.Removed:
			state = "removed"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", l.Driver, l.Kind, cli.Printable(l.Name), state)
	}
	return w.Flush()
}
