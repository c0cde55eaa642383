package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is a line of "go test -json" (go doc test2json, go help buildjson).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build-output and build-fail
	Test        string
	Elapsed     float64 // seconds
	Output      string
	FailedBuild string
}

// testKey names one test.
type testKey struct{ pkg, test string }

// testRun is the state of one test.
type testRun struct {
	status  string // "pass", "fail", "skip", or "" while it runs
	parent  bool   // has subtests, which are counted instead
	elapsed time.Duration
	output  []string
}

// packageRun is the state of one package.
type packageRun struct {
	status  string
	elapsed time.Duration
	cpu     time.Duration // of the processes that were waited for
	output  []string      // outside of tests
	tests   map[string]*testRun
	order   []string
}

// tally collects the events of one pass and prints each package when it has ended. Its methods
// that add events are safe for concurrent use.
type tally struct {
	out    io.Writer
	prefix string // the module's path, removed from printed names
	who    string // the user of the pass

	mu       sync.Mutex
	packages map[string]*packageRun
	order    []string            // packages in the order of their end
	builds   map[string][]string // output of the compiler, by import path
	problems []string            // failures outside of tests
	now      counts
}

func newTally(out io.Writer, module, who string) *tally {
	return &tally{out: out, prefix: module + "/", who: who, packages: map[string]*packageRun{}, builds: map[string][]string{}}
}

func (t *tally) add(e event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case e.Action == "build-output":
		t.builds[e.ImportPath] = append(t.builds[e.ImportPath], e.Output)
	case e.Package == "":
	case e.Test != "":
		t.addTest(e)
	default:
		t.addPackage(e)
	}
}

func (t *tally) pkg(name string) *packageRun {
	p := t.packages[name]
	if p == nil {
		p = &packageRun{tests: map[string]*testRun{}}
		t.packages[name] = p
	}
	return p
}

func (p *packageRun) test(name string) *testRun {
	r := p.tests[name]
	if r == nil {
		r = &testRun{}
		p.tests[name] = r
		p.order = append(p.order, name)
		if i := strings.LastIndex(name, "/"); i >= 0 {
			p.test(name[:i]).parent = true
		}
	}
	return r
}

func (t *tally) addTest(e event) {
	r := t.pkg(e.Package).test(e.Test)
	switch e.Action {
	case "output":
		r.output = append(r.output, e.Output)
	case "pass", "fail", "skip":
		r.status = e.Action
		r.elapsed = time.Duration(e.Elapsed * float64(time.Second))
	}
}

func (t *tally) addPackage(e event) {
	p := t.pkg(e.Package)
	switch e.Action {
	case "output":
		p.output = append(p.output, e.Output)
	case "pass", "fail", "skip":
		if p.status != "" {
			return
		}
		p.status = e.Action
		p.elapsed = time.Duration(e.Elapsed * float64(time.Second))
		t.order = append(t.order, e.Package)
		t.finish(e.Package, p, e.FailedBuild)
	}
}

// finish counts and prints a finished package.
func (t *tally) finish(name string, p *packageRun, failedBuild string) {
	c := p.count()
	if p.status == "fail" && c.failed == 0 {
		c.failed = 1 // it did not compile, crashed, or failed outside its tests
	}
	t.now.add(c)
	short := strings.TrimPrefix(name, t.prefix)
	switch {
	case p.status == "fail":
		var text bytes.Buffer // one write, because another pass prints concurrently
		t.printFailure(&text, short, p, c, failedBuild)
		t.out.Write(text.Bytes())
	case len(p.tests) > 0:
		fmt.Fprintf(t.out, "ok    %-36s %7.1fs %7.1fs of processor  %s, as %s\n", short, p.elapsed.Seconds(), p.cpu.Seconds(), c, t.who)
	}
}

// count counts tests without subtests, and parents that failed although no subtest did.
func (p *packageRun) count() counts {
	var c counts
	for name, r := range p.tests {
		switch {
		case r.parent && (r.status != "fail" || p.failedBelow(name)):
		case r.status == "pass":
			c.passed++
		case r.status == "skip":
			c.skipped++
		default: // failed, or was running when its process died
			c.failed++
		}
	}
	return c
}

