package testenv_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// recorder is a testing.TB that remembers instead of ending the test.
type recorder struct {
	testing.TB
	skipped, failed string
}

func (r *recorder) Helper()      {}
func (r *recorder) Name() string { return "TestSomething/with a part" }

func (r *recorder) Skipf(format string, args ...any) {
	r.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// need calls Need on a goroutine of its own, which Skipf and Fatalf end.
func (r *recorder) need(reqs ...testenv.Requirement) (returned bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		testenv.Need(r, reqs...)
		returned = true
	}()
	<-done
	return returned
}

func TestNeed(t *testing.T) {
	met := testenv.Fake("Met", "", nil)
	unmet := testenv.Fake("Unmet", "buy a larger one", errors.New("this one is too small"))

	dir := t.TempDir()
	t.Setenv("TESTENV_SKIPS", dir)
	var r recorder
	if !r.need(met) || r.skipped != "" {
		t.Fatalf("Need of what is there did not return: %q", r.skipped)
	}
	if r.need(met, unmet) {
		t.Fatal("Need of what is missing returned")
	}
	if want := "needs Unmet: this one is too small; buy a larger one"; r.skipped != want {
		t.Errorf("reason = %q, want %q", r.skipped, want)
	}
	got, err := testenv.ReadSkips(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []testenv.Skip{{
		Package:     "github.com/sandbar-dev/sandbar/internal/test/testenv",
		Test:        "TestSomething/with a part",
		Requirement: "Unmet",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("recorded skips (-want +got):\n%s", diff)
	}
}

// A skip that cannot be recorded would be a skip nobody sees.
func TestNeedFailsWhenTheSkipCannotBeRecorded(t *testing.T) {
	t.Setenv("TESTENV_SKIPS", filepath.Join(t.TempDir(), "missing"))
	var r recorder
	r.need(testenv.Fake("Unmet", "", errors.New("no")))
	if !strings.Contains(r.failed, "cannot record a skip") || r.skipped != "" {
		t.Errorf("failed = %q, skipped = %q", r.failed, r.skipped)
	}
}

func TestReadSkipsRefusesAMalformedFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "1.skips"), []byte("package\ttest\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := testenv.ReadSkips(dir); err == nil {
		t.Error("no error for a line of two fields")
	}
}

func TestRequirements(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range testenv.All() {
		if r.Name == "" || r.How == "" || seen[r.Name] {
			t.Errorf("requirement %q has no name, no way to get it, or stands twice", r.Name)
		}
		seen[r.Name] = true
		if got, ok := testenv.Find(r.Name); !ok || got.Name != r.Name {
			t.Errorf("Find(%q) = %q, %v", r.Name, got.Name, ok)
		}
		if (r.Err() == nil) != r.Met() {
			t.Errorf("%s: Err and Met disagree", r.Name)
		}
		if r.Err() != nil && r.Err().Error() == "" {
			t.Errorf("%s: missing without a reason", r.Name)
		}
	}
	if _, ok := testenv.Find("Unheard"); ok {
		t.Error("Find found what is not there")
	}
	if testenv.Root.Met() == testenv.NonRoot.Met() {
		t.Error("Root and NonRoot agree")
	}
	if testenv.Linux.Met() != (runtime.GOOS == "linux") {
		t.Error("Linux is wrong about this system")
	}
}

func TestCache(t *testing.T) {
	t.Setenv("TESTENV_CACHE", "")
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "internal", "test", "testenv", "testenv.go")); err != nil {
		t.Errorf("ModuleRoot = %s, which is not this module: %v", root, err)
	}
	if got, want := testenv.Cache(), filepath.Join(root, ".cache"); got != want {
		t.Errorf("Cache = %s, want %s", got, want)
	}
	elsewhere := t.TempDir()
	t.Setenv("TESTENV_CACHE", elsewhere)
	if got := testenv.Cache(); got != elsewhere {
		t.Errorf("Cache = %s, want TESTENV_CACHE's %s", got, elsewhere)
	}
}

func TestModuleRootOutsideAModule(t *testing.T) {
	t.Chdir("/")
	if root, err := testenv.ModuleRoot(); err == nil {
		t.Errorf("ModuleRoot = %s outside of every module", root)
	}
}

func TestMakeTakesOnlyWhatIsThereWherePrebuilt(t *testing.T) {
	t.Setenv("TESTENV_PREBUILT", "1")
	dir := t.TempDir()
	c := testenv.Command{Package: "cmd/sandbar"}
	if path, err := c.Make(dir); err == nil {
		t.Fatalf("Make = %s, though nothing was built", path)
	}
	want := filepath.Join(dir, "bin-test", "cmd-sandbar")
	if err := os.MkdirAll(filepath.Dir(want), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(want, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Make(dir); err != nil || got != want {
		t.Errorf("Make = %s, %v, want %s", got, err, want)
	}
}
