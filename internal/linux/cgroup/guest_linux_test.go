package cgroup

import (
	"context"
	"fmt"
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

// TestGuest runs the tests called TestHost… in guests: as root and as a user with a delegated group
// on version 2, and as root on version 1 with cpu and cpuacct in one hierarchy. After each command
// no group is left. Without TESTENV_LONG it leaves out the version that the host has.
func TestGuest(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.QEMU)
	dir := t.TempDir()
	build := exec.Command("go", "test", "-c", "-o", filepath.Join(dir, "cgroup.test"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// The guest has no sources, and so no cache beside them.
	env := []string{"PATH=/usr/bin:/bin", "HOME=/tmp", "TMPDIR=/tmp", "SANDBAR_CACHE=/nonexistent"}
	// run runs tests as a user in a group, which belongs to the user if delegated.
	run := func(tests, cgroup string, uid uint32) guestplan.Command {
		return guestplan.Command{
			Args: []string{"/test/cgroup.test", "-test.run=^TestHost(" + tests + ")$", "-test.v", "-test.timeout=14m"},
			Env:  env, Cgroup: cgroup, UID: uid, GID: uid, Delegate: uid != 0,
			Timeout: 15 * time.Minute,
		}
	}
	// Lists the remaining groups: only the one that the guest made for the command.
	traces := guestplan.Command{Args: []string{"/bin/sh", "-c", "find /sys/fs/cgroup -mindepth 1 -type d -name '*sandbar*' ! -name sandbar.service; " +
		"find /sys/fs/cgroup -name cgroup.procs -path '*sandbar.service*' -exec cat {} +"}}
	// In a group with other processes, as from a shell: the groups are made in its parent.
	crowded := run("", "/user.slice/session.scope", 0)
	crowded.Args = []string{"/bin/sh", "-c", "/test/cgroup.test -test.run='^TestHost(Detect|Start|Leftovers)$' -test.v; exit $?"}
	// Not delegated: no controller can be used, and each has a reason.
	refused := run("Detect", "/user.slice/login.scope", 1000)
	refused.Delegate = false
	const all, limits = ".*", "Detect|Memory|PIDs|CPUs|Start|DestroyKills|Close"

	for _, tt := range []struct {
		name     string
		layout   guestplan.Layout
		tested   func() bool // on this host
		commands []guestplan.Command
	}{
		{"v2", guestplan.V2, testenv.CgroupV2.Met, []guestplan.Command{run(all, "", 0), run("Detect|Start|Close", "/system.slice/sandbar.service", 0),
			run(all, "/user.slice/sandbar.service", 1000), crowded, refused}},
		{"v1", guestplan.V1, testenv.CgroupV1.Met, []guestplan.Command{run(limits, "", 0)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.tested() { // by the tests called TestHost on this host
				testenv.Need(t, testenv.TestAll)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			var commands []guestplan.Command
			for _, c := range tt.commands {
				commands = append(commands, c, traces)
			}
			results, err := qemu.Run(ctx, qemu.Guest{
				Cgroups:  tt.layout,
				Shares:   map[string]string{"/test": dir},
				Commands: commands,
			})
			if err != nil {
				t.Error(err)
			}
			for i, c := range tt.commands {
				checkRun(t, c, results[2*i])
				if left := results[2*i+1]; left.Err() != nil || left.Output != "" {
					t.Errorf("left after user %d in %q: %s%v", c.UID, c.Cgroup, left.Output, left.Err())
				}
			}
		})
	}
}

var (
	passedLine  = regexp.MustCompile(`(?m)^--- PASS: (\w+)`)
	skippedLine = regexp.MustCompile(`(?m)^\s*--- SKIP.*\n.*`)
)

// checkRun checks that tests ran, that all passed and none was skipped.
func checkRun(t *testing.T, c guestplan.Command, r qemu.Result) {
	t.Helper()
	where := fmt.Sprintf("user %d in %q", c.UID, c.Cgroup)
	if err := r.Err(); err != nil {
		t.Errorf("%s: %v\n%s", where, err, r.Output)
		return
	}
	if skipped := skippedLine.FindString(r.Output); skipped != "" {
		t.Errorf("%s: %s", where, skipped)
	}
	passed := passedLine.FindAllStringSubmatch(r.Output, -1)
	if len(passed) == 0 {
		t.Errorf("%s: no test ran:\n%s", where, r.Output)
	}
	for _, p := range passed {
		t.Logf("%s: %s", where, p[1])
	}
}
