package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/driver/escapesuite"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/doctor"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

// escapeReport is the output of escape-suite --json. The names are stable.
type escapeReport struct {
	Version  string                      `json:"version"`
	Role     string                      `json:"role"`
	NotRun   string                      `json:"not_run,omitempty"` // why the role is not possible on this host
	Driver   string                      `json:"driver"`
	Boundary driver.Boundary             `json:"boundary"`
	Kernel   string                      `json:"kernel"`
	OK       bool                        `json:"ok"` // every case is as expected
	Counts   map[escapesuite.Verdict]int `json:"counts"`
	Cases    []escapesuite.Report        `json:"cases"`
}

// maxFuzz bounds --fuzz.
const maxFuzz = time.Hour

func (a *app) escapeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "escape-suite",
		Short: "Run attacks against this host's sandboxes",
		Long: `Run a catalogue of attacks against a driver on this host, and against a daemon that
is started for the purpose. The verdict on each attack:

  CONTAINED     the attack failed and left nothing behind
  ESCAPED       the attack succeeded. If the driver claims no boundary this is
                expected: it proves that the attack works
  NOT CLAIMED   the driver does not claim to stop it, and it was not attempted
  NOT RUN       the host lacks something that the case needs
  INCONCLUSIVE  the attack could not be completed

A role is the user that the daemon runs as: root; root-one-id, root of a user
namespace that maps no other id; user, an ordinary user; user-cgroup, an ordinary
user with a delegated cgroup. The suffix "-image" runs the attacks in sandboxes of
the image of --image, "-warm" in prestarted interpreters. The default role is the
caller's own, cold. Root runs the other roles in a second process of this program,
with an unused uid, private directories, and default settings except --driver. A
role that is not possible on this host is NOT RUN.

The suite is safe on a production host: it attacks only sandboxes and daemons that
it has created itself, on loopback and in private directories, with bounded time
and load. A role takes a few minutes.

With --json the output is one object per role.

Exit code: 0 if every verdict is as the driver claims, else 1.`,
		Example: "  sandbar escape-suite\n  sandbar escape-suite --driver local\n  sandbar escape-suite --run '5*-*,6*-*' --json\n  sandbar escape-suite --run '66-*' --fuzz 1m\n" +
			"  sandbar escape-suite --role all --image python\n  sandbar escape-suite --role user,user-warm",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.configuration(cmd, driverSetting)
			if err != nil {
				return err
			}
			only, _ := cmd.Flags().GetString("run")
			cases, err := matchCases(only)
			if err != nil {
				return usagef(cmd, "--run: %v", err)
			}
			fuzz, _ := cmd.Flags().GetDuration("fuzz")
			if fuzz < time.Millisecond || fuzz > maxFuzz {
				return usagef(cmd, "--fuzz: %v is not between 1ms and %v", fuzz, maxFuzz)
			}
			suite := &escapeRun{app: a, cfg: cfg, cases: cases, fuzz: fuzz, pattern: only}
			suite.json, _ = cmd.Flags().GetBool("json")
			suite.image, _ = cmd.Flags().GetString("image")
			roles, err := suite.roles(cmd)
			if err != nil {
				return err
			}
			defer suite.removeUsers()
			ok := true
			for _, r := range roles {
				held, err := suite.runRole(cmd.Context(), r)
				if err != nil {
					return err
				}
				ok = ok && held
			}
			if !ok {
				return cli.Exit(cli.ExitFailure)
			}
			return nil
		},
	}
	cmd.Flags().Bool("json", false, "print JSON")
	cmd.Flags().Duration("fuzz", escapesuite.FuzzDefault, "how long to make random system calls, at most "+maxFuzz.String())
	cmd.Flags().String("run", "", "only cases whose name matches one of these `patterns`, such as '25-*,26-*' (default all)")
	cmd.Flags().String("role", "", "comma-separated `roles`, or all (default the caller's own, cold)")
	cmd.Flags().String("image", "", "installed `image` for the roles with -image, and for the caller's own")
	a.settings(cmd, driverSetting)
	return cmd
}

