package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// TestMain lets the test binary stand in for the runner where it starts itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-check" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	commonUmask()
	os.Exit(m.Run())
}

// runModule runs the tests of a module made of files and returns the tally and what was
// printed.
func runModule(t *testing.T, files map[string]string) (*tally, string) {
	t.Helper()
	testenv.Need(t, testenv.GoTool)
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("GOWORK", "off")
	dir := t.TempDir()
	files["go.mod"] = "module example.test/m\n\ngo 1.26\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := newSuite(t.Context(), options{lanes: 2, timeout: time.Minute, patterns: []string{"./..."}}, dir, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	p := s.here("somebody", t.TempDir(), nil, &out)
	p.conclude = func(context.Context, *tally) error { return nil } // the skips here are made without testenv
	if err := s.run(t.Context(), []*pass{p}); err != nil {
		t.Fatal(err)
	}
	return p.tally, out.String()
}

func TestTallyOfWhatTheGoCommandSays(t *testing.T) {
	const header = "package a\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar _ = os.Exit\n\n"
	tests := []struct {
		name    string
		test    string
		want    counts
		prints  []string
		conceal []string // must not be printed
	}{{
		name:   "passes",
		test:   "func TestA(t *testing.T) {}\nfunc TestB(t *testing.T) {}",
		want:   counts{passed: 2},
		prints: []string{`(?m)^ok    a .* 2 passed, 0 failed, 0 skipped, as somebody$`},
	}, {
		name: "parts are counted, not what holds them",
		test: `func TestA(t *testing.T) {
			t.Run("x", func(t *testing.T) { t.Log("quiet") })
			t.Run("y", func(t *testing.T) { t.Error("loud") })
			t.Run("z", func(t *testing.T) { t.Skip("tired") })
		}`,
		want:    counts{1, 1, 1},
		prints:  []string{`(?m)^FAIL  a `, `TestA/y`, `loud`},
		conceal: []string{"quiet", "tired"},
	}, {
		name: "a test that fails beside its parts",
		test: `func TestA(t *testing.T) {
			t.Run("x", func(t *testing.T) {})
			t.Error("afterwards")
		}`,
		want:   counts{passed: 1, failed: 1},
		prints: []string{`afterwards`},
	}, {
		name:   "does not compile",
		test:   `func TestA(t *testing.T) { undefinedName() }`,
		want:   counts{failed: 1},
		prints: []string{`undefined: undefinedName`},
	}, {
		name:   "panics",
		test:   `func TestA(t *testing.T) {}` + "\n" + `func TestB(t *testing.T) { panic("at the disco") }`,
		want:   counts{passed: 1, failed: 1},
		prints: []string{`at the disco`, `goroutine`},
	}, {
		name:   "dies in the middle of a test",
		test:   `func TestA(t *testing.T) { os.Exit(3) }`,
		want:   counts{failed: 1},
		prints: []string{`=== RUN +TestA`, `FAIL\s+a .*`, `exit status 3`},
	}, {
		name:   "claims success in the middle of a test",
		test:   `func TestA(t *testing.T) { os.Exit(0) }`,
		want:   counts{failed: 1},
		prints: []string{`os.Exit\(0\)`},
	}, {
		name:   "fails outside its tests",
		test:   `func TestA(t *testing.T) {}` + "\n" + `func TestMain(m *testing.M) { m.Run(); println("swept under the rug"); os.Exit(1) }`,
		want:   counts{passed: 1, failed: 1},
		prints: []string{`swept under the rug`},
	}, {
		name: "has no tests",
		test: `var _ testing.TB`,
		want: counts{},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, out := runModule(t, map[string]string{"a/a_test.go": header + tt.test})
			if got.now != tt.want {
				t.Errorf("counted %s, want %s", got.now, tt.want)
			}
			for _, p := range tt.prints {
				if !regexp.MustCompile(p).MatchString(out) {
					t.Errorf("nothing printed matches %q", p)
				}
			}
			for _, p := range tt.conceal {
				if strings.Contains(out, p) {
					t.Errorf("%q was printed, though it did not fail", p)
				}
			}
			if t.Failed() {
				t.Logf("printed:\n%s", out)
			}
		})
	}
}

