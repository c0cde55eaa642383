package v86

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/wasm/v86/worker"
)

// A program has separate output streams, an exit code or signal, input, an environment and a
// working directory.
func TestPrograms(t *testing.T) {
	box := newBox(t)
	if r := run(t, box, "echo out; echo err >&2; exit 3"); r.stdout != "out\n" || r.stderr != "err\n" || r.ExitCode != 3 || r.Outcome != sandbar.Exited {
		t.Errorf("%+v", r)
	}
	if r := run(t, box, "kill -SEGV $$"); r.Outcome != sandbar.Signaled || r.Signal != int(syscall.SIGSEGV) {
		t.Errorf("%+v", r)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out bytes.Buffer
	p, err := box.Start(ctx, sandbar.Cmd{Args: []string{"sh", "-c", "cat; pwd; echo $A $B"}, Dir: "/tmp", Env: map[string]string{"B": "program's"}},
		driver.Stdio{Stdin: strings.NewReader("input\n"), Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := p.Wait(); err != nil || r.ExitCode != 0 || out.String() != "input\n/tmp\nsandbox's program's\n" {
		t.Errorf("%+v, %v, %q", r, err, out.String())
	}
	if _, err := box.Start(ctx, sandbar.Cmd{Args: []string{"/no/such/program"}}, driver.Stdio{}); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("a program that is not there: %v", err)
	}
	if _, err := box.Start(ctx, sandbar.Cmd{Args: []string{"true"}, Dir: "/no/such/dir"}, driver.Stdio{}); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("a directory that is not there: %v", err)
	}
}

// Files larger than all buffers are transferred in both directions.
func TestFiles(t *testing.T) {
	box := newBox(t)
	fs := box.FS()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	sent := make([]byte, 600_000)
	_, _ = rand.Read(sent)
	w, err := fs.Create(ctx, "/tmp/a/b", sandbar.CreateOptions{Mode: 0o640, Parents: true})
	if err == nil {
		_, err = w.Write(sent)
	}
	if err == nil {
		err = w.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	if r := run(t, box, "cp /tmp/a/b /tmp/a/c && wc -c </tmp/a/c && stat -c %a /tmp/a/b"); r.stdout != "600000\n640\n" {
		t.Errorf("%+v", r)
	}
	f, err := fs.Open(ctx, "/tmp/a/c")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came back otherwise (%v)", len(got), err)
	}
	if _, err := fs.Open(ctx, "/tmp/none"); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("a file that is not there: %v", err)
	}
}

// A reset ends all programs and restores the files, repeatedly, and the clock is correct
// afterwards.
func TestReset(t *testing.T) {
	box := newBox(t)
	for range 2 {
		busy, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", "while :; do :; done"}}, driver.Stdio{})
		if err != nil {
			t.Fatal(err)
		}
		if r := run(t, box, "ls; echo x >kept; rm /etc/passwd; (sleep 100000 &) >/dev/null 2>&1; ls"); r.stdout != "kept\n" {
			t.Errorf("%+v", r)
		}
		if err := box.(driver.Resetter).Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r, err := busy.Wait(); err != nil || r.Outcome != sandbar.Signaled || r.Signal != 9 {
			t.Errorf("what ran ended with %+v, %v", r, err)
		}
		if err := busy.KillTree(); err != nil {
			t.Errorf("ending what is gone: %v", err)
		}
		r := run(t, box, "ls; ls /etc/passwd; ps | grep -c '[s]leep 100000'; date +%s")
		lines := strings.Split(r.stdout, "\n")
		if len(lines) != 4 || lines[0] != "/etc/passwd" || lines[1] != "0" {
			t.Fatalf("after the reset: %+v", r)
		}
		seconds, err := strconv.ParseInt(lines[2], 10, 64)
		if off := time.Since(time.Unix(seconds, 0)).Abs(); err != nil || off > time.Hour {
			t.Errorf("the guest's clock is %v off (%v)", off, err)
		}
	}
	if n, err := box.(driver.CurrentMemory).CurrentMemory(t.Context()); err != nil || n < 1<<20 || n > testMemory {
		t.Errorf("%d bytes of memory are used, %v", n, err)
	}
}

