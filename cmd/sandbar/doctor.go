package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/doctor"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

func (a *app) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Report what this host can enforce",
		Long: `Report which drivers work on this host, how each limit is enforced, which features
the kernel has, and which languages a sandbox has. Then create a sandbox, run a
program in it and remove it.

A limit is enforced by one of these, strongest first: cgroup2, cgroup1 (by the
kernel, for the whole sandbox), mount (by the kernel, as the size of a file system),
rlimit (by the kernel, per process), nice (by the scheduler, per process), watchdog
(Sandbar polls every few milliseconds), none (a request that sets the limit is an
error). runtime means that the layer below the programs enforces it in place of the
host's kernel: Sandbar itself, or gVisor.

A driver that can use several programs of the host, such as container runtimes, is
tested with each. For the driver vm the report names the monitor, the kernel, and
whether machines run on KVM or are emulated, and why. --measure also prepares what is
missing, boots a machine and creates a sandbox, and prints the durations.

The driver kubernetes is examined only if --driver names it, because it creates pods in
the cluster. The report names the rights that the account lacks, whether the cluster's
network obeys NetworkPolicy objects, and what enforces each limit.

Exit code: 0 if the driver ran a program, else 1.`,
		Example: "  sandbar doctor\n  sandbar doctor --json\n  sandbar doctor --driver local",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.configuration(cmd, driverSetting)
			if err != nil {
				return err
			}
			if err := config.PrivateDir(cfg.RuntimeDir, "runtime_dir"); err != nil {
				return err
			}
			languages, err := cfg.Catalogue()
			if err != nil {
				return err
			}
			chosen := cfg.Driver
			if chosen == config.AutoDriver {
				chosen = ""
			}
			measure, _ := cmd.Flags().GetBool("measure")
			report := doctor.Examine(cmd.Context(), doctor.Input{
				Version: thisBuild().Version, Factories: a.factories, Chosen: chosen, Languages: languages, Measure: measure,
				Host:    func(name string) driver.Host { return platform.Host(cfg, name, slog.New(slog.DiscardHandler)) },
				Presets: func(ctx context.Context, d driver.Driver) []doctor.Preset { return platform.PresetStates(ctx, cfg, d) },
			})
			if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
				err = cli.WriteReport(a.stdout, report)
			} else {
				err = printReport(a.stdout, report)
			}
			if err == nil && !report.OK {
				err = cli.Exit(cli.ExitFailure)
			}
			return err
		},
	}
	cmd.Flags().Bool("json", false, "print JSON")
	cmd.Flags().Bool("measure", false, "boot a virtual machine of the driver vm and tell how long it takes")
	a.settings(cmd, driverSetting)
	return cmd
}

// printReport writes the report as text.
func printReport(w io.Writer, r doctor.Report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	system := r.System.OS + "/" + r.System.Arch
	if r.System.Kernel != "" {
		system += ", kernel " + cli.Printable(r.System.Kernel)
	}
	fmt.Fprintf(t, "sandbar %s on %s, user %d, %d processors\n", r.Version, system, r.System.UID, r.System.CPUs)
	printDrivers(t, r)
	printKernel(t, r)
	fmt.Fprint(t, "\nLANGUAGES\n")
	for _, l := range r.Languages {
		where := cli.Printable(l.Path)
		if !l.Available {
			where = "not in the sandbox: install " + cli.Printable(l.Interpreter) + " below /usr"
			if !r.OK {
				where = "unknown: no sandbox could be created"
			}
		}
		fmt.Fprintf(t, "  %s\t%s\n", l.Name, where)
	}
	if len(r.Presets) > 0 {
		fmt.Fprint(t, "\nIMAGES (of the iii protocol)\n")
	}
	for _, p := range r.Presets {
		fmt.Fprintf(t, "  %s\t%s\n", p.Name, presetText(p))
	}
	fmt.Fprint(t, "\nSANDBOX\n")
	if r.Sandbox.OK {
		fmt.Fprintf(t, "  driver %s created a sandbox, ran a program in it and removed it in %.1f ms\n", r.Driver, r.Sandbox.TotalMS)
		if r.Sandbox.OnceMS > 0 {
			fmt.Fprintf(t, "  the fastest of five executions of that program, each in a sandbox for it alone, took %.1f ms\n", r.Sandbox.OnceMS)
		}
	} else {
		fmt.Fprintf(t, "  does not work: %s\n", r.Sandbox.Problem)
		fix(t, r.Sandbox.Fix)
	}
	return t.Flush()
}

