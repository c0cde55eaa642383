package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// suite is the compiled tests of a module.
type suite struct {
	o        options
	root     string // directory of the module
	module   string // its path
	packages []*testedPackage
}

// testedPackage is a package whose tests are run.
type testedPackage struct {
	path   string // import path
	dir    string // below the module's root
	parts  int    // number of parts into which the runner divides its tests
	binary string
	built  chan struct{} // closed when the binary exists or err is set
	err    error         // of the compiler
}

// pass is the run of the tests as one user.
type pass struct {
	who   string
	tally *tally
	// runs reports whether the pass includes the package in dir, below the module's root.
	runs func(dir string) bool
	// command returns a command that runs the binary of p. Commands of different lanes run at
	// the same time, commands of one lane do not.
	command func(ctx context.Context, lane int, p *testedPackage, args ...string) *exec.Cmd
	// ended is called when the tests of p in a lane have ended; may be nil.
	ended func(lane int, p *testedPackage)
	// conclude checks the skips after all tests.
	conclude func(ctx context.Context, t *tally) error
}

// job is the tests of one package as one user, or one part of them: of every n tests in the
// order of the sources the i-th, counted from 0.
type job struct {
	pass *pass
	p    *testedPackage
	i, n int
}

// name returns the package's name in the tally: its import path, and the part.
func (j job) name() string {
	if j.n == 1 {
		return j.p.path
	}
	return fmt.Sprintf("%s %d/%d", j.p.path, j.i+1, j.n)
}

// long lists the packages with the longest tests, the longest first, and the number of parts
// of each. They start first, so that no lane is still busy with one of them while the other
// lanes are idle. Each part is a process of its own: tests in one process check its descriptors
// and goroutines for leaks, and so cannot run concurrently.
var long = []struct {
	dir   string
	parts int
}{
	{"internal/test/e2e", 6}, {"internal/driver/kubernetes", 3}, {"internal/driver/native", 4}, {"internal/driver/docker", 2}, {"internal/protocol/iii", 4},
	{"internal/driver/oci", 3}, {"internal/driver/vm", 2}, {"internal/driver/v86", 2}, {"internal/driver/wasm", 2}, {"internal/warm/prestart", 2},
	{"internal/driver/local", 1}, {"internal/linux/cgroup", 1}, {"cmd/sandbar", 2}, {"internal/protocol/stdio", 2},
	{"internal/protocol/fathom", 1}, {"internal/protocol/executor", 1}, {"sandbox", 1},
}

// userDependent lists the packages whose outcome depends on the user: their code or their
// tests start processes, read user ids, or depend on permissions of files, cgroups or
// namespaces. Root's pass runs all packages; the ordinary user's pass runs these and the
// packages below them. A test in another package that needs an ordinary user is a failure
// (judgeSkips).
var userDependent = []string{
	".", "client", "cmd", "sandbox", "driver", "engine",
	"internal/agent", "internal/driver", "internal/image", "internal/linux", "internal/process",
	"internal/protocol", "internal/server", "internal/test/e2e", "internal/test/testenv", "internal/warm",
	"internal/wasm/artefact", "internal/wasm/guest", "internal/wasm/v86", "internal/wasm/worker",
}

// dependsOnUser reports whether the ordinary user's pass includes the package in dir.
func dependsOnUser(dir string) bool {
	return slices.ContainsFunc(userDependent, func(d string) bool { return dir == d || strings.HasPrefix(dir, d+"/") })
}

// newSuite lists the packages that have tests. bin is the directory for the compiled tests.
func newSuite(ctx context.Context, o options, root, bin string) (*suite, error) {
	module, err := goOutput(ctx, root, "list", "-m")
	if err != nil {
		return nil, err
	}
	s := &suite{o: o, root: root, module: strings.TrimSpace(module)}
	const format = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}{{end}}"
	out, err := goOutput(ctx, root, append([]string{"list", "-f", format}, o.patterns...)...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) {
		path, dir, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok {
			continue
		}
		dir, err := filepath.Rel(root, dir)
		if err != nil {
			return nil, err
		}
		binary := filepath.Join(bin, strings.ReplaceAll(dir, "/", "-")+".test")
		s.packages = append(s.packages, &testedPackage{path: path, dir: dir, parts: 1, binary: binary, built: make(chan struct{})})
	}
	weight := func(p *testedPackage) int {
		for i, l := range long {
			if l.dir == p.dir {
				p.parts = l.parts
				return i
			}
		}
		return len(long)
	}
	slices.SortStableFunc(s.packages, func(a, b *testedPackage) int { return cmp.Compare(weight(a), weight(b)) })
	return s, nil
}