// A program that ignores signals is killed, with all programs that it started.
func TestKillTree(t *testing.T) {
	box := newBox(t)
	var out bytes.Buffer
	p, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", "trap '' TERM INT HUP; (setsid sh -c 'while :; do sleep 100000; done' &) ; echo on; while :; do :; done"}}, driver.Stdio{Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	const sleeping = "grep -lx sleep /proc/[0-9]*/comm 2>/dev/null | wc -l"
	for begun := time.Now(); run(t, box, sleeping).stdout != "1\n"; {
		if time.Since(begun) > patience {
			t.Fatal("it has not begun")
		}
	}
	if err := p.Signal(int(syscall.SIGTERM)); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(int(syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	if r, err := p.Wait(); err != nil || r.Outcome != sandbar.Signaled || r.Signal != 9 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := p.KillTree(); err != nil {
		t.Fatal(err)
	}
	if r := run(t, box, sleeping); r.stdout != "0\n" {
		t.Errorf("left over: %+v", r)
	}
}

// A machine is lost if its worker dies or its kernel crashes. The next one starts normally.
func TestMachineDies(t *testing.T) {
	script := func(box driver.Sandbox, text string) {
		// The request may fail before or after the machine's end.
		_, _ = box.Start(context.Background(), sandbar.Cmd{Args: []string{"sh", "-c", text}}, driver.Stdio{})
	}
	for name, end := range map[string]func(driver.Sandbox){
		"worker": func(box driver.Sandbox) { box.(*sandbox).b.worker.Kill() },
		"halted": func(box driver.Sandbox) { script(box, "halt -f") },
		"crashed": func(box driver.Sandbox) {
			script(box, "echo c >/proc/sysrq-trigger")
			for begun := time.Now(); time.Since(begun) < patience; {
				if _, err := box.(driver.CurrentMemory).CurrentMemory(context.Background()); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "crashed" { // it takes as long as the agent's timeout
				testenv.Need(t, testenv.TestAll)
			}
			box := newBox(t)
			p, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"sleep", "100000"}}, driver.Stdio{})
			if err != nil {
				t.Fatal(err)
			}
			end(box)
			if r, err := p.Wait(); err != nil || r.Outcome != sandbar.Lost {
				t.Errorf("what ran ended with %+v, %v", r, err)
			}
			<-box.(driver.Watcher).Dead()
			if _, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{}); sandbar.CodeOf(err) != sandbar.Gone {
				t.Errorf("a start in a machine that is gone: %v", err)
			}
			if r := run(t, newBox(t), "echo again"); r.stdout != "again\n" {
				t.Errorf("%+v", r)
			}
		})
	}
}

// An image without the guest program, but with a shell on its console, gets it by upload. The image
// boots once; later runs of the test use its snapshot.
func TestPlainShell(t *testing.T) {
	testenv.Need(t, testenv.TestAll)
	options := testOptions(t)
	options[OptionImage] = plainImage(t)
	d := newDriver(t, options)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := d.Prepare(ctx, testMemory); err != nil {
		t.Fatal(err)
	}
	box, err := d.Create(ctx, "plain", testSpec())
	if err != nil {
		t.Fatal(err)
	}
	defer box.Destroy(context.Background())
	if r := run(t, box, "cat /proc/1/comm; echo err >&2; exit 5"); r.stdout != "sh\n" || r.stderr != "err\n" || r.ExitCode != 5 {
		t.Errorf("%+v", r)
	}
}

