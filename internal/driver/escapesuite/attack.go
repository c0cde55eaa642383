package escapesuite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/driver/drivertest/escape"
)

// Case is one attack, on a driver or on the daemon.
type Case struct {
	ID    string // number in the catalogue and name, "68-rebinding"
	Title string // the attack
	Claim string // the tested promise: an escape.Claim, or ClaimDaemon
	run   func(context.Context, *Suite) Report
}

// ClaimDaemon is the Claim of the attacks on the daemon.
const ClaimDaemon = "daemon"

// Report is the result of one case. The JSON names are stable.
type Report struct {
	ID       string        `json:"id"`
	Title    string        `json:"attack"`
	Claim    string        `json:"claim"`
	Expected string        `json:"expected"` // "contained", "escaped" or "nothing"
	Verdict  Verdict       `json:"verdict"`
	OK       bool          `json:"ok"`                 // the verdict is as expected, or NotRun
	Evidence string        `json:"evidence,omitempty"` // the observation, for people
	Took     time.Duration `json:"-"`
	Seconds  float64       `json:"seconds"`
}

// Verdict is the observed result of a case.
type Verdict string

// All verdicts.
const (
	Contained    Verdict = "CONTAINED"
	Escaped      Verdict = "ESCAPED"
	NotClaimed   Verdict = "NOT CLAIMED"  // the driver does not promise it; the attack was not attempted
	NotRun       Verdict = "NOT RUN"      // a requirement of the attack is missing; Evidence says which
	Inconclusive Verdict = "INCONCLUSIVE" // the attack was not completed
)

// Suite has the targets and options of the cases.
type Suite struct {
	// Driver is the attacked driver. The caller closes it.
	Driver driver.Driver
	// Binary is the path of this program, which also is the daemon. With "" the cases on the daemon
	// are NotRun.
	Binary string
	// Environ is the environment of the daemon. Of Sandbar's settings it has only those that select
	// the same driver.
	Environ []string
	// Languages are the languages whose interpreter a sandbox has.
	Languages map[string]bool
	// Python is the program name of Python 3 in a sandbox. If it has no ctypes, attacks on the
	// driver in Python are not run.
	Python string
	// Image is the image of sandboxes. "" means sandbar.ImageHost. Attacks on the daemon always use
	// sandbar.ImageHost.
	Image string
	// Warm: the first program of a sandbox runs in a prestarted interpreter, and the daemon
	// prestarts interpreters. Otherwise all programs start cold.
	Warm bool
	// Fuzz is the duration of random system calls in a case. 0 means FuzzDefault.
	Fuzz time.Duration
	// Each, if set, is called after each case.
	Each func(Report)

	d         *daemon // the attacked daemon; nil: none runs
	ctypes    *bool   // whether Python has ctypes; nil: unknown
	templates templates
}

// FuzzDefault is the default of Suite.Fuzz.
const FuzzDefault = escape.FuzzDefault

// caseBound bounds the time of one attack on the daemon.
const caseBound = 90 * time.Second

// Cases returns all attacks in the order of the catalogue.
func Cases() []Case {
	var all []Case
	for _, c := range escape.Cases() {
		all = append(all, driverCase(c))
	}
	all = slices.Concat(all, outputCases(), listenerCases(), inputCases(), portCases(), previewCases(), raceCases(), endCases())
	slices.SortStableFunc(all, func(a, b Case) int { return number(a.ID) - number(b.ID) })
	return all
}

func number(id string) int {
	n, _, _ := strings.Cut(id, "-")
	i, _ := strconv.Atoi(n)
	return i
}

// Run runs cases one after the other. If ctx ends, it returns the cause and the reports so far.
func (s *Suite) Run(ctx context.Context, cases []Case) ([]Report, error) {
	defer func() {
		s.stopDaemon()
		_ = s.templates.close()
	}()
	var all []Report
	for _, c := range cases {
		if ctx.Err() != nil {
			return all, context.Cause(ctx)
		}
		began := time.Now()
		r := c.run(ctx, s)
		r.ID, r.Title, r.Claim = c.ID, c.Title, c.Claim
		r.Took = time.Since(began)
		r.Seconds = r.Took.Seconds()
		all = append(all, r)
		if s.Each != nil {
			s.Each(r)
		}
	}
	return all, nil
}

