package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// allowance is a line of skips.golden: tests may be skipped for a requirement
// where a condition holds.
type allowance struct{ requirement, condition, reason string }

// facts are what conditions are about. They are read from other sources than
// the requirements' own checks, so that a check that breaks shows.
type facts struct {
	root            bool
	linux           bool
	missing         map[string]string // by requirement: why scripts/tools.sh could not get it
	userNSForbidden bool              // a kernel switch or a container's filter forbids user namespaces
	memoryOnV1      bool              // the memory controller is bound to a version 1 hierarchy
	cgroupReadOnly  bool              // the cgroup file systems are mounted read-only
	noTUN           bool              // there is no /dev/net/tun
}

// conditions are all that skips.golden can name.
var conditions = map[string]func(requirement string, f facts) bool{
	"root":             func(_ string, f facts) bool { return f.root },
	"user":             func(_ string, f facts) bool { return !f.root },
	"not-linux":        func(_ string, f facts) bool { return !f.linux },
	"tool-missing":     func(r string, f facts) bool { return f.missing[r] != "" },
	"userns-forbidden": func(_ string, f facts) bool { return f.userNSForbidden },
	"cgroup-v1":        func(_ string, f facts) bool { return f.memoryOnV1 },
	"no-cgroup-v1":     func(_ string, f facts) bool { return !f.memoryOnV1 },
	"cgroup-read-only": func(_ string, f facts) bool { return f.cgroupReadOnly },
	"no-tun":           func(_ string, f facts) bool { return f.noTUN },
}

func readGolden(path string) ([]allowance, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	golden, err := parseGolden(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return golden, nil
}

// parseGolden reads lines of "Requirement condition reason…"; empty lines and
// those that begin with # say nothing.
func parseGolden(text string) ([]allowance, error) {
	var golden []allowance
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		w := strings.Fields(line)
		if len(w) < 3 {
			return nil, fmt.Errorf("line %q is not a requirement, a condition and a reason", line)
		}
		if _, ok := testenv.Find(w[0]); !ok {
			return nil, fmt.Errorf("line %q names a requirement that does not exist", line)
		}
		if conditions[w[1]] == nil {
			return nil, fmt.Errorf("line %q names a condition that does not exist", line)
		}
		golden = append(golden, allowance{w[0], w[1], strings.Join(w[2:], " ")})
	}
	return golden, nil
}

// allowed finds the line of skips.golden that allows skips for a requirement.
func allowed(golden []allowance, requirement string, f facts) (allowance, bool) {
	for _, a := range golden {
		if a.requirement == requirement && conditions[a.condition](requirement, f) {
			return a, true
		}
	}
	return allowance{}, false
}

// skipGroup is the skips of one requirement.
type skipGroup struct {
	requirement string
	tests       []testKey
}

// groupSkips sorts the skipped tests by requirement. Those that no
// testenv.Need recorded are returned apart.
func groupSkips(skipped []testKey, recorded []testenv.Skip) (groups []skipGroup, stray []testKey) {
	why := map[testKey]string{}
	for _, s := range recorded {
		why[testKey{s.Package, s.Test}] = s.Requirement
	}
	byName := map[string][]testKey{}
	for _, k := range skipped {
		if r := why[k]; r != "" {
			byName[r] = append(byName[r], k)
		} else {
			stray = append(stray, k)
		}
	}
	for r, tests := range byName {
		groups = append(groups, skipGroup{r, tests})
	}
	slices.SortFunc(groups, func(a, b skipGroup) int { return cmp.Compare(a.requirement, b.requirement) })
	return groups, stray
}

// judgeSkips prints the skips with their reasons and turns each one that is
// not allowed into a failure. unmet has the reasons of requirements that were
// found missing when looked at again.
func (t *tally) judgeSkips(recorded []testenv.Skip, golden []allowance, f facts, unmet map[string]string) {
	groups, stray := groupSkips(t.skipped(), recorded)
	if len(groups) > 0 {
		fmt.Fprintln(t.out, "\nskipped:")
	}
	for _, g := range groups {
		a, ok := allowed(golden, g.requirement, f)
		reason := a.reason
		if a.condition == "tool-missing" {
			reason = f.missing[g.requirement]
		}
		fmt.Fprintf(t.out, "  %-14s %3d  %s", g.requirement, len(g.tests), unmet[g.requirement])
		if ok {
			fmt.Fprintf(t.out, " [%s: %s]", a.condition, reason)
		}
		fmt.Fprintln(t.out)
		for _, k := range g.tests {
			fmt.Fprintf(t.out, "      %s %s\n", strings.TrimPrefix(k.pkg, t.prefix), k.test)
		}
		if unmet[g.requirement] == "" {
			t.problem("%d tests were skipped for %s, which is there", len(g.tests), g.requirement)
		} else if !ok {
			t.problem("%d tests were skipped for %s, which internal/test/testenv/skips.golden does not allow on this host", len(g.tests), g.requirement)
		}
	}
	for _, k := range stray {
		t.problem("%s %s was skipped, but not by testenv.Need", k.pkg, k.test)
	}
}

// parseUnmet reads the output of -check, which is also the form of the list
// that scripts/tools.sh leaves: a name, a tab and a reason a line.
func parseUnmet(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if name, reason, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok {
			m[name] = reason
		}
	}
	return m
}
