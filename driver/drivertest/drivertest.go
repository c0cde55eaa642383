// Package drivertest is the conformance suite for drivers. A driver's own test has ten lines:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, drivertest.Harness{
//			Name:  "mine",
//			New:   mine.New,
//			Skips: "testdata/skips.golden",
//		})
//	}
//
// The suite tests the requirements of package driver in groups: lifecycle, streams, endings, trees,
// warm starts, limits, files, dial, abilities, races, and the attacks of package escape. It tests
// each claim of the driver's Caps in both directions: a claimed property must hold, and an
// unclaimed one must be absent or refused.
//
// Before and after every case the suite lists the host's processes, mounts, cgroups, descriptors,
// goroutines and files of the runtime directory. The case fails if a new one remains.
//
// A case that cannot run logs the reason. If the reason is a missing ability of the driver, the
// case must be in a golden file, so that the suite cannot pass without running. SANDBAR_UPDATE=1 in
// the environment writes that file.
//
// The suite runs programs that a sandbox must have: sh, cat, head, tr, wc, sleep, env, seq, mkfifo.
// Some cases also need Python 3 with ctypes.
package drivertest

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// Harness describes the driver under test.
type Harness struct {
	// Name is Caps.Name.
	Name string
	// New makes a driver, like driver.Factory.New. The suite calls it many times, each time with
	// its own RuntimeDir.
	New func(driver.Host) (driver.Driver, error)
	// Options are passed to New.
	Options map[string]string
	// Spec, if set, changes the Spec of every sandbox, for example its image.
	Spec func(*sandbar.Spec)
	// KnownFailures are cases ("group/case") that fail, each with the reason. A listed case that
	// passes is an error, so that the list stays correct.
	KnownFailures map[string]string
	// Skips is the golden file of cases that this driver's missing abilities exclude. Default: they
	// are only logged.
	Skips string
	// Traces, if set, lists the driver's resources on the host that the suite does not find by
	// itself.
	Traces func() []string
	// Trim, if set, drops what the driver keeps for later sandboxes, before the suite looks for
	// traces.
	Trim func(driver.Driver)
	// Later are cases ("group/case", or a path.Match pattern such as "group/*") that run only in
	// "make test-all", because they are slow with this driver or repeat another driver's test.
	Later []string
	// Slow: a sandbox takes a second instead of milliseconds. "make test-all" then repeats cases as
	// few times as "make test".
	Slow bool
	// Emulated: an emulated processor runs the sandbox's programs. The suite moves an eighth of the
	// bytes through it and waits ten times longer for a sandbox. It does not wait longer for the
	// removal of traces.
	Emulated bool
}

// group is a set of cases that share a driver.
type group struct {
	name  string
	cases []testCase
	probe func(*C) // examines the driver before the cases; may be nil
}

// testCase tests one requirement.
type testCase struct {
	name  string
	needs []need
	run   func(*C)
}

func groups() []group {
	return []group{
		{name: "abilities", cases: append(abilityCases(), imageCases()...)},
		{name: "lifecycle", cases: lifecycleCases()},
		{name: "streams", cases: streamCases()},
		{name: "endings", cases: endingCases()},
		{name: "trees", cases: treeCases()},
		{name: "warm", cases: warmCases(), probe: probeWarm},
		{name: "limits", cases: limitCases()},
		{name: "files", cases: fileCases()},
		{name: "dial", cases: dialCases()},
		{name: "outbound", cases: outboundCases()},
		{name: "saves", cases: saveCases()},
		{name: "terminals", cases: terminalCases()},
		{name: "watches", cases: watchCases()},
		{name: "contexts", cases: contextCases()},
		{name: "races", cases: raceCases()},
		{name: "daemon", cases: daemonCases()},
		{name: "escape", cases: escapeCases()},
	}
}

// Run runs the suite. It executes the test binary again once or twice, limited to the calling test,
// for a daemon that can be killed.
func Run(t *testing.T, h Harness) {
	if dir := os.Getenv(daemonVariable); dir != "" {
		beDaemon(h, dir)
		return
	}
	if t.Failed() || !t.Run("setup", func(t *testing.T) { checkHarness(t, h) }) {
		return
	}
	s := newSuite(t, h)
	for _, g := range groups() {
		t.Run(g.name, func(t *testing.T) { s.group(t, g) })
	}
	s.report(t)
}

func checkHarness(t *testing.T, h Harness) {
	if h.Name == "" || h.New == nil {
		t.Fatal("a Harness needs Name and New")
	}
	for _, name := range unknownCases(h) {
		t.Errorf("KnownFailures or Later lists %q, which is no case", name)
	}
}

