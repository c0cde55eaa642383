package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/attack"
	"github.com/sandbar-dev/sandbar/internal/config"
	"github.com/sandbar-dev/sandbar/internal/doctor"
	"github.com/sandbar-dev/sandbar/internal/platform"
)

// escapeReport is what escape-suite prints with --json. The names are stable.
type escapeReport struct {
	Version  string                 `json:"version"`
	Driver   string                 `json:"driver"`
	Boundary driver.Boundary        `json:"boundary"`
	Kernel   string                 `json:"kernel"`
	OK       bool                   `json:"ok"` // every case is as expected
	Counts   map[attack.Verdict]int `json:"counts"`
	Cases    []attack.Report        `json:"cases"`
}

// maxFuzz keeps the suite bounded.
const maxFuzz = time.Hour

func (a *app) escapeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "escape-suite",
		Short: "Attack this host's sandboxes and see what holds",
		Long: `Run the catalogue of attacks against a driver on this host and against a daemon
started for the purpose, and tell of each what was expected and what happened:

  CONTAINED     the attack got nothing, and nothing of it is left
  ESCAPED       it got at something. Where the driver claims no boundary this is
                expected: the attack is made there to be seen to work
  NOT CLAIMED   the driver does not promise it, and it was not attempted
  NOT RUN       something that the case needs is missing here
  INCONCLUSIVE  the attack could not be carried out to its end

It is safe on a host in production: it attacks only what it has made itself, on
loopback and in directories of its own, and is bounded in time and amount. It
takes a few minutes.

Exit code: 0 if everything is as the driver claims, else 1.`,
		Example: "  sandbar escape-suite\n  sandbar escape-suite --driver local\n  sandbar escape-suite --run '5*-*' --json\n  sandbar escape-suite --run '66-*' --fuzz 1m",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.configuration(cmd, driverSetting)
			if err != nil {
				return err
			}
			only, _ := cmd.Flags().GetString("run")
			cases, err := chosenCases(only)
			if err != nil {
				return usagef(cmd, "--run: %v", err)
			}
			fuzz, _ := cmd.Flags().GetDuration("fuzz")
			if fuzz < time.Millisecond || fuzz > maxFuzz {
				return usagef(cmd, "--fuzz: %v is not between 1ms and %v", fuzz, maxFuzz)
			}
			asJSON, _ := cmd.Flags().GetBool("json")
			report, err := a.attackHost(cmd.Context(), cfg, &attack.Suite{Fuzz: fuzz}, cases, !asJSON)
			if err != nil {
				return err
			}
			if asJSON {
				err = writeReport(a.stdout, report)
			} else {
				err = printEscapes(a.stdout, report)
			}
			if err == nil && !report.OK {
				err = &exit{exitFailure}
			}
			return err
		},
	}
	cmd.Flags().Bool("json", false, "print JSON")
	cmd.Flags().Duration("fuzz", attack.FuzzDefault, "how long random system calls are made, at most "+maxFuzz.String())
	cmd.Flags().String("run", "", "only cases whose name matches this `pattern`, such as '25-*' (default all)")
	a.settings(cmd, driverSetting)
	return cmd
}

// chosenCases returns the cases whose ids match pattern; all without one.
func chosenCases(pattern string) ([]attack.Case, error) {
	all := attack.Cases()
	if pattern == "" {
		return all, nil
	}
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, fmt.Errorf("%s is no pattern: * is any text, ? any character, [ab] one of these", quote(pattern))
	}
	chosen := slices.DeleteFunc(all, func(c attack.Case) bool {
		ok, _ := path.Match(pattern, c.ID)
		return !ok
	})
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no case is named like %s", quote(pattern))
	}
	return chosen, nil
}

// attackHost runs the cases on what it sets in s. With show the verdicts are printed
// as they come.
func (a *app) attackHost(ctx context.Context, cfg *config.Config, s *attack.Suite, cases []attack.Case, show bool) (*escapeReport, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	binary, err := os.Executable()
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "finding this program: %w", err)
	}
	languages, err := cfg.Catalogue()
	if err != nil {
		return nil, err
	}
	ds, err := platform.OpenDriver(cfg, a.factories, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer func() { _ = ds.Close() }()
	d, caps := ds.First, ds.First.Caps()
	found := doctor.Examine(ctx, doctor.Input{Version: thisBuild().Version, Factories: a.factories, Chosen: caps.Name, Languages: languages,
		Host: func(name string) driver.Host { return platform.Host(cfg, name, slog.New(slog.DiscardHandler)) }})
	s.Driver, s.Binary, s.Environ, s.Languages = d, binary, a.environ, map[string]bool{}
	for _, l := range found.Languages {
		s.Languages[l.Name] = l.Available
		if l.Name == "python" && l.Available {
			s.Python = l.Interpreter
		}
	}
	if show {
		fmt.Fprintf(a.stdout, "sandbar %s, driver %s, boundary %s, kernel %s\n\n", thisBuild().Version, caps.Name, caps.Boundary, printable(found.System.Kernel))
		s.Each = func(r attack.Report) { printEscape(a.stdout, r) }
	}
	reports, err := s.Run(ctx, cases)
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Canceled, "the suite was ended before its end: %w", err)
	}
	return summarize(caps, found.System.Kernel, reports), nil
}

func summarize(caps driver.Caps, kernel string, reports []attack.Report) *escapeReport {
	r := &escapeReport{Version: thisBuild().Version, Driver: caps.Name, Boundary: caps.Boundary, Kernel: kernel, OK: true,
		Counts: map[attack.Verdict]int{}, Cases: reports}
	for _, c := range reports {
		r.Counts[c.Verdict]++
		r.OK = r.OK && c.OK
	}
	return r
}

// printEscape writes the verdict on one case.
func printEscape(w io.Writer, r attack.Report) {
	mark := " "
	if !r.OK {
		mark = "!"
	}
	fmt.Fprintf(w, "%s %-13s%-26s %s\n", mark, r.Verdict, r.ID, r.Title)
	if r.Evidence == "" {
		return
	}
	for i, line := range strings.Split(strings.TrimSpace(r.Evidence), "\n") {
		if i == 8 {
			fmt.Fprintf(w, "%41s …\n", "")
			break
		}
		fmt.Fprintf(w, "%41s %.160s\n", "", printable(line))
	}
}

// printEscapes writes what it came to.
func printEscapes(w io.Writer, r *escapeReport) error {
	var out bytes.Buffer
	var took time.Duration
	unexpected := 0
	for _, c := range r.Cases {
		took += c.Took
		if !c.OK {
			unexpected++
		}
	}
	var counts []string
	for _, v := range []attack.Verdict{attack.Contained, attack.Escaped, attack.NotClaimed, attack.NotRun, attack.Inconclusive} {
		if r.Counts[v] > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", r.Counts[v], v))
		}
	}
	fmt.Fprintf(&out, "\n%d attacks in %s: %s\n", len(r.Cases), took.Round(time.Second), strings.Join(counts, ", "))
	switch {
	case unexpected > 0:
		fmt.Fprintf(&out, "%d are not as driver %s claims; they are marked with \"!\"\n", unexpected, r.Driver)
	case r.Boundary == driver.BoundaryNone:
		fmt.Fprintf(&out, "Everything is as driver %s claims, which is no boundary: for trusted code only\n", r.Driver)
	default:
		fmt.Fprintf(&out, "Everything that driver %s claims holds on this host\n", r.Driver)
	}
	_, err := w.Write(out.Bytes())
	return err
}