func (p *packageRun) failedBelow(name string) bool {
	for other, r := range p.tests {
		if strings.HasPrefix(other, name+"/") && r.status != "pass" && r.status != "skip" {
			return true
		}
	}
	return false
}

// printFailure prints the output of a package's failed tests, and output outside of tests:
// compiler errors, a panic, a timeout.
func (t *tally) printFailure(w io.Writer, short string, p *packageRun, c counts, failedBuild string) {
	fmt.Fprintf(w, "\nFAIL  %-36s %7.1fs %7.1fs of processor  %s, as %s\n", short, p.elapsed.Seconds(), p.cpu.Seconds(), c, t.who)
	for _, line := range t.builds[failedBuild] {
		fmt.Fprintf(w, "      %s", line)
	}
	for _, name := range p.order {
		r := p.tests[name]
		if r.status == "pass" || r.status == "skip" {
			continue
		}
		for _, line := range r.output {
			fmt.Fprintf(w, "      %s", line)
		}
	}
	for _, line := range p.output {
		fmt.Fprintf(w, "      %s", line)
	}
	fmt.Fprintln(w)
}

// printFailed repeats the names of the failed tests with the first lines of their output. The
// whole output stands far above, where nobody looks and where a log may be cut.
func (t *tally) printFailed(w io.Writer) {
	for _, pkg := range t.order {
		p := t.packages[pkg]
		if p.status != "fail" {
			continue
		}
		fmt.Fprintf(w, "\nfailed as %s: %s\n", t.who, strings.TrimPrefix(pkg, t.prefix))
		printed := 0
		for _, name := range p.order {
			if r := p.tests[name]; r.status != "pass" && r.status != "skip" && !p.failedBelow(name) {
				printFirst(w, r.output)
				printed++
			}
		}
		if printed == 0 {
			printFirst(w, p.output)
		}
	}
	for _, problem := range t.problems {
		fmt.Fprintf(w, "\nfailed as %s outside of tests: %s\n", t.who, problem)
	}
}

// printFirst prints the first of some lines, indented.
func printFirst(w io.Writer, lines []string) {
	const most = 20
	for _, line := range lines[:min(most, len(lines))] {
		fmt.Fprintf(w, "  %s", line)
	}
	if len(lines) > most {
		fmt.Fprintf(w, "  (%d more lines)\n", len(lines)-most)
	}
}

// spent records the processor time of a package's tests.
func (t *tally) spent(pkg string, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pkg(pkg).cpu = d
}

// problem adds a failure outside of tests.
func (t *tally) problem(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.problems = append(t.problems, fmt.Sprintf(format, args...))
	t.now.failed++
}

// skipped returns the skipped tests.
func (t *tally) skipped() []testKey {
	var keys []testKey
	for pkg, p := range t.packages {
		for name, r := range p.tests {
			if r.status == "skip" {
				path, _, _ := strings.Cut(pkg, " ") // without the part
				keys = append(keys, testKey{path, name})
			}
		}
	}
	slices.SortFunc(keys, func(a, b testKey) int {
		return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.test, b.test))
	})
	return keys
}

// printSlowest prints the n slowest tests.
func (t *tally) printSlowest(n int) {
	type row struct {
		name    string
		elapsed time.Duration
	}
	var rows []row
	for pkg, p := range t.packages {
		for name, r := range p.tests {
			if !strings.Contains(name, "/") && r.elapsed >= time.Second {
				rows = append(rows, row{strings.TrimPrefix(pkg, t.prefix) + " " + name, r.elapsed})
			}
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(b.elapsed, a.elapsed), cmp.Compare(a.name, b.name)) })
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(t.out, "\nslowest as %s:\n", t.who)
	for _, r := range rows[:min(n, len(rows))] {
		fmt.Fprintf(t.out, "  %6.1fs  %s\n", r.elapsed.Seconds(), r.name)
	}
}