// presetText describes where the image of a preset comes from.
func presetText(p doctor.Preset) string {
	ref := cli.Printable(p.Ref)
	switch p.Source {
	case "installed":
		return ref + ", installed"
	case "host":
		return "this host's programs (setting iii.presets)"
	case "driver":
		return ref + ", an image of the driver (setting iii.presets)"
	case "pull":
		return ref + ", pulled at its first use (setting iii.auto_install)"
	}
	return "missing: sandbar images pull " + p.Name
}

func printDrivers(w io.Writer, r doctor.Report) {
	fmt.Fprint(w, "\nDRIVERS\n")
	for _, d := range r.Drivers {
		mark, state := " ", "works, boundary: "+string(d.Boundary)
		if d.Name == r.Driver {
			mark = "*"
		}
		if !d.Available {
			state = "does not work: " + d.Problem
		}
		if d.Unexamined {
			state = d.Problem
		}
		fmt.Fprintf(w, "%s %s\t%s\n", mark, d.Name, state)
		fix(w, d.Fix)
		for _, f := range d.Facts {
			fmt.Fprintf(w, "    %s: %s\n", f.Name, cli.Printable(f.State))
			fix(w, f.Fix)
		}
		for _, a := range d.Alternatives {
			printAlternative(w, a)
		}
		for _, name := range slices.Sorted(maps.Keys(d.Options)) {
			fmt.Fprintf(w, "    option %s: %s\n", name, d.Options[name])
		}
	}
	for _, d := range r.Drivers {
		if d.Name != r.Driver {
			continue
		}
		fmt.Fprintf(w, "\nLIMITS (%s)\n", d.Name)
		for _, l := range limits(d.Enforced) {
			fmt.Fprintf(w, "  %s\t%s\n", l.name, l.how)
		}
		fmt.Fprint(w, "  timeout\tengine\n  output\tengine\n")
		if len(d.Notes) > 0 {
			fmt.Fprint(w, "\nNOTES\n")
		}
		for _, n := range d.Notes {
			fmt.Fprintf(w, "  - %s\n", n)
		}
	}
}

// printAlternative writes the capabilities of a driver with another value of its option.
func printAlternative(w io.Writer, a doctor.Alternative) {
	if !a.Available {
		fmt.Fprintf(w, "    %s %s: does not work: %s\n", a.Option, a.Value, a.Problem)
		fix(w, a.Fix)
		return
	}
	var all []string
	for _, l := range limits(a.Enforced) {
		all = append(all, l.name+" "+string(l.how))
	}
	fmt.Fprintf(w, "    %s %s: works, boundary: %s; limits: %s\n", a.Option, a.Value, a.Boundary, strings.Join(all, ", "))
	for _, n := range a.Notes {
		fmt.Fprintf(w, "      - %s\n", cli.Printable(n))
	}
}

// limit is the enforcement of one limit.
type limit struct {
	name string
	how  sandbar.Enforcement
}

// limits lists the limits that drivers enforce, in the order of the report.
func limits(e *sandbar.Enforcements) []limit {
	return []limit{{"memory", e.Memory}, {"cpus", e.CPUs}, {"cpu_shares", e.CPUShares}, {"pids", e.PIDs},
		{"disk", e.Disk}, {"inodes", e.Inodes}, {"files", e.Files}}
}

func printKernel(w io.Writer, r doctor.Report) {
	if len(r.Kernel) == 0 {
		return
	}
	fmt.Fprint(w, "\nKERNEL\n")
	for _, f := range r.Kernel {
		line := f.State
		if f.Detail != "" {
			line += " (" + strings.TrimSpace(f.Detail) + ")"
		}
		fmt.Fprintf(w, "  %s\t%s\n", f.Name, line)
		fix(w, f.Fix)
	}
}

func fix(w io.Writer, text string) {
	if text != "" {
		fmt.Fprintf(w, "      fix: %s\n", text)
	}
}
