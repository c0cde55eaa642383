package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/monitor"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/qemu"
)

// A false qemu is a copy of this test binary as DIR/FAULT/bin/qemu-system-x86_64. It finds its
// fault in its own path, or in that of its firmware on the command line.

// falseQEMU runs this process as a false qemu, if it was started as one.
func falseQEMU() {
	if filepath.Base(os.Args[0]) != qemu.Program {
		return
	}
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		version := "10.0.2"
		if faultIn(os.Args[0], "bin") == "old" {
			version = "7.2.0"
		}
		fmt.Printf("QEMU emulator version %s (false)\n", version)
		os.Exit(0)
	}
	if len(os.Args) == 4 && os.Args[1] == reachProbe {
		var process int
		fmt.Sscan(os.Args[3], &process)
		tryReaches(os.Args[2], process)
	}
	var fault, control string
	for i, arg := range os.Args {
		if arg == "-L" {
			fault = faultIn(os.Args[i+1], "share")
		}
		if fd, ok := strings.CutPrefix(arg, "socket,id=qmp,fd="); ok {
			control = fd
		}
	}
	var fd int
	fmt.Sscan(control, &fd)
	qmp := os.NewFile(uintptr(fd), "qmp")
	const greeting = `{"QMP":{"version":{}}}` + "\n"
	switch fault {
	case "garbage":
		io.WriteString(qmp, "\x00\xff not JSON\n")
	case "long-line":
		for range 1000 {
			io.WriteString(qmp, strings.Repeat("x", 1000))
		}
	case "flood":
		for {
			if _, err := io.WriteString(qmp, `{"event":"MIGRATION","data":{"status":"active"}}`+"\n"); err != nil {
				break
			}
		}
	case "refuses":
		io.WriteString(qmp, greeting+`{"error":{"class":"GenericError","desc":"no such command"}}`+"\n")
	case "dies":
		io.WriteString(os.Stderr, "qemu-system-x86_64: the false qemu has died\n")
		os.Exit(1)
	}
	time.Sleep(time.Hour) // "hangs", and the others after their message
}

// faultIn returns the directory above one called parent in a path.
func faultIn(path, parent string) string {
	for ; len(path) > 1; path = filepath.Dir(path) {
		if filepath.Base(path) == parent {
			return filepath.Base(filepath.Dir(path))
		}
	}
	return ""
}