// run compiles and runs the tests of all passes, o.lanes at a time.
func (s *suite) run(ctx context.Context, passes []*pass) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { s.compile(ctx) })

	jobs := make(chan job)
	var mu sync.Mutex
	var failed error
	for lane := range s.o.lanes {
		all.Go(func() {
			for j := range jobs {
				if err := s.runJob(ctx, lane, j); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
					cancel()
				}
			}
		})
	}
	// Root's pass is first: it boots machines that the ordinary users' pass then finds.
	for _, pass := range passes {
		for _, p := range s.packages {
			n := p.parts
			if s.o.only != "" {
				n = 1
			}
			for i := 0; i < n && pass.runs(p.dir); i++ {
				jobs <- job{pass, p, i, n}
			}
		}
	}
	close(jobs)
	all.Wait()
	for _, p := range passes {
		if failed == nil {
			failed = p.conclude(ctx, p.tally)
		}
	}
	return failed
}

// compile compiles the tests, two packages at a time.
func (s *suite) compile(ctx context.Context) {
	args := []string{"test", "-c", "-vet=off"} // "make vet" vets all packages
	if s.o.race {
		args = append(args, "-race")
	}
	var all sync.WaitGroup
	free := make(chan struct{}, 2)
	for _, p := range s.packages {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			defer close(p.built)
			cmd := exec.CommandContext(ctx, "go", append(args, "-o", p.binary, p.path)...)
			cmd.Dir = s.root
			cmd.Env = goEnv(s.o)
			if out, err := cmd.CombinedOutput(); err != nil {
				p.err = fmt.Errorf("%w\n%s", err, out)
			}
		})
	}
	all.Wait()
}

// runJob runs one package's tests and adds their events to the pass's tally. A failed test is
// not an error.
func (s *suite) runJob(ctx context.Context, lane int, j job) error {
	<-j.p.built
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case j.p.err != nil:
		j.pass.tally.add(event{Action: "build-output", ImportPath: j.name(), Output: j.p.err.Error()})
		j.pass.tally.add(event{Action: "fail", Package: j.name(), FailedBuild: j.name()})
		return nil
	}
	args := []string{"-test.v=test2json", "-test.paniconexit0", "-test.timeout=" + s.o.timeout.String()}
	if s.o.only != "" {
		args = append(args, "-test.run="+s.o.only)
	}
	if j.n > 1 {
		part, err := s.part(ctx, lane, j)
		if err != nil {
			return err
		}
		args = append(args, "-test.run="+part)
	}
	// The binary exits at its own timeout; this bound is for a binary that hangs.
	bounded, cancel := context.WithTimeout(ctx, s.o.timeout+time.Minute)
	defer cancel()
	tests := j.pass.command(bounded, lane, j.p, args...)
	tests.WaitDelay = 10 * time.Second
	killGroup(tests)
	if err := j.pass.tally.follow(bounded, tests, j.name()); err != nil {
		return fmt.Errorf("the tests of %s: %w", j.p.dir, err)
	}
	if j.pass.ended != nil {
		j.pass.ended(lane, j.p)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted: %w", context.Cause(ctx))
	}
	return nil
}

// part returns a -run pattern for the job's part of the tests.
func (s *suite) part(ctx context.Context, lane int, j job) (string, error) {
	out, err := j.pass.command(ctx, lane, j.p, "-test.list=.").Output()
	if err != nil {
		return "", fmt.Errorf("listing the tests of %s: %w", j.p.dir, err)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		if name := strings.TrimSpace(line); strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Example") || strings.HasPrefix(name, "Fuzz") {
			names = append(names, name)
		}
	}
	var mine []string
	for i := j.i; i < len(names); i += j.n {
		mine = append(mine, names[i])
	}
	return "^(" + strings.Join(mine, "|") + ")$", nil
}

