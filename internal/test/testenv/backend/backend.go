package backend

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// Over is the name of the test that runs other tests over the other drivers.
const Over = "TestOver"

// Pool makes drivers for the tests of one package. Its zero value is ready to use;
// TestMain must call its Main.
type Pool struct{ shared }

// backend is a driver that tests run over. The first of backends is the driver of tests
// that are not subtests of Over.
type backend struct {
	name  string
	needs []testenv.Requirement
	later bool     // runs only in "make test-all": another driver covers its special cases
	lacks []string // languages that its sandboxes lack even if the host has them
	// enter, if set, reports whether this process can run the cases; otherwise it has run them in
	// another process.
	enter func(*testing.T) bool
	make  func(s *shared, t testing.TB, h driver.Host, agent []byte) (driver.Driver, error)
}

// of returns the backend of the test with this name.
func of(test string) backend {
	all := backends()
	if rest, ok := strings.CutPrefix(test, Over+"/"); ok {
		name, _, _ := strings.Cut(rest, "/")
		if i := slices.IndexFunc(all, func(b backend) bool { return b.name == name }); i >= 0 {
			return all[i]
		}
	}
	return all[0]
}

// Name returns the name of the driver that New makes for a test.
func Name(t testing.TB) string { return of(t.Name()).name }

// Root reports whether programs are root, and may do to files what root may.
func Root(t testing.TB) bool { return Name(t) == "vm" }

// Has reports whether sandboxes of the test's driver have a language that the host has:
// a driver's image may lack it.
func Has(t testing.TB, language string) bool {
	return !slices.Contains(of(t.Name()).lacks, language)
}

// New makes a driver for a test. It skips the test if this host cannot run the driver.
func (p *Pool) New(t testing.TB) driver.Driver {
	t.Helper()
	b := of(t.Name())
	testenv.Need(t, b.needs...)
	agent, err := os.ReadFile(testenv.Build(t, "cmd/sandbar-agent"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := b.make(&p.shared, t, driver.Host{RuntimeDir: dir(t)}, agent)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// dir makes a directory for a driver. Its path is short, because the path of a Unix socket
// has at most 107 bytes (unix(7)).
func dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sbbk-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Case is a test that also runs over drivers other than native.
type Case struct {
	Name string
	Run  func(*testing.T)
	// Later: a long case, which runs only in "make test-all".
	Later bool
	// Otherwise lists the drivers over which the test does not run, with the reasons.
	Otherwise map[string]string
}

// Over runs the cases over every driver but native. t is the test called Over.
func (p *Pool) Over(t *testing.T, cases []Case) {
	if t.Name() != Over {
		t.Fatalf("this test is called %s, not %s", t.Name(), Over)
	}
	for _, b := range backends()[1:] {
		t.Run(b.name, func(t *testing.T) {
			if b.later {
				testenv.Need(t, testenv.TestAll)
			}
			testenv.Need(t, b.needs...)
			if b.enter != nil && !b.enter(t) {
				return
			}
			for _, c := range cases {
				if why := c.Otherwise[b.name]; why != "" {
					t.Logf("%s is otherwise: %s", c.Name, why)
				} else if !c.Later || testenv.Long() {
					t.Run(c.Name, c.Run)
				}
			}
		})
	}
}

// Main runs the tests of a package, stops shared engines, and checks that no goroutine is
// left. It returns the exit code.
func (p *Pool) Main(m *testing.M) int {
	code := m.Run()
	if err := p.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "cannot stop the engine that the tests share:", err)
		code = 1
	}
	if code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
