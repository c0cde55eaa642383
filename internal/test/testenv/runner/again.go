package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Tests here are about time, kernels and other programs, and run on machines that
// do other things as well. One that fails is run a second time, by itself; if it
// passes then it is counted as passed, and the report ends with its name: it is
// unsteady, which is a bug of it or of what it tests. Its first output stays
// above. Nothing is run again where more than a few have failed, where a package
// failed outside its tests, or under the race detector, which is never wrong.

// failedTests returns the tests that failed, without their parts, by package, or
// nil if there is more to it than that.
func (t *tally) failedTests(most int) map[string][]string {
	failed, n := map[string][]string{}, 0
	for pkg, p := range t.packages {
		if p.status != "fail" {
			continue
		}
		if !slices.Contains(p.output, "FAIL\n") {
			return nil // its process did not get to its end: other tests have not run
		}
		for name, r := range p.tests {
			switch {
			case r.status == "":
				return nil // the process died with it
			case r.status == "fail" && !strings.Contains(name, "/"):
				failed[pkg] = append(failed[pkg], name)
				n++
			}
		}
		if len(failed[pkg]) == 0 {
			return nil
		}
		slices.Sort(failed[pkg])
	}
	if n > most || len(t.problems) > 0 {
		return nil
	}
	return failed
}

// again runs the failed tests a second time. run runs those of a package that match
// a pattern and adds their events to a tally.
func (t *tally) again(ctx context.Context, o options, run func(ctx context.Context, o options, t *tally, pkg string) error) error {
	if o.race {
		return nil
	}
	for pkg, names := range t.failedTests(o.again) {
		for i, name := range names {
			names[i] = regexp.QuoteMeta(name)
		}
		o.only = "^(" + strings.Join(names, "|") + ")$"
		fmt.Fprintf(t.out, "\nagain, by itself: %s %s\n", strings.TrimPrefix(pkg, t.prefix), strings.Join(names, " "))
		second := newTally(t.out, strings.TrimSuffix(t.prefix, "/"))
		if err := run(ctx, o, second, pkg); err != nil {
			return err
		}
		if !second.mends(pkg, t.packages[pkg]) {
			continue
		}
		mended := t.packages[pkg].count().failed
		t.now.failed -= mended
		t.now.passed += mended
		for _, name := range names {
			t.unsteady = append(t.unsteady, strings.TrimPrefix(pkg, t.prefix)+" "+name)
		}
	}
	return nil
}

// mends reports whether this, a second run, has passed all that failed in the first;
// a skip is no pass.
func (t *tally) mends(pkg string, first *packageRun) bool {
	p := t.packages[pkg]
	if p == nil || t.now.failed > 0 {
		return false
	}
	for name, r := range first.tests {
		if again := p.tests[name]; r.status == "fail" && (again == nil || again.status != "pass") {
			return false
		}
	}
	return true
}

// printUnsteady names the tests that passed only the second time.
func (t *tally) printUnsteady() {
	if len(t.unsteady) == 0 {
		return
	}
	slices.Sort(t.unsteady)
	fmt.Fprintln(t.out, "\nunsteady (failed, and passed when run again: a bug to be found):")
	for _, name := range t.unsteady {
		fmt.Fprintf(t.out, "  %s\n", name)
	}
}
