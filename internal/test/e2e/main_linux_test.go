package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/dockerd"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/e2bservice"
)

// engines is the Docker Engine of these tests, started at its first use.
var engines dockerd.Shared

// services is the E2B service of these tests, started at its first use.
var services e2bservice.Shared

func TestMain(m *testing.M) {
	beQEMU()
	code := m.Run()
	if err := engines.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "the Docker Engine could not be stopped:", err)
		code = 1
	}
	if err := services.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "the E2B service could not be stopped:", err)
		code = 1
	}
	os.Exit(code)
}

// boundary is a driver that an operator names in SANDBOX_TYPE, besides native.
type boundary struct {
	name      string
	needs     []testenv.Requirement
	languages []string                    // that its sandboxes have
	settings  func(t *testing.T) []string // the rest of the environment
}

func boundaries() []boundary {
	return []boundary{
		{"docker", []testenv.Requirement{testenv.Docker, testenv.DebianImage}, []string{"python", "shell"}, func(t *testing.T) []string {
			return []string{"SANDBAR_DRIVERS={docker: {host: " + engines.Engine(t).Host() + "}}", "DOCKER_IMAGE=" + dockerd.Image}
		}},
		{"e2b", append(e2bservice.Needs(), testenv.Python, testenv.Node), []string{"python", "javascript", "shell"}, func(t *testing.T) []string {
			return services.Service(t).Environ()
		}},
		{"gvisor", []testenv.Requirement{testenv.UserNS, testenv.Runsc, testenv.Python, testenv.Node}, []string{"python", "javascript", "shell"}, func(*testing.T) []string {
			return []string{"SANDBAR_DRIVERS={gvisor: {runtime: " + testenv.RunscProgram() + "}}"}
		}},
		{"vm", []testenv.Requirement{testenv.TestAll, testenv.UserNS, testenv.VM}, []string{"python", "shell"}, func(t *testing.T) []string {
			return []string{vmDriver(t, nil)}
		}},
	}
}

// environ returns the environment that selects the driver of the built command.
func (b boundary) environ(t *testing.T) []string {
	t.Helper()
	return append(b.settings(t), "SANDBOX_TYPE="+b.name)
}

// vmDriver returns the setting of the driver vm for the tests' qemu, kernel and root. Options in
// more replace those; an empty one is left out.
func vmDriver(t *testing.T, more map[string]string) string {
	t.Helper()
	options, err := testenv.VMOptions()
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(options, more)
	var all []string
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if options[name] != "" {
			all = append(all, name+": "+options[name])
		}
	}
	return "SANDBAR_DRIVERS={vm: {" + strings.Join(all, ", ") + "}}"
}