// A closed driver leaves no process, and no file except the cache.
func TestNothingIsLeft(t *testing.T) {
	before := workers(t)
	d := newDriver(t, testOptions(t))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := d.Prepare(ctx, testMemory); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Collect(ctx, true); err != nil { // of tests that were killed
		t.Fatal(err)
	}
	for _, id := range []sandbar.ID{"a", "b"} {
		box, err := d.Create(ctx, id, testSpec())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Create(ctx, id, testSpec()); sandbar.CodeOf(err) != sandbar.Exists {
			t.Errorf("two of one id: %v", err)
		}
		if err := box.Destroy(ctx); err != nil {
			t.Error(err)
		}
		if err := box.Destroy(ctx); err != nil {
			t.Errorf("destroying again: %v", err)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.Create(ctx, "c", testSpec()); sandbar.CodeOf(err) != sandbar.Unavailable {
		t.Errorf("a driver that was closed: %v", err)
	}
	if after := workers(t); !slices.Equal(before, after) {
		t.Errorf("processes before %v, after %v", before, after)
	}
	if left, err := d.Collect(ctx, true); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// workers returns the workers that this process has started.
func workers(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, dir := range dirs {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // it may have ended
		status, _ := os.ReadFile(filepath.Join(dir, "status"))
		if strings.HasPrefix(string(line), worker.Name) && strings.Contains(string(status), "PPid:\t"+strconv.Itoa(os.Getpid())+"\n") {
			found = append(found, dir)
		}
	}
	return found
}

// A canceled boot leaves nothing, and the next driver boots again.
func TestBootIsGivenUp(t *testing.T) {
	options := testOptions(t)
	options[OptionCache] = filepath.Join(t.TempDir(), "cache")
	d := newDriver(t, options)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := d.Create(ctx, "a", testSpec()); sandbar.CodeOf(err) != sandbar.Unavailable {
		t.Errorf("a machine that boots: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	for _, pattern := range []string{"*.snapshot", tmpPrefix + "*"} {
		if found, err := filepath.Glob(filepath.Join(options[OptionCache], pattern)); err != nil || len(found) > 0 {
			t.Errorf("%v, %v", found, err)
		}
	}
	if w := workers(t); len(w) > 0 {
		t.Errorf("processes %v", w)
	}
}

// Unsupported requests are refused before a machine is created.
func TestRefusals(t *testing.T) {
	testenv.Need(t, testenv.V86)
	for name, tc := range map[string]struct {
		change func(map[string]string)
		code   sandbar.Code
	}{
		"no image":            {func(o map[string]string) { delete(o, OptionImage) }, sandbar.Invalid},
		"an image not there":  {func(o map[string]string) { o[OptionImage] = filepath.Join(t.TempDir(), "none") }, sandbar.Invalid},
		"an image that is no": {func(o map[string]string) { o[OptionImage] = "driver_test.go" }, sandbar.Invalid},
		"an unknown option":   {func(o map[string]string) { o["nope"] = "1" }, sandbar.Invalid},
		"no time":             {func(o map[string]string) { o[OptionBoot] = "soon" }, sandbar.Invalid},
		"a time that is none": {func(o map[string]string) { o[OptionBoot] = "-1s" }, sandbar.Invalid},
		"a cache in a file":   {func(o map[string]string) { o[OptionCache] = "driver_test.go/x" }, sandbar.Unsupported},
		"no emulator":         {func(o map[string]string) { o[OptionModules] = t.TempDir() }, sandbar.Unsupported},
	} {
		o := testOptions(t)
		o[OptionCache] = filepath.Join(t.TempDir(), "cache")
		tc.change(o)
		if _, err := New(driver.Host{Options: o}, nil); sandbar.CodeOf(err) != tc.code {
			t.Errorf("%s: %v, want %s", name, err, tc.code)
		}
	}
	if _, err := New(driver.Host{}, nil); sandbar.AsError(err).Fix == "" {
		t.Errorf("without an image the error has no fix: %v", err)
	}
	d := newDriver(t, testOptions(t))
	for name, change := range map[string]func(*sandbar.Spec){
		"memory":     func(s *sandbar.Spec) { s.Limits.Memory = MinMemory - 1 },
		"too much":   func(s *sandbar.Spec) { s.Limits.Memory = MaxMemory + 1 },
		"pids":       func(s *sandbar.Spec) { s.Limits.PIDs = 10 },
		"cpus":       func(s *sandbar.Spec) { s.Limits.CPUs = 1 },
		"cpu_shares": func(s *sandbar.Spec) { s.Limits.CPUShares = 1 },
		"disk":       func(s *sandbar.Spec) { s.Limits.Disk = 1 << 20 },
		"inodes":     func(s *sandbar.Spec) { s.Limits.Inodes = 10 },
		"files":      func(s *sandbar.Spec) { s.Limits.Files = 10 },
		"network":    func(s *sandbar.Spec) { s.Network = sandbar.NetworkOutbound },
	} {
		s := testSpec()
		change(&s)
		if _, err := d.Create(t.Context(), "x", s); sandbar.CodeOf(err) != sandbar.Unsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*sandbar.Spec){
		"an image":             func(s *sandbar.Spec) { s.Image = "debian" },
		"a name that is empty": func(s *sandbar.Spec) { s.Env = map[string]string{"": "x"} },
		"a value with a NUL":   func(s *sandbar.Spec) { s.Env = map[string]string{"A": "\x00"} },
	} {
		s := testSpec()
		change(&s)
		if _, err := d.Create(t.Context(), "x", s); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}