// escapeRun is one call of escape-suite.
type escapeRun struct {
	app     *app
	cfg     *config.Config
	cases   []escapesuite.Case
	pattern string
	fuzz    time.Duration
	image   string
	json    bool
	users   map[escapesuite.As]*roleUser
}

// roles returns the roles of --role.
func (e *escapeRun) roles(cmd *cobra.Command) ([]escapesuite.Role, error) {
	names, _ := cmd.Flags().GetString("role")
	if names == "" {
		return []escapesuite.Role{{As: currentUserKind(), Image: e.image != ""}}, nil
	}
	roles, err := escapesuite.ParseRoles(names)
	if err != nil {
		return nil, usagef(cmd, "--role: %v", err)
	}
	return roles, nil
}

// runRole runs the suite in one role and reports whether every verdict is as the driver
// claims. A role that is not possible on this host counts as success.
func (e *escapeRun) runRole(ctx context.Context, r escapesuite.Role) (bool, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if r.Image && e.image == "" {
		return true, e.print(e.notRun(r, "--image was not given"))
	}
	if r.As == currentUserKind() {
		report, err := e.app.attackHost(ctx, e.cfg, e, r)
		if err != nil {
			return false, err
		}
		return report.OK, e.print(report)
	}
	p, err := e.roleUser(ctx, r.As)
	if sandbar.CodeOf(err) == sandbar.Unsupported {
		return true, e.print(e.notRun(r, err.Error()))
	}
	if err != nil {
		return false, err
	}
	args := []string{"escape-suite", "--role", r.String(), "--driver", e.cfg.Driver, "--run", e.pattern, "--fuzz", e.fuzz.String(), "--json=" + strconv.FormatBool(e.json)}
	if r.Image {
		args = append(args, "--image", roleImage)
	}
	err = p.run(ctx, nil, e.app.stdout, e.app.stderr, args...)
	if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.ExitCode() == cli.ExitFailure {
		return false, nil // the second process has printed its report
	}
	return err == nil, err
}

// roleUser returns the user of a role, with the image of --image in its store. It creates
// the user at the first call.
func (e *escapeRun) roleUser(ctx context.Context, as escapesuite.As) (*roleUser, error) {
	if p := e.users[as]; p != nil {
		return p, nil
	}
	p, err := e.app.newRoleUser(as)
	if err == nil && e.image != "" {
		if err = p.copyImage(ctx, e.cfg, e.image); err != nil {
			p.remove()
		}
	}
	if err != nil {
		return nil, err
	}
	if e.users == nil {
		e.users = map[escapesuite.As]*roleUser{}
	}
	e.users[as] = p
	return p, nil
}

func (e *escapeRun) removeUsers() {
	for _, p := range e.users {
		p.remove()
	}
}

// notRun returns the report of a role that is not possible on this host.
func (e *escapeRun) notRun(r escapesuite.Role, why string) *escapeReport {
	return &escapeReport{Version: thisBuild().Version, Role: r.String(), Driver: e.cfg.Driver, NotRun: why, OK: true, Cases: []escapesuite.Report{}}
}

// print writes a report.
func (e *escapeRun) print(r *escapeReport) error {
	switch {
	case e.json:
		return cli.WriteReport(e.app.stdout, r)
	case r.NotRun != "":
		_, err := fmt.Fprintf(e.app.stdout, "role %s NOT RUN: %s\n\n", r.Role, cli.Printable(r.NotRun))
		return err
	}
	return printSummary(e.app.stdout, r)
}

