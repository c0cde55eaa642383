package docker

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/dockerd"
)

// hostEnv is the environment variable with the engine's address, for a test binary that is a
// daemon.
const hostEnv = "DOCKER_TEST_HOST"

// shared is the engine of most tests. It lives as long as the test binary, because starting an
// engine and sending an image to it takes seconds.
var shared dockerd.Shared

func TestMain(m *testing.M) {
	code := m.Run()
	if err := shared.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "the engine could not be stopped:", err)
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

// engineHost returns the address of the tests' engine.
func engineHost(t testing.TB) string {
	t.Helper()
	if host := os.Getenv(hostEnv); host != "" {
		return host
	}
	return shared.Engine(t).Host()
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

// newDriver opens a driver for an engine. It is closed at the test's end.
func newDriver(t testing.TB, host string, more ...func(*driver.Host)) *Driver {
	t.Helper()
	h := driver.Host{Options: map[string]string{optionHost: host, optionImage: dockerd.Image}}
	for _, f := range more {
		f(&h)
	}
	d, err := New(h, agentBinary(t))
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

// spec returns a Spec with all defaults.
func spec() sandbar.Spec {
	return sandbar.Spec{Image: sandbar.ImageHost, Network: sandbar.NetworkNone, Limits: sandbar.Limits{
		Memory: 128 << 20, CPUs: sandbar.Unlimited, CPUShares: 512, PIDs: 64, Disk: 64 << 20, Inodes: 4096, Files: 256}}
}

// traces lists the objects of sandboxes on the engine.
func traces(e *dockerd.Engine) []string {
	names, err := e.Containers(context.Background())
	if err != nil {
		return []string{err.Error()}
	}
	return names
}
