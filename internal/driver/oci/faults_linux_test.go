package oci

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/image"
	"github.com/sandbar-dev/sandbar/internal/linux/sandboxes"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// In a child process the test binary is a runtime that fails in the way that an argument selects.
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
	case slices.Contains(args, "--empty"):
		os.Exit(0)
	case slices.Contains(args, "--leave"): // a process in another session, which only the PID namespace ends
		attr := &os.ProcAttr{Env: []string{}, Files: []*os.File{nil, nil, os.Stderr}, Sys: &syscall.SysProcAttr{Setsid: true}}
		hang := []string{string(kindRunc), "--root", "", "--hang", args[len(args)-1]}
		if _, err := os.StartProcess("/proc/self/exe", hang, attr); err != nil {
			os.Stderr.WriteString(err.Error())
		}
		os.Exit(0)
	case slices.Contains(args, "--lie"): // it sends an agent's Hello, and then invalid frames
		hello := wire.Hello{Generation: wire.Generation}
		b := wire.AppendHeader(nil, wire.Header{Length: 4, Type: wire.TypeHello})
		unix.Write(wire.StageSocketFD, hello.Append(b))
		unix.Write(wire.StageSocketFD, []byte(strings.Repeat("\xff", 1<<20)))
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

// newDriver opens a driver with a runtime that fails in the way how.
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
	d.runtimeFile.Close()
	if d.runtimeFile, err = os.Open(self); err != nil {
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

// If the runtime fails, hangs or sends invalid data, Create fails before its deadline, its error
// has the runtime's message, and no process is left.
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
		{"--empty", time.Minute, sandbar.Internal, ""},
		{"--leave", time.Minute, sandbar.Internal, ""},
		{"--lie", time.Minute, sandbar.Gone, ""},
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

// The descriptors that a stage replaces are in use when it starts, so that Go's runtime cannot have
// one of them for its epoll instance.
func TestStageDescriptors(t *testing.T) {
	d := newDriver(t, "")
	r := &resources{Resources: sandboxes.Resources{ID: sandbar.NewID()}, d: d}
	stop := errors.New("enough")
	err := d.Build(t.Context(), &r.Resources, func() error {
		if err := r.TakeRange(); err != nil {
			return err
		}
		conn, err := r.Boot(d.IDs.Request(agent.ModeStage, r.Range, 0))
		if err != nil {
			return err
		}
		defer conn.Close()
		stages := processesOf(d, agent.ModeStage)
		if len(stages) != 1 {
			t.Fatalf("stages: %v", stages)
		}
		for fd := wire.StageSocketFD + 1; fd <= wire.StageAgentFD; fd++ {
			if to, err := os.Readlink(filepath.Join(stages[0], "fd", strconv.Itoa(fd))); to != os.DevNull {
				t.Errorf("descriptor %d is %q, %v", fd, to, err)
			}
		}
		return stop
	})
	if !errors.Is(err, stop) {
		t.Error(err)
	}
	nothingLeft(t, d)
}

// A program whose --version hangs, fails or prints without end is refused within the time limit. No
// process of it is left.
func TestRuntimeThatLiesOfItsVersion(t *testing.T) {
	for name, c := range map[string]struct{ does, says string }{
		"without end":      {"while :; do echo runc version 1; done", "signal"},
		"hangs":            {"sleep 1000", "signal"},
		"leaves a process": {"echo runc version 1; sleep 1000 & exit 0", "still runs"},
		"fails":            {"exit 3", "exit status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "runtime")
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"+c.does+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			said, err := askVersion(path, time.Second)
			if err == nil || !strings.Contains(err.Error(), c.says) || len(said) > maxVersion {
				t.Errorf("%d bytes, %v; want an error with %q", len(said), err, c.says)
			}
		})
	}
	for _, says := range []string{"", "docker version 1", "{\"kind\":", strings.Repeat("x", 1<<20), "\xff\x00runc"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "runtime")
		err := os.WriteFile(filepath.Join(dir, "says"), []byte(says), 0o644)
		if err == nil {
			err = os.WriteFile(path, []byte("#!/bin/sh\ncat "+dir+"/says\n"), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = openRuntime(path, nil, []kind{kindRunc})
		if e := sandbar.AsError(err); sandbar.CodeOf(err) != sandbar.Unsupported || e.Fix == "" || len(err.Error()) > 1000 {
			t.Errorf("%.20q: %v", says, err)
		}
	}
}

// A runtime that is not a program is refused with that reason.
func TestRuntimeIsNoProgram(t *testing.T) {
	d := newDriver(t, "")
	text, err := os.Open("faults_linux_test.go")
	if err != nil {
		t.Fatal(err)
	}
	d.runtimeFile.Close()
	d.runtimeFile = text
	if _, err := d.Create(t.Context(), sandbar.NewID(), spec()); sandbar.CodeOf(err) != sandbar.Unsupported || !strings.Contains(err.Error(), "start the runtime") {
		t.Errorf("Create: %v", err)
	}
	nothingLeft(t, d)
}

// nothingLeft checks that no resource of a sandbox is left.
func nothingLeft(t *testing.T, d *Driver) {
	t.Helper()
	for _, parent := range d.Groups.Parents() {
		left, _ := filepath.Glob(parent + "/" + d.Owner + ".*")
		if len(left) > 0 {
			t.Errorf("control groups are left: %q", left)
		}
	}
	if left := processesOf(d, ""); len(left) > 0 {
		t.Errorf("processes are left: %q", left)
	}
	if ids := d.Registry.IDs(); len(ids) != 0 {
		t.Errorf("ids are taken: %v", ids)
	}
}

// processesOf returns the directories in /proc of a driver's processes besides its spawner: those
// of a mode or, with "", all.
func processesOf(d *Driver, mode string) (dirs []string) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		b, err := os.ReadFile(dir + "/cmdline")
		args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
		if owner, ok := ownerOf(args); err == nil && ok && owner == d.Owner && !slices.Contains(args, agent.ModeSpawner) && (mode == "" || slices.Contains(args, mode)) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}