// matchCases returns the cases whose ids match one of the comma-separated patterns of
// path.Match, or all cases for "".
func matchCases(patterns string) ([]escapesuite.Case, error) {
	all := escapesuite.Cases()
	if patterns == "" {
		return all, nil
	}
	var chosen []escapesuite.Case
	for pattern := range strings.SplitSeq(patterns, ",") {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("%s is not a valid pattern (allowed: * for any text, ? for any character, [ab] for one of these)", cli.Quote(pattern))
		}
	}
	for _, c := range all {
		if slices.ContainsFunc(strings.Split(patterns, ","), func(p string) bool { ok, _ := path.Match(p, c.ID); return ok }) {
			chosen = append(chosen, c)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no case matches %s", cli.Quote(patterns))
	}
	return chosen, nil
}

// attackHost runs the suite in role r as the current user. A role with an image omits the attacks
// on the daemon, which use no images. Without --json each verdict is printed at once.
func (a *app) attackHost(ctx context.Context, cfg *config.Config, e *escapeRun, r escapesuite.Role) (*escapeReport, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "cannot find this program: %w", err)
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
	s := &escapesuite.Suite{Driver: d, Binary: binary, Environ: a.environ, Languages: map[string]bool{}, Warm: r.Warm, Fuzz: e.fuzz}
	cases := e.cases
	if r.Image {
		s.Image, s.Python = e.image, "python3"
		cases = slices.DeleteFunc(slices.Clone(cases), func(c escapesuite.Case) bool { return c.Claim == escapesuite.ClaimDaemon })
	}
	for _, l := range found.Languages {
		s.Languages[l.Name] = l.Available
		if l.Name == "python" && l.Available && !r.Image {
			s.Python = l.Interpreter
		}
	}
	if !e.json {
		fmt.Fprintf(a.stdout, "sandbar %s, role %s, driver %s, boundary %s, kernel %s\n\n", thisBuild().Version, r, caps.Name, caps.Boundary, cli.Printable(found.System.Kernel))
		s.Each = func(r escapesuite.Report) { printCase(a.stdout, r) }
	}
	reports, err := s.Run(ctx, cases)
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Canceled, "the suite was interrupted: %w", err)
	}
	report := summarize(caps, found.System.Kernel, reports)
	report.Role = r.String()
	return report, nil
}

func summarize(caps driver.Caps, kernel string, reports []escapesuite.Report) *escapeReport {
	r := &escapeReport{Version: thisBuild().Version, Driver: caps.Name, Boundary: caps.Boundary, Kernel: kernel, OK: true,
		Counts: map[escapesuite.Verdict]int{}, Cases: reports}
	for _, c := range reports {
		r.Counts[c.Verdict]++
		r.OK = r.OK && c.OK
	}
	return r
}

// printCase writes the verdict on one case.
func printCase(w io.Writer, r escapesuite.Report) {
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
		fmt.Fprintf(w, "%41s %.160s\n", "", cli.Printable(line))
	}
}

// printSummary writes the counts of verdicts and the conclusion.
func printSummary(w io.Writer, r *escapeReport) error {
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
	for _, v := range []escapesuite.Verdict{escapesuite.Contained, escapesuite.Escaped, escapesuite.NotClaimed, escapesuite.NotRun, escapesuite.Inconclusive} {
		if r.Counts[v] > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", r.Counts[v], v))
		}
	}
	fmt.Fprintf(&out, "\nRole %s: %d attacks in %s: %s\n", r.Role, len(r.Cases), took.Round(time.Second), strings.Join(counts, ", "))
	switch {
	case unexpected > 0:
		fmt.Fprintf(&out, "%d verdicts, marked with \"!\", are not as driver %s claims\n", unexpected, r.Driver)
	case r.Boundary == driver.BoundaryNone:
		fmt.Fprintf(&out, "All verdicts are as driver %s claims: no boundary, for trusted code only\n", r.Driver)
	default:
		fmt.Fprintf(&out, "All claims of driver %s hold on this host\n", r.Driver)
	}
	_, err := w.Write(out.Bytes())
	return err
}
