package escape

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// Claim is a claim of a driver's Caps that a case tests.
type Claim string

// The claims.
const (
	Always      Claim = "always"      // applies to every driver
	Files       Claim = "files"       // Caps.PrivateFiles
	Network     Claim = "network"     // Caps.PrivateNetwork
	Processes   Claim = "processes"   // Caps.PrivateProcesses
	Quotas      Claim = "quotas"      // Caps.PrivateQuotas
	Kernel      Claim = "kernel"      // Caps.Boundary is not BoundaryNone
	Rights      Claim = "rights"      // Caps.Boundary is neither BoundaryNone nor BoundaryVM, where the kernel is inside
	Memory      Claim = "memory"      // Caps.Enforced.Memory
	CPUs        Claim = "cpus"        // Caps.Enforced.CPUs
	PIDs        Claim = "pids"        // Caps.Enforced.PIDs
	Disk        Claim = "disk"        // Caps.Enforced.Disk
	Inodes      Claim = "inodes"      // Caps.Enforced.Inodes
	Descriptors Claim = "descriptors" // Caps.Enforced.Files
)

// Claimed reports whether a driver makes the claim.
func (c Claim) Claimed(caps driver.Caps) bool {
	held := func(e sandbar.Enforcement) bool { return e != sandbar.EnforcedNone && e != "" }
	switch c {
	case Files:
		return caps.PrivateFiles
	case Network:
		return caps.PrivateNetwork
	case Processes:
		return caps.PrivateProcesses
	case Quotas:
		return caps.PrivateQuotas
	case Kernel:
		return caps.Boundary != driver.BoundaryNone
	case Rights:
		return caps.Boundary != driver.BoundaryNone && caps.Boundary != driver.BoundaryVM
	case Memory:
		return held(caps.Enforced.Memory)
	case CPUs:
		return held(caps.Enforced.CPUs)
	case PIDs:
		return held(caps.Enforced.PIDs)
	case Disk:
		return held(caps.Enforced.Disk)
	case Inodes:
		return held(caps.Enforced.Inodes)
	case Descriptors:
		return held(caps.Enforced.Files)
	}
	return true
}

// Case is one attack.
type Case struct {
	// ID is stable: the number in the catalogue and a name, such as "25-signal-host".
	ID string
	// Title describes the attack in a few words.
	Title string
	// Claim is the claim that the case tests.
	Claim Claim
	// Leaks: if the driver does not make the claim, the attack still runs and must succeed.
	Leaks bool
	// Limits override those of Target.Spec.
	Limits sandbar.Limits
	// Python or Shell is the program to run in the sandbox, unless Attack is set. A Python program
	// runs after the prelude. A line that starts with "ESCAPED", or the bait's secret in the
	// output, is an escape. The line "DONE" says that the whole attack was tried.
	Python, Shell string
	// MayDie: the program may be killed before DONE. That counts as contained, because the attacked
	// limit or filter killed it.
	MayDie bool
	// NeedsPython: Attack runs Python programs.
	NeedsPython bool
	// NeedsOutside: the host must have an address other than loopback.
	NeedsOutside bool
	// NeedsOutbound: the sandboxes have sandbar.NetworkOutbound, with rules that allow no address
	// of the host or of private networks.
	NeedsOutbound bool
	// Attack replaces Python and Shell in cases that need the file API, several programs or two
	// sandboxes. It reports escapes to the Scene. An error means that the attack could not be
	// completed.
	Attack func(context.Context, *Scene) error
}

// Verdict is the result of a case.
type Verdict string

// The verdicts.
const (
	Contained    Verdict = "contained"
	Escaped      Verdict = "escaped"
	NotClaimed   Verdict = "not claimed"  // the driver does not make the claim, and the attack did not run
	NotRun       Verdict = "not run"      // a requirement of the case is missing; Evidence names it
	Inconclusive Verdict = "inconclusive" // the attack could not be completed
)

// Report is the result of one case on one driver.
type Report struct {
	Case    Case
	Claimed bool
	Verdict Verdict
	// Evidence is for people: what escaped, what is missing, or the output of the programs of an
	// inconclusive case.
	Evidence string
}

// OK reports whether the result matches the driver's claims: contained if claimed, escaped if not.
// It is true for a case that did not run.
func (r Report) OK() bool {
	switch r.Verdict {
	case NotClaimed, NotRun:
		return true
	case Contained:
		return r.Claimed
	case Escaped:
		return !r.Claimed
	}
	return false
}

// String returns one line for a table, followed by the evidence.
func (r Report) String() string {
	s := fmt.Sprintf("%-26s %-12s %s", r.Case.ID, r.Verdict, r.Case.Title)
	if r.Evidence != "" {
		s += "\n" + r.Evidence
	}
	return s
}

// caseBound bounds the time of one case, besides bounds of the driver, Target.WaitFactor and the
// time for random system calls.
const caseBound = 60 * time.Second

// bound returns the bound of a case on this driver. A driver whose sandboxes need more time to be
// made also runs programs more slowly.
func (t Target) bound() time.Duration {
	return caseBound*time.Duration(max(t.WaitFactor, 1)) + t.Driver.Caps().Setup + t.fuzz()
}

// Run runs one case. It does not close the driver.
func Run(ctx context.Context, t Target, c Case) Report {
	r := Report{Case: c, Claimed: c.Claim.Claimed(t.Driver.Caps())}
	if !r.Claimed && !c.Leaks {
		r.Verdict = NotClaimed
		return r
	}
	if why := t.missing(c); why != "" {
		r.Verdict, r.Evidence = NotRun, why
		return r
	}
	if c.NeedsOutside && outsideAddress() == "" {
		r.Verdict, r.Evidence = NotRun, "the host has no address besides loopback"
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, t.bound())
	defer cancel()
	sc, err := newScene(t, c)
	if err != nil {
		r.Verdict, r.Evidence = Inconclusive, "the bait could not be made: "+err.Error()
		return r
	}
	err = sc.attack(ctx)
	err = errors.Join(err, sc.tearDown())
	r.Verdict, r.Evidence = sc.judge(err)
	return r
}

// missing returns the requirement of a case that the target does not meet, or "".
func (t Target) missing(c Case) string {
	switch {
	case runtime.GOOS != "linux":
		return "the cases are written for Linux"
	case t.Python == "" && (c.Python != "" || c.NeedsPython):
		return "there is no Python with ctypes in the sandbox"
	case c.NeedsOutbound && !t.Driver.Caps().Outbound:
		return "sandboxes of this driver cannot reach out here"
	}
	return ""
}

// Cases returns all cases in the order of the catalogue.
func Cases() []Case {
	all := slices.Concat(fileCases(), processCases(), resourceCases(), networkCases(), outboundCases(), kernelCases(),
		uncountedCases(), lastingCases(), metadataCases(), magicCases(), quotaCases(), rankCases())
	slices.SortStableFunc(all, func(a, b Case) int { return cmp.Compare(a.ID[:2], b.ID[:2]) })
	return all
}

// judge determines the verdict.
func (s *Scene) judge(err error) (Verdict, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.escapes) > 0:
		return Escaped, strings.Join(s.escapes, "\n")
	case err != nil:
		return Inconclusive, strings.TrimSpace(err.Error() + "\n" + s.heard.String())
	}
	return Contained, ""
}
