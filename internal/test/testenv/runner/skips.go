package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// allowance is a line of skips.golden: it allows skips for a requirement if a condition holds.
type allowance struct{ requirement, condition, reason string }

// facts are the host's properties for conditions. They are read from other sources than the
// requirements' checks, so that a broken check is detected.
type facts struct {
	root            bool
	linux           bool
	missing         map[string]string // by requirement: why scripts/tools.sh could not fetch the tool
	userNSForbidden bool              // a sysctl or a container's seccomp filter may forbid user namespaces
	memoryOnV1      bool              // the memory controller is on a version 1 hierarchy
	noPeakReset     bool              // it is on version 2, before Linux 6.12
	cgroupReadOnly  bool              // the cgroup file systems are mounted read-only
	noTUN           bool              // there is no /dev/net/tun
	long            bool              // "make test-all" runs
	noCluster       bool              // "make cluster" has not built a cluster
	noHelm          bool              // "make cluster" has not built Helm
}

// conditions are the conditions of skips.golden.
var conditions = map[string]func(requirement string, f facts) bool{
	"root":             func(_ string, f facts) bool { return f.root },
	"user":             func(_ string, f facts) bool { return !f.root },
	"not-linux":        func(_ string, f facts) bool { return !f.linux },
	"tool-missing":     func(r string, f facts) bool { return f.missing[r] != "" },
	"userns-forbidden": func(_ string, f facts) bool { return f.userNSForbidden },
	"cgroup-v1":        func(_ string, f facts) bool { return f.memoryOnV1 },
	"no-cgroup-v1":     func(_ string, f facts) bool { return !f.memoryOnV1 },
	"no-peak-reset":    func(_ string, f facts) bool { return f.noPeakReset },
	"cgroup-read-only": func(_ string, f facts) bool { return f.cgroupReadOnly },
	"no-tun":           func(_ string, f facts) bool { return f.noTUN },
	"not-all":          func(_ string, f facts) bool { return !f.long },
	"no-cluster":       func(_ string, f facts) bool { return f.noCluster },
	"no-helm":          func(_ string, f facts) bool { return f.noHelm },
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

// parseGolden parses lines of "Requirement condition reason…". It ignores empty lines and
// lines that begin with #.
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

// allowed returns the line of skips.golden that allows skips for a requirement on this host.
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

// groupSkips groups the skipped tests by requirement. It returns skips that testenv.Need did
// not record separately.
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

// judgeSkips prints the skips with their reasons and adds a problem for each that is not
// allowed. unmet has the reasons of requirements that are unmet in a second check.
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
			t.problem("%d tests were skipped for %s, which is met", len(g.tests), g.requirement)
		} else if !ok {
			t.problem("%d tests were skipped for %s, which internal/test/testenv/skips.golden does not allow on this host", len(g.tests), g.requirement)
		}
	}
	for _, k := range stray {
		t.problem("%s %s was skipped, but not by testenv.Need", k.pkg, k.test)
	}
}

// parseUnmet parses the output of -check and the file of scripts/tools.sh: lines of a name, a
// tab and a reason.
func parseUnmet(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if name, reason, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok {
			m[name] = reason
		}
	}
	return m
}
