package wasm

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// Reset restores files and ends programs, and can be repeated.
func TestReset(t *testing.T) {
	box := newBox(t, nil)
	reset, ok := driver.As[driver.Resetter](box)
	if !ok {
		t.Fatal("the sandbox cannot be reset")
	}
	for round := range 3 {
		busy, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"python3", "-c", "while True: pass"}}, driver.Stdio{})
		if err != nil {
			t.Fatal(err)
		}
		if r := run(t, box, "", sandbar.Cmd{Args: []string{"sh", "-c", "ls; echo x > kept; rm -rf /etc; mkdir d; ls"}}); r.Stdout != "d\nkept\n" {
			t.Errorf("round %d: %+v", round, r)
		}
		if err := reset.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r, err := busy.Wait(); err != nil || r.Outcome != sandbar.Signaled || r.Signal != 9 {
			t.Errorf("what ran ended with %+v, %v", r, err)
		}
		if r := run(t, box, "", sandbar.Cmd{Args: []string{"sh", "-c", "ls; cat /etc/hostname"}}); r.Stdout != "sandbox\n" {
			t.Errorf("round %d, after the reset: %+v", round, r)
		}
	}
}

// The memory limit applies to the sum of files and all programs, and that sum is reported.
func TestMemoryIsShared(t *testing.T) {
	box := newBox(t, func(s *sandbar.Spec) { s.Limits.Memory, s.Limits.Disk = 100<<20, 100<<20 })
	meter, ok := driver.As[driver.CurrentMemory](box)
	if !ok {
		t.Fatal("the sandbox cannot be measured")
	}
	used := func() int64 {
		n, err := meter.CurrentMemory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := used()
	run(t, box, "", sandbar.Cmd{Args: []string{"sh", "-c", "head -c 30000000 /dev/zero > file"}})
	if n := used() - before; n < 30_000_000 || n > 31_000_000 {
		t.Errorf("a file of 30 MB takes %d bytes", n)
	}
	// One program has 40 MB, so there is no room for another one.
	var out lockedBuffer
	hold := `import sys; x = bytearray(40 << 20); print("holds", flush=True); sys.stdin.read()`
	in := make(chan struct{})
	p, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"python3", "-c", hold}}, driver.Stdio{Stdin: until(in), Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	for out.String() != "holds\n" {
		time.Sleep(time.Millisecond)
	}
	if n := used(); n < 80<<20 {
		t.Errorf("with a program of some 60 MB beside the file %d bytes are in use", n)
	}
	if r := run(t, box, "", sandbar.Cmd{Args: []string{"python3", "-c", "x = bytearray(40 << 20)"}}); r.result.Outcome != sandbar.OutOfMemory {
		t.Errorf("a second program of this size: %+v", r)
	}
	close(in)
	if r, err := p.Wait(); err != nil || r.Outcome != sandbar.Exited || r.ExitCode != 0 {
		t.Errorf("the first one: %+v, %v", r, err)
	}
	if r := run(t, box, "", sandbar.Cmd{Args: []string{"python3", "-c", "x = bytearray(40 << 20); print('fits')"}}); r.Stdout != "fits\n" {
		t.Errorf("when the first one has ended: %+v", r)
	}
}

// until is an input that ends when a channel is closed.
type until chan struct{}