// driverCase converts a case of package escape.
func driverCase(c escape.Case) Case {
	return Case{ID: c.ID, Title: c.Title, Claim: string(c.Claim), run: func(ctx context.Context, s *Suite) Report {
		target := escape.Target{Driver: s.Driver, Spec: s.spec(), Python: s.python(ctx), Fuzz: s.Fuzz}
		if s.Warm {
			python := ""
			if c.Python != "" || c.NeedsPython {
				python = target.Python
			}
			target.Driver = &warmDriver{Driver: s.Driver, kind: interpreterOf(python), templates: &s.templates}
		}
		r := escape.Run(ctx, target, c)
		report := Report{Verdict: Verdict(strings.ToUpper(string(r.Verdict))), OK: r.OK(), Evidence: r.Evidence, Expected: "contained"}
		if !r.Claimed {
			report.Expected = "nothing"
			if c.Leaks {
				report.Expected = "escaped"
			}
		}
		return report
	}}
}

// python returns the program name of a Python that can make system calls by ctypes, or "".
func (s *Suite) python(ctx context.Context) string {
	if s.Python == "" {
		return ""
	}
	if s.ctypes == nil {
		has := s.succeeds(ctx, s.Python, "-c", "import ctypes")
		s.ctypes = &has
	}
	if !*s.ctypes {
		return ""
	}
	return s.Python
}

// succeeds reports whether a program exits with 0 in a new sandbox.
func (s *Suite) succeeds(ctx context.Context, args ...string) bool {
	sb, err := s.Driver.Create(ctx, sandbar.NewID(), s.spec())
	if err != nil {
		return false
	}
	defer func() { _ = sb.Destroy(context.WithoutCancel(ctx)) }()
	p, err := sb.Start(ctx, sandbar.Cmd{Args: args}, driver.Stdio{})
	if err != nil {
		return false
	}
	r, err := p.Wait()
	return err == nil && r.Outcome == sandbar.Exited && r.ExitCode == 0
}

// spec returns the Spec of attacked sandboxes. It sets every limit that the driver enforces.
func (s *Suite) spec() sandbar.Spec {
	held := func(by sandbar.Enforcement, v int64) int64 {
		if by == sandbar.EnforcedNone || by == "" {
			return sandbar.Unlimited
		}
		return v
	}
	e := s.Driver.Caps().Enforced
	memory := int64(512 << 20)
	if s.Warm {
		memory = 1 << 30 // a watchdog may count memory that copies of an interpreter share once for each
	}
	return sandbar.Spec{Image: cmp.Or(s.Image, sandbar.ImageHost), Network: sandbar.NetworkNone, Limits: sandbar.Limits{
		Memory: held(e.Memory, memory), CPUs: sandbar.Unlimited, CPUShares: held(e.CPUShares, 512), PIDs: held(e.PIDs, 1024),
		Disk: held(e.Disk, 256<<20), Inodes: held(e.Inodes, 65536), Files: held(e.Files, 1024),
		Timeout: sandbar.Unlimited, Output: sandbar.Unlimited,
	}}
}

// errNotRun is the error of an attack with a missing requirement.
type errNotRun struct{ why string }

func (e errNotRun) Error() string { return e.why }

func notRun(format string, args ...any) error { return errNotRun{fmt.Sprintf(format, args...)} }

// errEscaped is the error of an attack that succeeded.
type errEscaped struct{ what string }

func (e errEscaped) Error() string { return e.what }

func escaped(format string, args ...any) error { return errEscaped{fmt.Sprintf(format, args...)} }

// daemonCase returns a Case for an attack on the daemon. The attack returns nil if it was
// contained, escaped(…), notRun(…), or another error if it was not completed. Afterwards the daemon
// must be healthy, unless the attack ended it.
func daemonCase(id, title string, attack func(context.Context, *Suite, *daemon) error) Case {
	return Case{ID: id, Title: title, Claim: ClaimDaemon, run: func(ctx context.Context, s *Suite) Report {
		ctx, cancel := context.WithTimeout(ctx, caseBound)
		defer cancel()
		d, err := s.daemon(ctx)
		if err == nil {
			err = attack(ctx, s, d)
			if s.d != nil && !s.d.ended() {
				err = cmp.Or(err, s.d.healthy(ctx), s.d.removeAll(ctx))
			}
		}
		return reportOf(err)
	}}
}

// reportOf returns the Report for an attack's error.
func reportOf(err error) Report {
	r := Report{Expected: "contained"}
	var out errEscaped
	var missing errNotRun
	switch {
	case err == nil:
		r.Verdict, r.OK = Contained, true
	case errors.As(err, &out):
		r.Verdict, r.Evidence = Escaped, out.what
	case errors.As(err, &missing):
		r.Verdict, r.Evidence, r.OK = NotRun, missing.why, true
	default:
		r.Verdict, r.Evidence = Inconclusive, err.Error()
	}
	return r
}
