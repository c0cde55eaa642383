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

// Claim is what a driver can claim, in its Caps, and a case puts to the test.
type Claim string

// The claims.
const (
	Always      Claim = "always"      // of every driver, with or without a boundary
	Files       Claim = "files"       // Caps.PrivateFiles
	Network     Claim = "network"     // Caps.PrivateNetwork
	Processes   Claim = "processes"   // Caps.PrivateProcesses
	Quotas      Claim = "quotas"      // Caps.PrivateQuotas
	Kernel      Claim = "kernel"      // Caps.Boundary is not BoundaryNone
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
	// ID is stable: the number in the catalogue and a name, "25-signal-host".
	ID string
	// Title says in a few words what is attempted.
	Title string
	// Claim is what the case puts to the test.
	Claim Claim
	// Leaks: where the claim is not made, the attack is made all the same and
	// must be seen to succeed.
	Leaks bool
	// Limits are set on top of the scene's own.
	Limits sandbar.Limits
	// Python or Shell is the program run in the sandbox, unless Attack is set.
	// A Python program begins after the prelude. A line that starts with
	// "ESCAPED", or the bait's secret in the output, is an escape; the line
	// "DONE" says that everything was attempted.
	Python, Shell string
	// MayDie: the program may be killed before it is DONE, and that counts as
	// contained: the limit or the filter that it attacks has bitten.
	MayDie bool
	// NeedsPython: Attack runs Python programs.
	NeedsPython bool
	// NeedsOutside: the host must have an address besides loopback.
	NeedsOutside bool
	// NeedsOutbound: the sandboxes reach out (sandbar.NetworkOutbound), under rules
	// that open nothing of the host's or of private networks.
	NeedsOutbound bool
	// Attack replaces the one program: cases that need the file API, several
	// programs or two sandboxes. What it finds it tells the Scene. An error
	// means that the case could not be carried out.
	Attack func(context.Context, *Scene) error
}

// Verdict is how a case ended.
type Verdict string

// The verdicts.
const (
	Contained    Verdict = "contained"
	Escaped      Verdict = "escaped"
	NotClaimed   Verdict = "not claimed"  // the driver does not promise it, and it was not attempted
	NotRun       Verdict = "not run"      // something the case needs is missing; Evidence says what
	Inconclusive Verdict = "inconclusive" // the attack could not be carried out to its end
)

// Report is what came of one case on one driver.
type Report struct {
	Case    Case
	Claimed bool
	Verdict Verdict
	// Evidence is for people: what escaped, what is missing, or what the
	// programs of an inconclusive case said.
	Evidence string
}

// OK reports whether the driver is as it says: contained where claimed, seen
// to leak where not. A case that was not run is neither; OK is then true.
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

// String is one line for a table.
func (r Report) String() string {
	s := fmt.Sprintf("%-26s %-12s %s", r.Case.ID, r.Verdict, r.Case.Title)
	if r.Evidence != "" {
		s += "\n" + r.Evidence
	}
	return s
}

// caseBound bounds one case in time, whatever its programs do; what random system
// calls take is on top.
const caseBound = 60 * time.Second

// Run runs one case. The driver is not closed.
func Run(ctx context.Context, t Target, c Case) Report {
	r := Report{Case: c, Claimed: c.Claim.Claimed(t.Driver.Caps())}
	if !r.Claimed && !c.Leaks {
		r.Verdict = NotClaimed
		return r
	}
	if why := t.lacks(c); why != "" {
		r.Verdict, r.Evidence = NotRun, why
		return r
	}
	if c.NeedsOutside && outsideAddress() == "" {
		r.Verdict, r.Evidence = NotRun, "the host has no address besides loopback"
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, caseBound+t.fuzz())
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

// lacks says what a case needs and the target has not, or "".
func (t Target) lacks(c Case) string {
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

// Cases returns all cases, in the order of the catalogue.
func Cases() []Case {
	all := slices.Concat(fileCases(), processCases(), resourceCases(), networkCases(), outboundCases(), kernelCases(),
		uncountedCases(), lastingCases(), metadataCases(), magicCases(), quotaCases(), rankCases())
	slices.SortStableFunc(all, func(a, b Case) int { return cmp.Compare(a.ID[:2], b.ID[:2]) })
	return all
}

// judge turns what was seen into a verdict.
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
