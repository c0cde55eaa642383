package native

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// guestShare makes a directory with this package's tests and their golden files, for a guest.
func guestShare(t *testing.T) string {
	t.Helper()
	testenv.Need(t, testenv.Root, testenv.QEMUNewer, testenv.Python)
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
	if err := os.CopyFS(filepath.Join(dir, "testdata"), os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The time limits of a command in a guest. They are for slow hosts with other work: alone on a
// fast one, the commands of TestGuest take two minutes together.
const guestTime, longGuestTime = 15 * time.Minute, 2 * time.Hour

// inGuest runs tests of guestShare as a user in a group, which belongs to the user.
func inGuest(tests, cgroup string, uid uint32, limit time.Duration) guestplan.Command {
	return guestplan.Command{
		Args: []string{"/test/native.test", "-test.run", tests, "-test.v", "-test.short", "-test.timeout=" + (limit - 10*time.Second).String()},
		Env: []string{"PATH=/usr/bin:/bin", "HOME=/tmp", "TMPDIR=/tmp", "TESTENV_PREBUILT=1", "TESTENV_CACHE=/test",
			guestEnv + "=1"},
		Dir:    "/test",
		Cgroup: cgroup, UID: uid, GID: uid, Delegate: uid != 0,
		Timeout: limit,
	}
}

// The cgroups of the users in guests.
const rootGroup, userGroup = "/system.slice/sandbar.service", "/user.slice/sandbar.service"

// The tests of slots for guests. A program of the skipped one must write within the time in which
// output is still read after another one's end. The emulated processor is too slow for that.
const (
	slotTests   = "EqualsAgent|Strangers|Network|NewIDs|Errors|Programs|Killed"
	slotSkipped = "TestSlotPrograms/orphans"
	onceTests   = "EqualsCold|Slots"
)

// guestRun is a command in a guest, and the names of tests that must pass in it.
type guestRun struct {
	guestplan.Command
	passes []string
}

// passes lists the tests of an alternative.
func passes(prefix, alternative string) (names []string) {
	for name := range strings.SplitSeq(alternative, "|") {
		names = append(names, prefix+name)
	}
	return names
}

// TestGuest runs the driver with cgroup v2, as a user with a delegated cgroup and as root, who has
// slots there since Linux 6.12.
func TestGuest(t *testing.T) {
	slots := inGuest("^TestSlot("+slotTests+")$", rootGroup, 0, guestTime)
	slots.Args = append(slots.Args, "-test.skip="+slotSkipped)
	runGuest(t, []guestRun{
		{inGuest(guestTests, userGroup, 1000, guestTime), guestLimits()},
		{slots, passes("TestSlot", slotTests)},
		{inGuest("^TestOnceFork("+onceTests+")$", rootGroup, 0, guestTime), passes("TestOnceFork", onceTests)},
	})
}

// TestGuestLong runs what takes longer there.
func TestGuestLong(t *testing.T) {
	testenv.Need(t, testenv.TestAll)
	runGuest(t, []guestRun{
		{inGuest("^TestSlotEscapes$", rootGroup, 0, longGuestTime), []string{"TestSlotEscapes"}},
		{inGuest(guestTests, rootGroup, 0, guestTime), guestLimits()},
		{inGuest("^TestCorpus$", userGroup, 1000, longGuestTime), []string{"TestCorpus"}},
		{inGuest("^TestCorpus$", rootGroup, 0, longGuestTime), []string{"TestCorpus"}},
	})
}

// TestGuestConformance runs the whole conformance suite there.
func TestGuestConformance(t *testing.T) {
	testenv.Need(t, testenv.TestAll)
	runGuest(t, []guestRun{
		{inGuest("^TestConformance$", rootGroup, 0, longGuestTime), []string{"TestConformance"}},
		{inGuest("^TestConformance$", userGroup, 1000, longGuestTime), []string{"TestConformance"}},
	})
}

func guestLimits() []string {
	return []string{"TestConformance/limits/memory", "TestConformance/limits/pids"}
}

// runGuest runs commands in a guest.
func runGuest(t *testing.T, runs []guestRun) {
	t.Helper()
	dir := guestShare(t)
	limit := time.Minute // for the start
	var commands []guestplan.Command
	for _, r := range runs {
		commands = append(commands, r.Command)
		limit += r.Timeout
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	results, err := qemu.Run(ctx, qemu.Guest{Kernel: testenv.QEMUNewerKernel(), Cgroups: guestplan.V2, Memory: 3072, Shares: map[string]string{"/test": dir}, Commands: commands})
	if err != nil {
		t.Error(err)
	}
	for i, r := range runs {
		if err := results[i].Err(); err != nil {
			t.Errorf("user %d: %v\n%s", r.UID, err, results[i].Output)
			continue
		}
		for _, name := range r.passes {
			if !strings.Contains(results[i].Output, "--- PASS: "+name+" ") {
				t.Errorf("user %d: %s did not pass:\n%s", r.UID, name, results[i].Output)
			}
		}
	}
}
