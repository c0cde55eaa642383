package drivertest

import (
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver/drivertest/escape"
)

// escapeCases are the attacks of package escape. A case is skipped if the driver does not make the
// claim and the attack's success cannot be observed.
func escapeCases() []testCase {
	var cases []testCase
	for _, e := range escape.Cases() {
		tc := testCase{name: e.ID, run: func(c *C) { runEscape(c, e) }}
		if !e.Leaks {
			tc.needs = append(tc.needs, needClaim(string(e.Claim), e.Claim.Claimed))
		}
		if e.NeedsPython || e.Python != "" {
			tc.needs = append(tc.needs, needPython())
		}
		cases = append(cases, tc)
	}
	return cases
}

func runEscape(c *C, e escape.Case) {
	r := escape.Run(c.ctx, escape.Target{Driver: c.d, Spec: c.spec(), Python: c.s.python, WaitFactor: int(c.s.waitFactor()), Made: func(id sandbar.ID) {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		c.s.ids[id] = true
	}}, e)
	switch {
	case r.Verdict == escape.NotRun:
		c.Logf("not run: %s", r.Evidence)
		c.s.skip(c.name, false, r.Evidence)
	case !r.OK() && r.Claimed:
		c.Errorf("%s: the driver claims %q, and: %s\n%s", e.Title, e.Claim, r.Verdict, r.Evidence)
	case !r.OK():
		c.Errorf("%s: the driver does not claim %q, so the attack must succeed, but the verdict is: %s\n%s", e.Title, e.Claim, r.Verdict, r.Evidence)
	default:
		c.Logf("%s: %s", r.Verdict, strings.ReplaceAll(r.Evidence, "\n", "; "))
	}
}

// sorted sorts cases by name.
func sorted(cases []testCase) []testCase {
	slices.SortFunc(cases, func(a, b testCase) int { return strings.Compare(a.name, b.name) })
	return cases
}