// makeFalseQEMU returns the path of a false qemu.
func makeFalseQEMU(t *testing.T, fault string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	// Every user must reach it: the monitor has a uid of its own.
	dir, err := os.MkdirTemp("", "false-qemu-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, fault, "bin", qemu.Program)
	err = errors.Join(os.Chmod(dir, 0o755), os.MkdirAll(filepath.Dir(path), 0o755), os.MkdirAll(filepath.Join(dir, fault, "share", "qemu"), 0o755),
		os.WriteFile(path, b, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestUnusableQEMU checks that a missing or old qemu is refused.
func TestUnusableQEMU(t *testing.T) {
	options := testOptions(t)
	for name, want := range map[string]struct{ path, text string }{
		"absent": {"/no/such/qemu", "there is no qemu"},
		"other":  {"/bin/true", "is not qemu"},
		"fails":  {"/bin/false", "does not tell its version"},
		"old":    {makeFalseQEMU(t, "old"), "is version 7.2; the driver needs 8.2"},
	} {
		options[OptionQEMU] = want.path
		_, err := New(driver.Host{Options: options}, agentBinary(t))
		if e := sandbar.AsError(err); err == nil || e.Code != sandbar.Unsupported || !strings.Contains(e.Message, want.text) || e.Fix == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFalseQEMU checks that a qemu that lies, hangs or dies is a typed error in bounded time, and
// that nothing of it remains.
func TestFalseQEMU(t *testing.T) {
	for fault, want := range map[string]struct {
		code sandbar.Code
		text string
	}{
		"garbage":   {sandbar.Unavailable, "malformed message"},
		"long-line": {sandbar.Unavailable, "token too long"},
		"flood":     {sandbar.Unavailable, "too many messages"},
		"refuses":   {sandbar.Unavailable, "no such command"},
		"dies":      {sandbar.Unavailable, "the false qemu has died"},
		"hangs":     {sandbar.Timeout, "deadline"},
	} {
		t.Run(fault, func(t *testing.T) {
			options := testOptions(t)
			options[OptionQEMU] = makeFalseQEMU(t, fault)
			d := newDriver(t, options)
			r := newResources(d, "false")
			bound := patience
			if want.code == sandbar.Timeout {
				bound = 3 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			err := d.Build(ctx, &r.Resources, func() error {
				if err := r.prepare(MinMemory, sandbar.Limits{}); err != nil {
					return err
				}
				f, err := os.Open(os.DevNull)
				if err != nil {
					return err
				}
				defer f.Close()
				_, err = d.monitor.Restore(ctx, r, monitor.Machine{Name: machineName(d.Owner, r.ID), Memory: MinMemory, Processors: 1, Root: f}, monitor.Snapshot{RAM: f, State: f})
				return err
			})
			if sandbar.CodeOf(err) != want.code || !strings.Contains(err.Error(), want.text) {
				t.Errorf("%v, want %s: %s", err, want.code, want.text)
			}
			if pids := monitors(t, d); len(pids) != 0 {
				t.Errorf("monitors remain: %v", pids)
			}
		})
	}
}

// monitors returns the processes of the driver's monitors.
func monitors(t *testing.T, d *Driver) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		b, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if owner, ok := ownerOf(strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")); ok && owner == d.Owner && !bytes.Contains(b, []byte("spawner")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// monitorOf returns the process of the only monitor.
func monitorOf(t *testing.T, d *Driver) int {
	t.Helper()
	pids := monitors(t, d)
	if len(pids) != 1 {
		t.Fatalf("monitors: %v, want one", pids)
	}
	return pids[0]
}

// gone checks that a machine is reported as dead, and can be destroyed.
func gone(t *testing.T, box driver.Sandbox) {
	t.Helper()
	select {
	case <-box.(driver.Watcher).Dead():
	case <-time.After(30 * time.Second):
		t.Fatal("the end of a machine is not reported")
	}
	if _, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{}); sandbar.CodeOf(err) != sandbar.Gone {
		t.Errorf("starting a program in a machine that has ended: %v, want %s", err, sandbar.Gone)
	}
}

// TestMachineEnds checks that the sudden end of a machine or of its monitor ends only its sandbox.
func TestMachineEnds(t *testing.T) {
	d := newDriver(t, testOptions(t))
	t.Run("killed", func(t *testing.T) {
		box := newBox(t, d, "killed")
		p, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"sleep", "1000"}}, driver.Stdio{})
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(monitorOf(t, d), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		gone(t, box)
		if r, err := p.Wait(); err != nil || r.Outcome != sandbar.Lost {
			t.Errorf("a program whose machine was killed: %+v, %v", r, err)
		}
	})
	t.Run("stopped", func(t *testing.T) {
		box := newBox(t, d, "stopped")
		if err := syscall.Kill(monitorOf(t, d), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := box.Start(ctx, sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{}); sandbar.CodeOf(err) != sandbar.Timeout {
			t.Errorf("starting a program in a stopped machine: %v, want %s", err, sandbar.Timeout)
		}
		if err := box.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if pids := monitors(t, d); len(pids) != 0 {
		t.Errorf("monitors remain: %v", pids)
	}
}

// TestConfinement checks the rights of a monitor process.
func TestConfinement(t *testing.T) {
	d := newDriver(t, testOptions(t))
	newBox(t, d, "confined")
	pid := monitorOf(t, d)
	proc := func(name string) string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	status := proc("status")
	for _, want := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapInh:\t0000000000000000", "CapPrm:\t0000000000000000",
		"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000"} {
		if !strings.Contains(status, want+"\n") {
			t.Errorf("the status of the monitor has no line %q", want)
		}
	}
	if d.IDs.Ranged && strings.Contains(status, "Uid:\t0\t") {
		t.Error("the monitor is root")
	}
	for _, name := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, name))
		if err != nil {
			t.Fatal(err)
		}
		if host, err := os.Readlink("/proc/self/ns/" + name); err != nil || own == host {
			t.Errorf("the monitor shares the host's %s namespace", name)
		}
	}
	for line := range strings.Lines(proc("mounts")) {
		f := strings.Fields(line)
		if !strings.HasPrefix(f[3], "ro,") && f[1] != "/proc" {
			t.Errorf("the monitor can write to %s (%s)", f[1], f[3])
		}
	}
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/root", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range names {
		if !strings.HasPrefix(e.Name(), "lib") && e.Name() != "usr" && e.Name() != "proc" && e.Name() != "etc" && !strings.HasPrefix(d.monitor.(*qemu.QEMU).Path(), "/"+e.Name()+"/") {
			t.Errorf("the monitor sees /%s", e.Name())
		}
	}
}

// TestDamagedSnapshot checks that a damaged, truncated or foreign snapshot is not restored but made
// again.
func TestDamagedSnapshot(t *testing.T) {
	options := testOptions(t)
	first := newDriver(t, options)
	newBox(t, first, "first")
	k, err := first.kind(t.Context(), spec())
	if err != nil {
		t.Fatal(err)
	}
	original := filepath.Join(first.templates.dir, k.key())
	for name, damage := range map[string]func(dir string) error{
		"byte": func(dir string) error {
			return change(filepath.Join(dir, ramName), func(f *os.File) error { _, err := f.WriteAt([]byte{0xa5, 0x5a}, 40<<20); return err })
		},
		"truncated": func(dir string) error {
			return change(filepath.Join(dir, stateName), func(f *os.File) error { return f.Truncate(1000) })
		},
		"missing": func(dir string) error { return os.Remove(filepath.Join(dir, stateName)) },
		"foreign": func(dir string) error {
			other := k
			other.Processors++
			b, err := os.ReadFile(filepath.Join(dir, infoName))
			var info snapshotInfo
			if err == nil {
				err = json.Unmarshal(b, &info)
			}
			info.Kind = other
			if err == nil {
				b, err = json.Marshal(info)
			}
			return errors.Join(err, change(filepath.Join(dir, infoName), func(f *os.File) error { return errors.Join(f.Truncate(0), second(f.Write(b))) }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(original)); err != nil {
				t.Fatal(err)
			}
			if _, err := checkTemplate(dir, k); err != nil {
				t.Fatalf("a copy of a snapshot: %v", err)
			}
			if err := damage(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := checkTemplate(dir, k); err == nil || errors.Is(err, os.ErrNotExist) {
				t.Errorf("a damaged snapshot: %v", err)
			}
		})
	}
	t.Run("made again", func(t *testing.T) {
		if err := change(filepath.Join(original, stateName), func(f *os.File) error { return f.Truncate(1000) }); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		first.Log = slog.New(slog.NewTextHandler(&log, nil))
		run(t, newBox(t, first, "again"), "true")
		if !strings.Contains(log.String(), "a snapshot is damaged and is made again") {
			t.Errorf("the log has no word of the damaged snapshot: %s", log.String())
		}
	})
}

// change changes a read-only file.
func change(path string, do func(*os.File) error) error {
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(do(f), f.Close())
}

func second(_ int, err error) error { return err }
