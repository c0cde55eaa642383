package oci

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/image"
	"github.com/sandbar-dev/sandbar/internal/testenv"
)

// The test binary plays runtimes that fail, told how by an argument of the
// operator's.
func TestMain(m *testing.M) {
	image.Main()
	if len(os.Args) > 2 && os.Args[0] == string(kindRunc) && os.Args[1] == "--root" {
		playRuntime(os.Args)
	}
	os.Exit(m.Run())
}

func playRuntime(args []string) {
	switch {
	case slices.Contains(args, "--hang"):
		time.Sleep(time.Hour)
	case slices.Contains(args, "--chatter"):
		unix.Write(wire.StageSocketFD, []byte(strings.Repeat("not the agent's protocol", 1000)))
		time.Sleep(time.Hour)
	case slices.Contains(args, "--flood"):
		for {
			if _, err := os.Stderr.WriteString("it does not work; "); err != nil {
				break
			}
			if info, err := os.Stat("/tmp/bundle/config.json"); err != nil || info.Size() == 0 {
				os.Stderr.WriteString("no bundle")
			}
		}
	}
	os.Stderr.WriteString("the moon is in the wrong quarter\n")
	os.Exit(1)
}

// newDriver makes a driver of a runtime that does what how says.
func newDriver(t *testing.T, how string) *Driver {
	t.Helper()
	testenv.Need(t, testenv.UserNS, testenv.Runc)
	d, err := New(driver.Host{Options: map[string]string{optionRuntime: "runc"}}, Name, agentBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d.program.Close()
	if d.program, err = os.Open(self); err != nil {
		t.Fatal(err)
	}
	d.runtime = &runtime{kind: kindRunc, args: []string{how}}
	return d
}

func spec() sandbar.Spec {
	return sandbar.Spec{Image: sandbar.ImageHost, Network: sandbar.NetworkNone, AllowDegraded: true, Limits: sandbar.Limits{
		Memory: 128 << 20, CPUs: sandbar.Unlimited, CPUShares: 512, PIDs: 64, Disk: 64 << 20, Inodes: 4096, Files: 256,
	}}
}

// A runtime that fails, hangs, says what it should not or never stops complaining
// is an error in time that repeats what it said, and nothing is left of it.
func TestFailingRuntime(t *testing.T) {
	for _, c := range []struct {
		how    string
		within time.Duration
		code   sandbar.Code
		says   string
	}{
		{"--fail", time.Minute, sandbar.Unsupported, "the moon is in the wrong quarter"},
		{"--hang", time.Second, sandbar.Timeout, ""},
		{"--chatter", time.Minute, sandbar.Internal, ""},
		{"--flood", time.Second, sandbar.Timeout, ""},
	} {
		t.Run(c.how, func(t *testing.T) {
			d := newDriver(t, c.how)
			ctx, cancel := context.WithTimeout(t.Context(), c.within)
			defer cancel()
			_, err := d.Create(ctx, sandbar.NewID(), spec())
			if sandbar.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Create: %v, want %s with %q", err, c.code, c.says)
			}
			nothingLeft(t, d)
		})
	}
}

// A runtime that is no program is an error that says so.
func TestRuntimeIsNoProgram(t *testing.T) {
	d := newDriver(t, "")
	text, err := os.Open("faults_linux_test.go")
	if err != nil {
		t.Fatal(err)
	}
	d.program.Close()
	d.program = text
	if _, err := d.Create(t.Context(), sandbar.NewID(), spec()); sandbar.CodeOf(err) != sandbar.Unsupported || !strings.Contains(err.Error(), "start the runtime") {
		t.Errorf("Create: %v", err)
	}
	nothingLeft(t, d)
}

// nothingLeft looks for what a sandbox consists of.
func nothingLeft(t *testing.T, d *Driver) {
	t.Helper()
	for _, parent := range d.cgroups.Parents() {
		left, _ := filepath.Glob(parent + "/" + d.owner + ".*")
		if len(left) > 0 {
			t.Errorf("control groups are left: %q", left)
		}
	}
	comms, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range comms {
		b, err := os.ReadFile(file)
		args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
		if owner, ok := owned(args); err == nil && ok && owner == d.owner && !slices.Contains(args, "spawner") {
			t.Errorf("a process is left: %q", args)
		}
	}
	if ids := d.roster.IDs(); len(ids) != 0 {
		t.Errorf("ids are taken: %v", ids)
	}
}