// follow runs a test binary and adds its events to the tally as those of pkg. The event of the
// package's end comes last, because a binary can fail after all its tests have passed.
func (t *tally) follow(ctx context.Context, tests *exec.Cmd, pkg string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	tests.Stdout, tests.Stderr = w, w
	err = tests.Start()
	w.Close()
	if err != nil {
		return err
	}
	convert := exec.CommandContext(ctx, "go", "tool", "test2json", "-t", "-p", pkg) // any text
	convert.WaitDelay = 10 * time.Second
	convert.Stdin = r
	var stderr bytes.Buffer
	convert.Stderr = &stderr
	last := event{Action: "fail", Package: pkg}
	out, err := convert.StdoutPipe()
	if err == nil {
		err = convert.Start()
	}
	if err == nil {
		err = t.read(out, func(e event) {
			if e.Test == "" && slices.Contains([]string{"pass", "fail", "skip"}, e.Action) {
				last = e
				return
			}
			t.add(e)
		})
		err = errors.Join(err, convert.Wait())
	}
	ended := tests.Wait()
	if err != nil {
		return fmt.Errorf("test2json: %w: %s", err, stderr.Bytes())
	}
	if ended != nil && last.Action != "fail" {
		last.Action = "fail"
	}
	if ended != nil {
		t.add(event{Action: "output", Package: pkg, Output: ended.Error() + "\n"})
	}
	if s := tests.ProcessState; s != nil {
		t.spent(pkg, s.UserTime()+s.SystemTime())
	}
	t.add(last)
	return nil
}

// read calls each for every event of a stream. It prints a line that is not an event unchanged.
func (t *tally) read(r io.Reader, each func(event)) error {
	for br := bufio.NewReader(r); ; {
		line, err := br.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				each(e)
			} else {
				fmt.Fprintf(t.out, "%s", line)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// here returns the pass of the current user. skips is the directory for testenv's records.
func (s *suite) here(who, skips string, golden []allowance, w io.Writer) *pass {
	return &pass{
		who:   who,
		tally: newTally(w, s.module, who),
		runs:  func(string) bool { return true },
		command: func(ctx context.Context, _ int, p *testedPackage, args ...string) *exec.Cmd {
			cmd := exec.CommandContext(ctx, p.binary, args...)
			cmd.Dir = filepath.Join(s.root, p.dir)
			cmd.Env = append(goEnv(s.o), "PWD="+cmd.Dir, "TESTENV_SKIPS="+skips, "TESTENV_CACHE="+testenv.Cache())
			return cmd
		},
		conclude: func(_ context.Context, t *tally) error {
			var unmet bytes.Buffer
			printUnmet(&unmet, []string{"all"})
			return t.conclude(skips, golden, readFacts(), parseUnmet(unmet.String()))
		},
	}
}

// conclude checks the skips after all tests.
func (t *tally) conclude(skips string, golden []allowance, f facts, unmet map[string]string) error {
	recorded, err := testenv.ReadSkips(skips)
	if err != nil {
		return err
	}
	t.printSlowest(10)
	t.judgeSkips(recorded, golden, f, unmet)
	for _, r := range recorded {
		if dir := strings.TrimPrefix(r.Package, t.prefix); r.Requirement == testenv.NonRoot.Name && !dependsOnUser(dir) {
			t.problem("%s %s needs an ordinary user, but the user's pass omits the package: see userDependent in internal/test/testenv/runner", dir, r.Test)
		}
	}
	fmt.Fprintf(t.out, "\nas %s: %s\n", t.who, t.now)
	return nil
}

// goEnv returns the environment of go commands. Only the race detector needs cgo.
func goEnv(o options) []string {
	cgo := "CGO_ENABLED=0"
	if o.race {
		cgo = "CGO_ENABLED=1"
	}
	return append(os.Environ(), cgo)
}

// goOutput runs a go command in dir and returns its stdout.
func goOutput(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}

// missingTools returns the reasons of tools that scripts/tools.sh could not fetch, by
// requirement.
func missingTools() map[string]string {
	b, err := os.ReadFile(filepath.Join(testenv.Cache(), "tools.missing"))
	if err != nil {
		return nil // the script has not run, so no missing tool is excused
	}
	return parseUnmet(string(b))
}
