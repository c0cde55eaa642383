package native

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/qemu"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/qemu/guestplan"
)

// guestTests are the tests that depend on the layout of cgroups. CPU time is not among them,
// because it cannot be measured in an emulated machine; internal/linux/cgroup tests it in other
// guests.
const guestTests = "^(TestConformance|TestKilledDaemon|TestAgentKilled)$/^(setup|limits)$/^(memory|pids)"

// TestGuest runs the driver with cgroup v2, as a user with a delegated cgroup and, with
// TESTENV_LONG, as root.
func TestGuest(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.QEMU, testenv.Python)
	dir := t.TempDir()
	build := exec.Command("go", "test", "-c", "-o", filepath.Join(dir, "native.test"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Mkdir(filepath.Join(dir, "bin-test"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bin-test", "cmd-sandbar-agent"), agentBinary(t), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(cgroup string, uid uint32) guestplan.Command {
		return guestplan.Command{
			Args: []string{"/test/native.test", "-test.run", guestTests, "-test.v", "-test.short", "-test.timeout=170s"},
			Env: []string{"PATH=/usr/bin:/bin", "HOME=/tmp", "TMPDIR=/tmp", "TESTENV_PREBUILT=1", "TESTENV_CACHE=/test",
				goldenEnv + "=none"},
			Cgroup: cgroup, UID: uid, GID: uid, Delegate: uid != 0,
			Timeout: 3 * time.Minute,
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	commands := []guestplan.Command{run("/user.slice/sandbar.service", 1000)}
	if testenv.Long() {
		commands = append(commands, run("/system.slice/sandbar.service", 0))
	}
	results, err := qemu.Run(ctx, qemu.Guest{Cgroups: guestplan.V2, Shares: map[string]string{"/test": dir}, Commands: commands})
	if err != nil {
		t.Error(err)
	}
	for i, c := range commands {
		if err := results[i].Err(); err != nil {
			t.Errorf("user %d: %v\n%s", c.UID, err, results[i].Output)
			continue
		}
		for _, limit := range []string{"memory", "pids"} {
			if !regexp.MustCompile(`(?m)^ +--- PASS: TestConformance/limits/` + limit).MatchString(results[i].Output) {
				t.Errorf("user %d: the test of %s did not pass:\n%s", c.UID, limit, results[i].Output)
			}
		}
	}
}
