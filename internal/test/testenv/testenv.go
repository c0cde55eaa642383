// Package testenv knows what this host can do. It is the one place where a
// test is skipped, and it says why and how to get what is missing.
//
// A test names what it cannot do without:
//
//	testenv.Need(t, testenv.Linux, testenv.Python)
//
// Each [Requirement] is checked once per process, when first asked for. A
// skip is also written to a file when TESTENV_SKIPS names a directory; the
// runner of "make test" (package runner, below this one) reads those files,
// checks each requirement again and holds the whole set against
// skips.golden. So a suite cannot turn green because nothing ran.
//
// Its variables begin with TESTENV_ and not with SANDBAR_, since the daemon
// refuses variables of that kind that it does not know.
//
// Only tests and the tools around them import this package.
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

// Requirement is something a test needs of the host.
type Requirement struct {
	// Name is stable; it stands in skips.golden.
	Name string
	// How tells a person how to get what is missing.
	How string

	// check returns nil when the requirement is met, else what is missing.
	check func() error
}

// Err tells what is missing, nil when the requirement is met. The host is
// looked at once per process.
func (r Requirement) Err() error { return r.check() }

// Met reports whether the requirement is met, for tests that expect different
// things of different hosts rather than skip.
func (r Requirement) Met() bool { return r.check() == nil }

func require(name, how string, check func() error) Requirement {
	return Requirement{Name: name, How: how, check: sync.OnceValue(check)}
}

// Need skips the test unless all requirements are met. The reason names the
// first that is not.
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

// Long reports whether what takes long is run as well: "make test-all" sets
// TESTENV_LONG.
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

// All returns every requirement there is.
func All() []Requirement {
	return []Requirement{Linux, Root, NonRoot, Once, UserNS, CgroupV1, CgroupV2, TUN,
		Python, Node, Npm, Elixir, Bubblewrap, Runc, Runsc, Crun, Docker, DockerCLI, Dpkg, Nfpm, QEMU, DebianImage, NpmWS, PyWebsockets, PyKoyeb, Curl, JQ, NpmIII, PyIII, PyWheels, Git, CC, SQLite, GoTool, WasmModules, V86, ShellSuites}
}

// Skip is one skipped test, as recorded below TESTENV_SKIPS.
type Skip struct {
	Package     string // import path of the package under test
	Test        string // as testing.TB.Name gives it
	Requirement string // Requirement.Name
}

// record adds a line to a file of this process in dir; "" records nothing.
// Each process has its own file and a line is one write, so that packages
// tested in parallel do not disturb each other.
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

// ReadSkips returns what Need recorded in dir.
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

// testedPackage is the import path of the package this test binary tests. It
// is not that of Need's caller: suites such as drivertest skip for others.
func testedPackage() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return strings.TrimSuffix(info.Path, ".test")
}

// ModuleRoot is the directory of the project's go.mod: the nearest one at or
// above the working directory.
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

// Cache is the absolute path of the directory where "make tools" and the tests
// keep what they fetched and built: TESTENV_CACHE, else .cache below the
// module's root. It need not exist.
func Cache() string {
	if dir := os.Getenv("TESTENV_CACHE"); dir != "" {
		if abs, err := filepath.Abs(dir); err == nil {
			return abs
		}
	}
	root, err := ModuleRoot()
	if err != nil {
		// Tests always run inside the module; a tool that does not still gets
		// a path that says what is wrong when it is used.
		return filepath.Join(string(filepath.Separator), "no-go.mod-found", ".cache")
	}
	return filepath.Join(root, ".cache")
}

// Kept is a directory for what tests make once and use again: name below Cache,
// or below the user's own cache where only somebody else may write there.
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
