package e2b

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/e2bservice"
)

// urlEnv is the environment variable with the service's URL, for a test binary that is a daemon.
const urlEnv = "E2B_TEST_URL"

// shared is the service of all tests.
var shared e2bservice.Shared

func TestMain(m *testing.M) {
	code := m.Run()
	if err := shared.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "the service:", err)
		code = 1
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// serviceURL returns the URL of the tests' service.
func serviceURL(t testing.TB) string {
	t.Helper()
	if u := os.Getenv(urlEnv); u != "" {
		return u
	}
	return shared.Service(t).URL
}

// agentBinary is the agent as `make build` builds it.
func agentBinary(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile(testenv.Build(t, "cmd/sandbar-agent"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// serviceOptions are the options for a service at one URL.
func serviceOptions(url string) map[string]string {
	return map[string]string{optionKey: e2bservice.Key, optionAPIURL: url, optionSandboxURL: url}
}

// newDriver opens a driver. It is closed at the test's end.
func newDriver(t testing.TB, url string) *Driver {
	t.Helper()
	d, err := New(driver.Host{Options: serviceOptions(url)}, agentBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// spec returns a Spec with all defaults that the driver enforces.
func spec() sandbar.Spec {
	u := int64(sandbar.Unlimited)
	return sandbar.Spec{Image: sandbar.ImageHost, Network: sandbar.NetworkNone, Limits: sandbar.Limits{
		Memory: u, CPUs: sandbar.Unlimited, PIDs: 64, Disk: u, Inodes: u, Files: 256}}
}