// The end of the output names each failed test once and begins with its output.
func TestFailuresAreRepeated(t *testing.T) {
	tl := newTally(io.Discard, "m", "somebody")
	for _, e := range []event{
		{Action: "pass", Package: "m/a", Test: "TestA/x"},
		{Action: "output", Package: "m/a", Test: "TestA/y", Output: "loud\n"},
		{Action: "fail", Package: "m/a", Test: "TestA/y"},
		{Action: "fail", Package: "m/a", Test: "TestA"},
		{Action: "fail", Package: "m/a"},
		{Action: "output", Package: "m/b", Output: "does not compile\n"},
		{Action: "fail", Package: "m/b"},
		{Action: "pass", Package: "m/c"},
	} {
		tl.add(e)
	}
	tl.problem("a skip")
	var out bytes.Buffer
	tl.printFailed(&out)
	const want = `
failed as somebody: a
  loud

failed as somebody: b
  does not compile

failed as somebody outside of tests: a skip
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A program that writes no event and fails is a failed package.
func TestFollowTellsOfACommandThatFailsWithoutAWord(t *testing.T) {
	testenv.Need(t, testenv.GoTool)
	var out bytes.Buffer
	got := newTally(&out, "m", "somebody")
	if err := got.follow(t.Context(), exec.CommandContext(t.Context(), "go", "no-such-verb"), "m/a"); err != nil {
		t.Fatal(err)
	}
	if got.now.failed != 1 || !strings.Contains(out.String(), "no-such-verb") {
		t.Errorf("counted %s, printed %q", got.now, out.String())
	}
}

func TestParseGolden(t *testing.T) {
	got, err := parseGolden("# words\n\nRoot   user  root's pass  runs these\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []allowance{{"Root", "user", "root's pass runs these"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(allowance{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, bad := range []string{"Root user", "Rot user reason", "Root users reason"} {
		if _, err := parseGolden(bad); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

func TestGoldenFile(t *testing.T) {
	golden, err := readGolden(filepath.Join("..", "skips.golden"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range testenv.All() {
		if _, ok := allowed(golden, r.Name, everything(r.Name)); !ok {
			t.Errorf("no host at all may lack %s: it need not be a requirement", r.Name)
		}
	}
	// On a machine where everything could be had, root's pass of "make test-all" lacks nothing
	// but the other user, whatever the version of its cgroups. Tests start a cluster with version 1
	// only.
	full := facts{root: true, linux: true, long: true}
	for _, v1 := range []bool{false, true} {
		full.memoryOnV1 = v1
		var may []string
		for _, r := range testenv.All() {
			if _, ok := allowed(golden, r.Name, full); ok {
				may = append(may, r.Name)
			}
		}
		want := map[bool][]string{false: {"NonRoot", "CgroupV1", "Cluster"}, true: {"NonRoot", "CgroupV2"}}[v1]
		if diff := cmp.Diff(want, may); diff != "" {
			t.Errorf("allowed on a full host, memory on v1 = %v (-want +got):\n%s", v1, diff)
		}
	}
}

// everything is a host on which every condition that can excuse a requirement
// holds, though no real host is both root's and not.
func everything(requirement string) facts {
	return facts{
		root:            requirement == "NonRoot",
		linux:           requirement != "Linux",
		missing:         map[string]string{requirement: "no network"},
		userNSForbidden: true,
		memoryOnV1:      requirement == "CgroupV2",
		noPeakReset:     true,
		cgroupReadOnly:  true,
		noTUN:           true,
		noCluster:       true,
		noHelm:          true,
	}
}

func TestJudgeSkips(t *testing.T) {
	golden, err := parseGolden("NonRoot root elsewhere\nNode tool-missing asked for\n")
	if err != nil {
		t.Fatal(err)
	}
	skip := []testenv.Skip{{Package: "m/a", Test: "TestA", Requirement: "NonRoot"}}
	tests := []struct {
		name     string
		recorded []testenv.Skip
		facts    facts
		unmet    map[string]string
		problem  string // "" for none
	}{
		{"allowed", skip, facts{root: true}, map[string]string{"NonRoot": "running as root"}, ""},
		{"there after all", skip, facts{root: true}, nil, "which is met"},
		{"not allowed here", skip, facts{}, map[string]string{"NonRoot": "x"}, "does not allow"},
		{"not by Need", nil, facts{root: true}, nil, "not by testenv.Need"},
		{"another test's record", []testenv.Skip{{Package: "m/a", Test: "TestB", Requirement: "NonRoot"}}, facts{root: true}, nil, "not by testenv.Need"},
		{"tool said to be missing", []testenv.Skip{{Package: "m/a", Test: "TestA", Requirement: "Node"}},
			facts{root: true, missing: map[string]string{"Node": "no network"}}, map[string]string{"Node": "no such file"}, ""},
		{"tool not said to be missing", []testenv.Skip{{Package: "m/a", Test: "TestA", Requirement: "Node"}},
			facts{root: true}, map[string]string{"Node": "no such file"}, "does not allow"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			got := newTally(&out, "m", "somebody")
			got.add(event{Action: "run", Package: "m/a", Test: "TestA"})
			got.add(event{Action: "skip", Package: "m/a", Test: "TestA"})
			got.add(event{Action: "pass", Package: "m/a"})
			got.judgeSkips(tt.recorded, golden, tt.facts, tt.unmet)
			if tt.problem == "" {
				if len(got.problems) > 0 || got.now != (counts{skipped: 1}) {
					t.Errorf("problems %q, counted %s", got.problems, got.now)
				}
				if !strings.Contains(out.String(), "a TestA") {
					t.Errorf("the skipped test is not named:\n%s", out.String())
				}
				return
			}
			if len(got.problems) != 1 || !strings.Contains(got.problems[0], tt.problem) || got.now.failed != 1 {
				t.Errorf("problems %q, counted %s; want one with %q", got.problems, got.now, tt.problem)
			}
		})
	}
}

func TestRunFailsWhenNothingRuns(t *testing.T) {
	var out, errs bytes.Buffer
	summary := filepath.Join(t.TempDir(), "summary")
	t.Chdir(filepath.Join("..", "..", "..", ".."))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := run(ctx, []string{"-summary", summary}, &out, &errs); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	b, err := os.ReadFile(summary)
	if err != nil {
		t.Fatal(err)
	}
	if want := "0 passed, 1 failed, 0 skipped\n"; string(b) != want || !strings.HasSuffix(out.String(), "\n"+want) {
		t.Errorf("summary %q, last words %q, want %q", b, out.String(), want)
	}
}

func TestPrintUnmet(t *testing.T) {
	var out bytes.Buffer
	printUnmet(&out, []string{"Root", "NonRoot", "Unheard"})
	got := parseUnmet(out.String())
	_, root := got["Root"]
	_, nonRoot := got["NonRoot"]
	if root == nonRoot || got["Unheard"] == "" || len(got) != 2 {
		t.Errorf("printed %q: want exactly one of Root and NonRoot, and Unheard", out.String())
	}
}

func TestCommandLine(t *testing.T) {
	var errs bytes.Buffer
	if code := run(t.Context(), []string{"-unheard"}, &errs, &errs); code != 2 || !strings.Contains(errs.String(), "usage:") {
		t.Errorf("exit code %d, printed %q", code, errs.String())
	}
}
