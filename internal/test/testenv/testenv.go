// Package testenv checks what this host offers to tests, and skips tests whose
// requirements are not met. No other package skips a test. The skip message names the
// missing requirement and how to install it.
//
// A test lists its requirements:
//
//	testenv.Need(t, testenv.Linux, testenv.Python)
//
// Each [Requirement] is checked once per process, at its first use. If TESTENV_SKIPS
// names a directory, each skip is recorded there. The runner of "make test" (package
// runner, below this one) reads the records, checks each requirement again, and compares
// the skips with skips.golden, so that a suite cannot pass because nothing ran.
//
// The environment variables begin with TESTENV_, because the daemon rejects unknown
// variables that begin with SANDBAR_.
//
// Only tests and test tools import this package.
package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
)

// Requirement is a property of the host that a test needs.
type Requirement struct {
	// Name is the stable name for skips.golden.
	Name string
	// How says how to meet the requirement.
	How string

	// check returns nil if the requirement is met, else what is missing.
	check func() error
}

// Err returns what is missing, nil if the requirement is met. It checks the host once per process.
func (r Requirement) Err() error { return r.check() }

// Met reports whether the requirement is met, for tests whose expectations depend on the host.
func (r Requirement) Met() bool { return r.check() == nil }

func require(name, how string, check func() error) Requirement {
	return Requirement{Name: name, How: how, check: sync.OnceValue(check)}
}

// Need skips the test unless all requirements are met. The skip message names the first
// unmet requirement.
func Need(t testing.TB, reqs ...Requirement) {
	t.Helper()
	for _, r := range reqs {
		err := r.Err()
		if err == nil {
			continue
		}
		if werr := record(os.Getenv("TESTENV_SKIPS"), t.Name(), testedPackage(), r.Name); werr != nil {
			t.Fatalf("testenv: cannot record a skip: %v", werr)
		}
		t.Skipf("needs %s: %v; %s", r.Name, err, r.How)
	}
}

// Long reports whether tests include their long cases: "make test-all" sets TESTENV_LONG. A whole
// test or subtest that needs it calls Need with TestAll, so that its skip is counted.
func Long() bool { return os.Getenv("TESTENV_LONG") != "" }

// Find returns the requirement called name.
func Find(name string) (Requirement, bool) {
	for _, r := range All() {
		if r.Name == name {
			return r, true
		}
	}
	return Requirement{}, false
}

// All returns all requirements.
func All() []Requirement {
	return []Requirement{Linux, Root, NonRoot, Once, TestAll, UserNS, CgroupV1, CgroupV2, PeakReset, Freezer, TUN,
		Python, Node, Npm, Elixir, Bubblewrap, Runc, Runsc, Crun, Cluster, Helm, Docker, DockerCLI, Dpkg, Nfpm, QEMU, QEMUNewer, VMKernel, VM, DebianImage, NpmWS, PyWebsockets, PyKoyeb, Curl, JQ, NpmIII, NpmVite, PyIII, PyIPython, NpmE2B, PyE2B, NpmMCP, PyMCP, NpmAgents, PyAgents, NpmTypeScript, NpmConsole, NpmAxe, PyWheels, Chromium, Tmux, Vim, Git, CC, SQLite, GoTool, WasmModules, V86, ShellSuites}
}

// Skip is a record of a skipped test.
type Skip struct {
	Package     string // import path of the package under test
	Test        string // as testing.TB.Name gives it
	Requirement string // Requirement.Name
}

// record appends a line to this process's file in dir; "" records nothing. Each process has
// its own file and writes a line at once, so that parallel packages do not interfere.
func record(dir, test, pkg, requirement string) error {
	if dir == "" {
		return nil
	}
	name := filepath.Join(dir, fmt.Sprintf("%d.skips", os.Getpid()))
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s\t%s\t%s\n", pkg, test, requirement)
	return errors.Join(err, f.Close())
}

// ReadSkips returns the records in dir.
func ReadSkips(dir string) ([]Skip, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.skips"))
	if err != nil {
		return nil, err
	}
	var skips []Skip
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			if len(f) != 3 {
				return nil, fmt.Errorf("%s: malformed line %q", name, line)
			}
			skips = append(skips, Skip{Package: f[0], Test: f[1], Requirement: f[2]})
		}
	}
	return skips, nil
}

// testedPackage returns the import path of the package that this test binary tests. The
// caller of Need can be in another package: suites such as drivertest skip for their users.
func testedPackage() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return strings.TrimSuffix(info.Path, ".test")
}

// ModuleRoot returns the directory of the nearest go.mod at or above the working directory.
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for start := dir; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod at or above %s", start)
		}
	}
}

// Cache returns the absolute path of the directory for fetched tools and built files:
// TESTENV_CACHE, else .cache below the module's root. The directory may not exist.
func Cache() string {
	if dir := os.Getenv("TESTENV_CACHE"); dir != "" {
		if abs, err := filepath.Abs(dir); err == nil {
			return abs
		}
	}
	root, err := ModuleRoot()
	if err != nil {
		// Tests always run inside the module. A tool outside of it gets a path whose name
		// explains the error.
		return filepath.Join(string(filepath.Separator), "no-go.mod-found", ".cache")
	}
	return filepath.Join(root, ".cache")
}

// Kept creates and returns a directory for files that tests reuse between runs: name below
// Cache, or below the user's cache directory if this user cannot write to Cache.
func Kept(name string) (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		user = os.TempDir()
	}
	var failed error
	for _, base := range []string{Cache(), filepath.Join(user, "sandbar-tests")} {
		dir := filepath.Join(base, name)
		err := os.MkdirAll(dir, 0o700)
		if err == nil {
			var f *os.File
			if f, err = os.CreateTemp(dir, ".writable-"); err == nil {
				return dir, errors.Join(f.Close(), os.Remove(f.Name()))
			}
		}
		failed = errors.Join(failed, err)
	}
	return "", failed
}
