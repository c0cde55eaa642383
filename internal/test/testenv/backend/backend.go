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

// Over is the name of the test below which others run over further drivers.
const Over = "TestOver"

// Pool makes drivers for the tests of one package. The zero value is ready to
// use, once its Main is called by TestMain.
type Pool struct{ shared }

// backend is a driver that tests run over. The list, backends, begins with that
// of tests that are not below Over.
type backend struct {
	name  string
	needs []testenv.Requirement
	later bool     // all of it is left to "make test-all": what is special about it is special about another, too
	lacks []string // languages that its sandboxes do not have, though the host may
	make  func(s *shared, t testing.TB, h driver.Host, agent []byte) (driver.Driver, error)
}

// of is the backend that a test with this name runs over.
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

// Name is the name of the driver that New makes for a test.
func Name(t testing.TB) string { return of(t.Name()).name }

// Has reports whether sandboxes of the driver that New makes for a test have a
// language, if the host has it: an image has only what was put into it.
func Has(t testing.TB, language string) bool {
	return !slices.Contains(of(t.Name()).lacks, language)
}

// New makes a driver for a test. It skips the test where this host cannot run the
// driver.
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

// dir is a directory for a driver: a short name, since sockets may lie in it.
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

// Case is a test that is run over other drivers than native, too.
type Case struct {
	Name string
	Run  func(*testing.T)
	// Later: it takes long, and is left to "make test-all".
	Later bool
	// Otherwise names the drivers over which the test is not the same, and why;
	// it is not run there.
	Otherwise map[string]string
}

// Over runs the cases over every driver but native. t is the test called Over.
func (p *Pool) Over(t *testing.T, cases []Case) {
	if t.Name() != Over {
		t.Fatalf("this test is called %s, not %s", t.Name(), Over)
	}
	for _, b := range backends()[1:] {
		t.Run(b.name, func(t *testing.T) {
			if b.later && !testenv.Long() {
				return
			}
			testenv.Need(t, b.needs...)
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

// Main runs the tests of a package, ends what they shared, and checks that
// nothing runs on. It returns the exit code.
func (p *Pool) Main(m *testing.M) int {
	code := m.Run()
	if err := p.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "what the tests shared could not be ended:", err)
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