func (u until) Read([]byte) (int, error) {
	<-u
	return 0, os.ErrClosed
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Programs of all languages run concurrently, and each can be ended alone.
func TestSideBySide(t *testing.T) {
	box := newBox(t, nil)
	type running struct {
		p    driver.Process
		name string
	}
	var all []running
	for name, args := range map[string][]string{
		"python": {"python3", "-c", "while True: pass"}, "javascript": {"node", "-e", "for(;;);"}, "shell": {"sh", "-c", "while :; do :; done"},
		"c": {"python3", "-c", "10**90000000"}, "regexp": {"node", "-e", "/(a+)+$/.test('a'.repeat(50)+'b')"}, "pipe": {"sh", "-c", "yes | node -e 'for(;;);' | python3 -c 'while 1: pass'"},
	} {
		p, err := box.Start(t.Context(), sandbar.Cmd{Args: args}, driver.Stdio{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, running{p, name})
	}
	for _, r := range all {
		if got := run(t, box, "", sandbar.Cmd{Args: []string{"sh", "-c", "echo 1+1 | python3 -c 'print(eval(input()))'"}}); got.Stdout != "2\n" {
			t.Errorf("beside them: %+v", got)
		}
		if err := r.p.Signal(15); err != nil {
			t.Errorf("ending %s: %v", r.name, err)
		}
		if res, err := r.p.Wait(); err != nil || res.Outcome != sandbar.Signaled || res.Signal != 15 {
			t.Errorf("%s ended with %+v, %v", r.name, res, err)
		}
	}
}

// Unsupported requests are refused with an error that names a fix.
func TestRefusals(t *testing.T) {
	testenv.Need(t, testenv.WasmModules)
	for name, tc := range map[string]struct {
		options map[string]string
		code    sandbar.Code
	}{
		"unknown option":     {map[string]string{"nope": "1"}, sandbar.Invalid},
		"no modules there":   {map[string]string{optionModules: t.TempDir()}, sandbar.Unsupported},
		"cache is a file":    {map[string]string{optionModules: modulesDir, optionCache: "driver_test.go"}, sandbar.Unsupported},
		"cache below a file": {map[string]string{optionModules: modulesDir, optionCache: "driver_test.go/x"}, sandbar.Unsupported},
	} {
		_, err := New(driver.Host{Options: tc.options})
		if sandbar.CodeOf(err) != tc.code {
			t.Errorf("%s: %v", name, err)
		} else if tc.code == sandbar.Unsupported && sandbar.AsError(err).Fix == "" {
			t.Errorf("%s: no next step in %v", name, err)
		}
	}
	shared := filepath.Join(t.TempDir(), "shared")
	if err := os.Mkdir(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	testenv.Need(t, testenv.Linux)
	if _, err := New(driver.Host{Options: map[string]string{optionModules: modulesDir, optionCache: shared}}); sandbar.CodeOf(err) != sandbar.Unsupported || !strings.Contains(err.Error(), "other users may write") {
		t.Errorf("a cache that others may write: %v", err)
	}
}

// A memory limit below an interpreter's initial memory is an error of the program only.
func TestSmallMemory(t *testing.T) {
	box := newBox(t, func(s *sandbar.Spec) { s.Limits.Memory = 8 << 20 })
	if r := run(t, box, "", sandbar.Cmd{Args: []string{"python3", "-c", "print(1)"}}); !strings.Contains(r.stderr, "memory limit") || r.result.Outcome != sandbar.OutOfMemory {
		t.Errorf("Python with 8 MiB: %+v", r)
	}
	if r := run(t, box, "", sandbar.Cmd{Args: []string{"node", "-p", "6*7"}}); r.Stdout != "42\n" {
		t.Errorf("JavaScript with 8 MiB: %+v", r)
	}
	if r := run(t, box, "", sandbar.Cmd{Args: []string{"sh", "-c", "seq 3 | wc -l"}}); r.Stdout != "3\n" {
		t.Errorf("the shell with 8 MiB: %+v", r)
	}
}

// An interrupted compilation is repeated.
func TestCacheIsCompleteOrNotThere(t *testing.T) {
	d := newDriver(t)
	dir := t.TempDir()
	c, err := openCache(dir, d.cache.modules)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(c.path(), "half"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, ".compiling-dead"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var said []string
	path, err := c.ready(ctx, d.log, func(what string) func() {
		said = append(said, what)
		return func() { said = append(said, "done") }
	})
	if err != nil {
		t.Fatal(err)
	}
	if !c.there() || path != c.path() {
		t.Errorf("there is no complete compilation at %s", path)
	}
	if len(said) != 2 || !strings.HasPrefix(said[0], "compiling") || said[1] != "done" {
		t.Errorf("the person who waits was told %q", said)
	}
	if _, err := os.Stat(filepath.Join(path, "half")); err == nil {
		t.Error("what was half done is still there")
	}
	left, err := c.collect(true)
	if err != nil || len(left) != 1 || left[0].Err != nil {
		t.Errorf("collecting: %v, %v", left, err)
	}
	if left, err := c.collect(false); err != nil || len(left) != 0 {
		t.Errorf("collecting again: %v, %v", left, err)
	}
}

// A compilation continues after the end of the request that started it, and the next request waits
// for it.
func TestCompilationOutlivesItsRequest(t *testing.T) {
	d := newDriver(t)
	c, err := openCache(t.TempDir(), d.cache.modules)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	ctx, cancel := context.WithCancel(t.Context())
	var begun atomic.Int32
	wait := func(string) func() {
		begun.Add(1)
		cancel()
		return func() {}
	}
	if _, err := c.ready(ctx, d.log, wait); sandbar.CodeOf(err) != sandbar.Canceled {
		t.Errorf("the request that was cancelled: %v", err)
	}
	if _, err := c.ready(t.Context(), d.log, wait); err != nil {
		t.Error(err)
	}
	if n := begun.Load(); n != 1 || !c.there() {
		t.Errorf("%d compilations, and there is one: %v", n, c.there())
	}
}

// The key of the cache depends on the compiler.
func TestCompilerIsTheOneOfTheModule(t *testing.T) {
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "github.com/tetratelabs/wazero " + compiler + "\n"; !strings.Contains(string(mod), want) {
		t.Errorf("go.mod does not have %q", want)
	}
}
