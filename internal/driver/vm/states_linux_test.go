package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/sandboxes"
)

// counting writes a counter that is in its memory to a file, and to an output that nobody may read.
const counting = `
import time
n = 0
while True:
    n += 1
    with open("/tmp/new", "w") as f:
        f.write(str(n))
    import os
    os.rename("/tmp/new", "/tmp/count")
    print("x" * 4096, flush=True)
    time.sleep(0.01)
`

// count reads the counter.
func count(t testing.TB, box driver.Sandbox) int {
	t.Helper()
	n := 0
	for _, c := range run(t, box, "cat", "/tmp/count") {
		n = n*10 + int(c-'0')
	}
	return n
}

// counts checks that the counter grows from at least from.
func counts(t testing.TB, box driver.Sandbox, from int) {
	t.Helper()
	first := count(t, box)
	if first < from {
		t.Errorf("the counter is at %d, and was at %d", first, from)
	}
	for end := time.Now().Add(patience); count(t, box) <= first; {
		if time.Now().After(end) {
			t.Fatalf("the counter stays at %d", first)
		}
	}
}

// startCounting starts the program in the background.
func startCounting(t testing.TB, box driver.Sandbox) driver.Process {
	t.Helper()
	p, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"python3", "-c", counting}}, driver.Stdio{Stdout: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if _, err := box.FS().Stat(t.Context(), "/tmp/count"); err == nil {
			return p
		}
		if time.Now().After(end) {
			t.Fatal("the program does not count")
		}
	}
}