// later reports whether a case is in Later.
func (h *Harness) later(name string) bool {
	return slices.ContainsFunc(h.Later, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// unknownCases returns the names in KnownFailures and Later that match no case, sorted.
func unknownCases(h Harness) []string {
	unknown := map[string]string{}
	maps.Copy(unknown, h.KnownFailures)
	for _, name := range h.Later {
		unknown[name] = ""
	}
	for _, g := range groups() {
		for _, c := range g.cases {
			name := g.name + "/" + c.name
			maps.DeleteFunc(unknown, func(one, _ string) bool {
				ok, err := path.Match(one, name)
				return ok && err == nil
			})
		}
	}
	return slices.Sorted(maps.Keys(unknown))
}

// suite is the state of one Run.
type suite struct {
	h      Harness
	top    string // name of the calling test
	token  string // in the environment of every program
	python string // in the sandbox; "" if there is none
	caps   driver.Caps
	// waitTimeout bounds each wait, before waitFactor; see the constant.
	waitTimeout time.Duration
	// A destroyed sandbox, a process that ended in it, and a closed driver, to look for abilities:
	// the abilities of a value are constant.
	sampleSandbox driver.Sandbox
	sampleProcess driver.Process // ended
	sampleDriver  driver.Driver
	warm          map[string]string // why the driver cannot warm a warmKind, by its name

	mu      sync.Mutex
	ids     map[sandbar.ID]bool // of every sandbox made
	skips   map[string]string   // missing abilities of the driver, by case
	missing map[string]string   // missing parts of the host or the sandbox, by case
	groups  int                 // how many have run
}

// waitTimeout is how long an operation in progress may take to end.
const waitTimeout = 10 * time.Second

func newSuite(t *testing.T, h Harness) *suite {
	s := &suite{h: h, top: t.Name(), token: nonce(), waitTimeout: waitTimeout,
		ids: map[sandbar.ID]bool{}, skips: map[string]string{}, missing: map[string]string{}, warm: map[string]string{}}
	s.setUp(t)
	return s
}

// setUp examines the driver once: its Caps, and whether its sandboxes have Python.
func (s *suite) setUp(t *testing.T) {
	d, done := s.newDriver(t)
	defer done()
	s.caps, s.sampleDriver = d.Caps(), d
	c := &C{s: s, d: d, ctx: context.Background()}
	defer func() {
		c.cleanUp()
		if msg := c.failed(); msg != "" {
			t.Fatal(msg)
		}
	}()
	c.guard(func() {
		box := c.box()
		s.sampleSandbox = box
		s.sampleProcess = c.start(box, sandbar.Cmd{Args: []string{"sh", "-c", ":"}}, driver.Stdio{})
		c.wait(s.sampleProcess)
		for _, name := range []string{"/usr/bin/python3", "python3"} {
			if r := c.try(box, sandbar.Cmd{Args: []string{name, "-c", "import ctypes, os, socket; print(6*7)"}}, driver.Stdio{}); r.out == "42\n" {
				s.python = name
				break
			}
		}
	})
}

// newDriver makes a driver with its own runtime directory. done closes the driver and checks that
// the directory can be removed.
func (s *suite) newDriver(t testing.TB) (driver.Driver, func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sbdt-") // short, because the directory may hold sockets
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.h.New(s.host(dir))
	if err != nil {
		os.RemoveAll(dir)
		t.Fatalf("making the driver: %v", err)
	}
	return &inDir{d, dir}, func() {
		t.Helper()
		if c, ok := driver.As[driver.Closer](d); ok {
			if err := c.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("the runtime directory cannot be removed after Close: %v", err)
		}
	}
}

// inDir is a driver with its runtime directory. It is a decorator, so the suite itself finds every
// ability through one.
type inDir struct {
	driver.Driver
	dir string
}

// Unwrap returns the driver.
func (d *inDir) Unwrap() any { return d.Driver }

func (s *suite) host(dir string) driver.Host {
	return driver.Host{RuntimeDir: dir, Logger: slog.New(slog.DiscardHandler), Options: s.h.Options, Outbound: &driver.Outbound{}}
}

// group runs the cases of one group with one driver.
func (s *suite) group(t *testing.T, g group) {
	before := s.look("")
	d, done := s.newDriver(t)
	if g.probe != nil {
		c := &C{s: s, d: d, ctx: context.Background()}
		c.guard(func() { g.probe(c) })
		c.cleanUp()
		if msg := c.failed(); msg != "" {
			t.Error(msg)
		}
	}
	for _, c := range g.cases {
		t.Run(c.name, func(t *testing.T) { s.runCase(t, d, g.name+"/"+c.name, c) })
	}
	done()
	if left := s.settle(before, ""); left != "" {
		t.Errorf("after the driver was closed this remains:\n%s", left)
	}
	s.mu.Lock()
	s.groups++
	s.mu.Unlock()
}

// caseBound bounds one case besides the driver's own bound and before waitFactor, far beyond
// what any case needs.
const caseBound = 3 * time.Minute

// caseBound returns the bound of one case.
func (s *suite) caseBound() time.Duration { return caseBound*s.waitFactor() + s.caps.Setup }

// waitFactor multiplies the bounds of waits for a sandbox.
func (s *suite) waitFactor() time.Duration {
	if s.h.Emulated {
		return 10
	}
	return 1
}

// amount returns a number of bytes or lines to move: n, or less if the processor is emulated.
func (s *suite) amount(n int) int {
	if s.h.Emulated {
		return n / 8
	}
	return n
}

func (s *suite) runCase(t *testing.T, d driver.Driver, name string, tc testCase) {
	for _, n := range tc.needs {
		if why := n.unmet(s); why != "" {
			t.Logf("not run: %s", why)
			s.skip(name, n.ofDriver || n.kernel && s.caps.Boundary == driver.BoundaryWasm, why)
			return
		}
	}
	if s.h.later(name) {
		testenv.Need(t, testenv.TestAll)
	}
	c := s.play(t.Context(), d, name, tc)
	for _, l := range c.logs {
		t.Log(l)
	}
	reason, known := s.h.KnownFailures[name]
	if text, bad := judge(c.failed(), reason, known); bad {
		t.Error(text)
	} else if text != "" {
		t.Log(text)
	}
}

// play runs a case, cleans up after it and checks for remaining traces.
func (s *suite) play(ctx context.Context, d driver.Driver, name string, tc testCase) *C {
	dir := d.(*inDir).dir
	before := s.look(dir)
	ctx, cancel := context.WithTimeout(ctx, s.caseBound())
	defer cancel()
	c := &C{s: s, d: d, dir: dir, name: name, ctx: ctx}
	c.guard(func() { tc.run(c) })
	c.cleanUp()
	if s.h.Trim != nil {
		s.h.Trim(d)
	}
	if c.failed() == "" {
		if left := s.settle(before, dir); left != "" {
			c.Errorf("traces remain after the case:\n%s", left)
		}
	}
	return c
}

// judge compares a failure with the list of known failures.
func judge(failure, reason string, known bool) (text string, bad bool) {
	switch {
	case failure != "" && known:
		return "known failure: " + reason + "\n" + failure, false
	case known:
		return "listed as a known failure (" + reason + "), but it passes: take it from the list", true
	}
	return failure, failure != ""
}

// skip records a case that does not run. ofDriver: the reason is the driver and not the host.
func (s *suite) skip(name string, ofDriver bool, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ofDriver {
		s.skips[name] = why
	} else {
		s.missing[name] = why
	}
}

// report logs the cases that did not run and compares those of the driver with the golden file.
func (s *suite) report(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(s.missing)) {
		t.Logf("not run on this host: %s: %s", name, s.missing[name])
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.skips)) {
		fmt.Fprintf(&b, "%s: %s\n", name, s.skips[name])
	}
	if s.h.Skips == "" || s.groups != len(groups()) { // -run selected a part of the suite
		t.Logf("not run with this driver:\n%s", b.String())
		return
	}
	if os.Getenv("SANDBAR_UPDATE") != "" {
		if err := os.MkdirAll(filepath.Dir(s.h.Skips), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.h.Skips, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(s.h.Skips)
	if err != nil {
		t.Fatalf("the golden file of skips: %v (SANDBAR_UPDATE=1 writes it)", err)
	}
	if b.String() != string(want) {
		t.Errorf("the cases that this driver makes impossible are not those of %s (SANDBAR_UPDATE=1 writes it)\ngot:\n%s\nwant:\n%s", s.h.Skips, b.String(), want)
	}
}

// need is a precondition of a case.
type need struct {
	ofDriver bool // a missing need is a fact about the driver, not about the host
	kernel   bool // needs system calls, which programs in WebAssembly do not have
	unmet    func(*suite) string
}

// The needs.
func needPython() need {
	return need{kernel: true, unmet: func(s *suite) string {
		if s.python == "" {
			if s.caps.Boundary == driver.BoundaryWasm {
				return "the sandbox's Python makes no system calls"
			}
			return "there is no Python in the sandbox"
		}
		return ""
	}}
}

func needAbility[T any](what string) need {
	return need{ofDriver: true, unmet: func(s *suite) string {
		if _, ok := driver.As[T](s.sampleSandbox); ok {
			return ""
		}
		return "the driver's sandboxes have no " + what
	}}
}

func needFactoryAbility[T any](what string) need {
	return need{ofDriver: true, unmet: func(s *suite) string {
		if _, ok := driver.As[T](s.sampleDriver); ok {
			return ""
		}
		return "the driver has no " + what
	}}
}

func needClaim(what string, claimed func(driver.Caps) bool) need {
	return need{ofDriver: true, unmet: func(s *suite) string {
		if claimed(s.caps) {
			return ""
		}
		return "the driver does not claim " + what
	}}
}

// few returns a number of repetitions: few, or many in "make test-all" unless sandboxes are slow.
func (s *suite) few(many, few int) int {
	if testenv.Long() && !s.h.Slow {
		return many
	}
	return few
}