// stateDir returns an empty directory for a state.
func stateDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// restoreBox restores a state, and destroys the sandbox at the test's end.
func restoreBox(t testing.TB, d *Driver, id, dir string) driver.Sandbox {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	box, err := d.Restore(ctx, sandbar.ID("sb_"+id), spec(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return box
}

// keep saves a sandbox so that it stays still, and destroys it.
func keep(t testing.TB, box driver.Sandbox, dir string) {
	t.Helper()
	committed := false
	size, err := box.(driver.Saver).Save(t.Context(), dir, driver.SaveOptions{Commit: func(int64) error { committed = true; return nil }})
	if err != nil || !committed || size < 1<<20 {
		t.Fatalf("%d bytes, committed: %v, %v", size, committed, err)
	}
	if err := box.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestFork saves a sandbox that goes on, and restores its state twice.
func TestFork(t *testing.T) {
	d := newDriver(t, testOptions(t))
	box := newBox(t, d, "source")
	startCounting(t, box)
	before := count(t, box)
	dir := stateDir(t)
	if _, err := box.(driver.Saver).Save(t.Context(), dir, driver.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	forks := []driver.Sandbox{restoreBox(t, d, "fork1", dir), restoreBox(t, d, "fork2", dir)}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, b := range append(forks, box) {
		counts(t, b, before)
		for _, line := range strings.Fields(run(t, b, "sh", "-c", "cat /etc/machine-id /proc/sys/kernel/random/boot_id /proc/sys/kernel/random/uuid; head -c 16 /dev/urandom | od -An -tx8 | tr -d ' '")) {
			if seen[line] {
				t.Errorf("two machines have %s", line)
			}
			seen[line] = true
		}
	}
	// Forks of forks have the changes of both.
	run(t, forks[0], "sh", "-c", "echo first > /tmp/mark")
	dir = stateDir(t)
	if _, err := forks[0].(driver.Saver).Save(t.Context(), dir, driver.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	again := restoreBox(t, d, "fork3", dir)
	if got := run(t, again, "cat", "/tmp/mark"); got != "first\n" {
		t.Errorf("the fork's file has %q", got)
	}
	counts(t, again, before)
	if _, err := forks[1].FS().Stat(t.Context(), "/tmp/mark"); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("another fork has the file: %v", err)
	}
}

// TestKeep saves a sandbox and restores it with another driver. What was open is cut.
func TestKeep(t *testing.T) {
	options := testOptions(t)
	d := newDriver(t, options)
	box := newBox(t, d, "kept")
	p := startCounting(t, box)
	listener, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"python3", "-c",
		"import socket\ns=socket.create_server(('127.0.0.1',99))\nopen('/tmp/listens','w')\nc,_=s.accept()\nn=len(c.recv(1))\nm=len(c.recv(1))\nopen('/tmp/cut','w').write(f'{n}{m}')"}}, driver.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	var conn io.ReadWriteCloser
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		c, err := box.(driver.Dialer).DialPort(t.Context(), 99)
		if err == nil {
			conn = c
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	input, end := io.Pipe()
	defer end.Close()
	cat, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", "cat > /tmp/input; echo end >> /tmp/input"}}, driver.Stdio{Stdin: input})
	if err != nil {
		t.Fatal(err)
	}
	w, err := box.FS().Create(t.Context(), "/tmp/pending", sandbar.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	id := run(t, box, "cat", "/etc/machine-id")
	before := count(t, box)
	dir := stateDir(t)
	keep(t, box, dir)
	for _, p := range []driver.Process{p, cat, listener} {
		if r, err := p.Wait(); err != nil || r.Outcome != sandbar.Lost {
			t.Errorf("a program of the saved sandbox: %+v, %v", r, err)
		}
	}
	if err := w.Commit(); err == nil {
		t.Error("a file of the saved sandbox could be completed")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = newDriver(t, options)
	began := time.Now()
	box = restoreBox(t, d, "kept", dir)
	t.Logf("restored in %v", time.Since(began))
	counts(t, box, before)
	if got := run(t, box, "cat", "/etc/machine-id"); got != id {
		t.Errorf("the machine id is %q, and was %q", got, id)
	}
	for path, want := range map[string]string{"/tmp/cut": "10", "/tmp/input": "end\n"} {
		for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			if got := run(t, box, "sh", "-c", "cat "+path+" 2>/dev/null || true"); got == want {
				break
			} else if time.Now().After(end) {
				t.Fatalf("%s has %q, want %q", path, got, want)
			}
		}
	}
	if got := run(t, box, "sh", "-c", "ls -A /tmp | grep -v -e count -e new -e cut -e input -e listens; true"); got != "" {
		t.Errorf("left of an unfinished file: %q", got)
	}
	var seconds float64
	before2 := time.Now()
	if err := json.Unmarshal([]byte(run(t, box, "python3", "-c", "import time; print(time.time())")), &seconds); err != nil {
		t.Fatal(err)
	}
	clock := time.Unix(0, int64(seconds*1e9))
	if clock.Before(before2.Add(-10*time.Millisecond)) || clock.After(time.Now().Add(10*time.Millisecond)) {
		t.Errorf("the clock is at %v, between %v and %v", clock, before2, time.Now())
	}
}

// TestSaveFails checks that a sandbox goes on after a save that failed.
func TestSaveFails(t *testing.T) {
	d := newDriver(t, testOptions(t))
	box := newBox(t, d, "goes-on")
	p := startCounting(t, box)
	for name, o := range map[string]driver.SaveOptions{
		"bound":  {MaxBytes: 1 << 20},
		"commit": {Commit: func(int64) error { return errors.New("no") }},
	} {
		before := count(t, box)
		_, err := box.(driver.Saver).Save(t.Context(), stateDir(t), o)
		if err == nil || name == "bound" && sandbar.CodeOf(err) != sandbar.Exhausted {
			t.Errorf("%s: %v", name, err)
		}
		counts(t, box, before)
	}
	if err := p.KillTree(); err != nil {
		t.Error(err)
	}
	if r, err := p.Wait(); err != nil || r.Outcome != sandbar.Signaled {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestBadStates checks that a state that is damaged or foreign is refused.
func TestBadStates(t *testing.T) {
	d := newDriver(t, testOptions(t))
	box := newBox(t, d, "bad")
	dir := stateDir(t)
	keep(t, box, dir)
	change := func(name string, f func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			os.Remove(path)
			if err := os.WriteFile(path, f(b), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	describe := func(f func(*stateInfo)) func(*testing.T, string) {
		return change(infoName, func(b []byte) []byte {
			var i stateInfo
			if err := json.Unmarshal(b, &i); err != nil {
				t.Fatal(err)
			}
			f(&i)
			b, _ = json.Marshal(i)
			return b
		})
	}
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, name)) }
	}
	cut := func(b []byte) []byte { return b[:len(b)-4096] }
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	for name, c := range map[string]struct {
		spoil func(*testing.T, string)
		code  sandbar.Code
	}{
		"no description":      {remove(infoName), sandbar.Gone},
		"no memory":           {remove(ramName), sandbar.Gone},
		"no devices":          {remove(stateName), sandbar.Gone},
		"memory truncated":    {change(ramName, cut), sandbar.Gone},
		"devices truncated":   {change(stateName, cut), sandbar.Gone},
		"memory damaged":      {change(ramName, flip), sandbar.Gone},
		"devices damaged":     {change(stateName, flip), sandbar.Gone},
		"description damaged": {change(infoName, func(b []byte) []byte { return b[:len(b)/2] }), sandbar.Gone},
		"description large":   {change(infoName, func(b []byte) []byte { return append(b, bytes.Repeat([]byte(" "), sandboxes.MaxDescription)...) }), sandbar.Gone},
		"digests removed":     {describe(func(i *stateInfo) { i.Memory, i.Devices = "", "" }), sandbar.Gone},
		"of another process":  {describe(func(i *stateInfo) { i.Owner = "1-2-3" }), sandbar.Gone},
		"memory is a pipe":    {func(t *testing.T, dir string) { replaceByPipe(t, filepath.Join(dir, ramName)) }, sandbar.Gone},
		"another format":      {describe(func(i *stateInfo) { i.Format++ }), sandbar.Unsupported},
		"another generation":  {describe(func(i *stateInfo) { i.Generation-- }), sandbar.Unsupported},
		"another qemu":        {describe(func(i *stateInfo) { i.Kind.Monitor.Build = "QEMU emulator version 7.0" }), sandbar.Unsupported},
		"another accelerator": {describe(func(i *stateInfo) { i.Kind.Monitor.Accelerator = "kvm" }), sandbar.Unsupported},
		"another memory":      {describe(func(i *stateInfo) { i.Kind.Memory *= 2 }), sandbar.Gone},
		"no root": {func(t *testing.T, dir string) {
			remove(rootName)(t, dir)
			describe(func(i *stateInfo) { i.Linked = true })(t, dir)
		}, sandbar.Unsupported},
		"root of another size":  {describe(func(i *stateInfo) { i.RootSize++ }), sandbar.Unsupported},
		"root at another place": {describe(func(i *stateInfo) { i.Linked, i.RootPath = false, "/nowhere/root" }), sandbar.Unsupported},
	} {
		t.Run(name, func(t *testing.T) {
			bad := filepath.Join(t.TempDir(), "state")
			if err := os.Mkdir(bad, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{infoName, ramName, stateName, rootName} {
				err := os.Link(filepath.Join(dir, name), filepath.Join(bad, name))
				if err != nil && !(name == rootName && errors.Is(err, os.ErrNotExist)) { // a root of another user is not linked
					t.Fatal(err)
				}
			}
			c.spoil(t, bad)
			box, err := d.Restore(t.Context(), "sb_spoilt", spec(), bad)
			if err == nil {
				box.Destroy(context.Background())
			}
			if e := sandbar.AsError(err); sandbar.CodeOf(err) != c.code || e.Fix == "" {
				t.Errorf("%v (%s), want %s and a next step", err, sandbar.CodeOf(err), c.code)
			}
		})
	}
	other := spec()
	other.Limits.Memory *= 2
	if _, err := d.Restore(t.Context(), "sb_spoilt", other, dir); sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("another Spec: %v", err)
	}
	// Devices with a right digest that are nonsense: the monitor refuses them, and nothing is left.
	var sum string
	change(stateName, func(b []byte) []byte { return bytes.Repeat([]byte("nonsense"), len(b)/8) })(t, dir)
	f, err := os.Open(filepath.Join(dir, stateName))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if sum, err = digestFile(f); err != nil {
		t.Fatal(err)
	}
	describe(func(i *stateInfo) { i.Devices = sum })(t, dir)
	if _, err := d.Restore(t.Context(), "sb_spoilt", spec(), dir); err == nil {
		t.Error("nonsense was restored")
	}
}

func replaceByPipe(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// TestSaveBusy saves while files and output move, a few times at once.
func TestSaveBusy(t *testing.T) {
	d := newDriver(t, testOptions(t))
	box := newBox(t, d, "busy")
	p := startCounting(t, box)
	dirs := []string{stateDir(t), stateDir(t), stateDir(t)}
	var wg sync.WaitGroup
	for _, dir := range dirs {
		wg.Go(func() {
			if _, err := box.(driver.Saver).Save(t.Context(), dir, driver.SaveOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	content := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	for range 5 {
		if err := driver.WriteFile(t.Context(), box.FS(), "/tmp/file", content); err != nil {
			t.Error(err)
		}
		f, err := box.FS().Open(t.Context(), "/tmp/file")
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(f)
		f.Close()
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
	wg.Wait()
	for i, dir := range dirs {
		counts(t, restoreBox(t, d, "busy"+string(rune('0'+i)), dir), 1)
	}
	if err := p.Signal(9); err != nil {
		t.Error(err)
	}
	p.Wait()
}

// BenchmarkFork measures how long a machine of 512 MiB stands still while it is saved.
func BenchmarkFork(b *testing.B) {
	d := newDriver(b, testOptions(b))
	s := spec()
	s.Limits.Memory = 512 << 20
	box, err := d.Create(b.Context(), "sb_fork", s)
	if err != nil {
		b.Fatal(err)
	}
	defer box.Destroy(context.Background())
	startCounting(b, box)
	var all []time.Duration
	for b.Loop() {
		dir := stateDir(b)
		if _, err := box.(driver.Saver).Save(b.Context(), dir, driver.SaveOptions{}); err != nil {
			b.Fatal(err)
		}
		all = append(all, box.(*sandbox).r.saves.stopped)
		os.RemoveAll(dir)
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "stopped-ms-p50")
	b.ReportMetric(float64(all[len(all)-1].Microseconds())/1000, "stopped-ms-max")
}
