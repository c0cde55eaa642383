package local

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// lockedBuffer is a buffer for concurrent use.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// sh runs a shell program and waits for its end.
func sh(t *testing.T, b *sandbox, script string) (string, sandbar.Result) {
	t.Helper()
	out := &lockedBuffer{}
	p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", script}}, driver.Stdio{Stdout: out, Stderr: out})
	if err != nil {
		t.Fatal(err)
	}
	res, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), res
}

func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// The limits are set before the program's first instruction, and children inherit them. No core
// dump is written.
func TestLimitsBeforeTheFirstInstruction(t *testing.T) {
	d := newDriver(t)
	if d.Caps().Enforced.Files == sandbar.EnforcedNone {
		if probeTrace() {
			t.Error("children can be traced here, yet the limit is said not to be held")
		}
		return // the driver says so, and TestSpecsThatAreRefused holds it to that
	}
	made, err := d.Create(t.Context(), sandbar.NewID(), sandbar.Spec{Limits: sandbar.Limits{Files: 77}})
	if err != nil {
		t.Fatal(err)
	}
	out, res := sh(t, made.(*sandbox), "ulimit -n; ulimit -Hn; ulimit -Hc; grep TracerPid /proc/self/status")
	// ulimit -c counts blocks of 512 bytes, so it prints 0 for a limit of one byte.
	if want := "77\n77\n0\nTracerPid:\t0\n"; out != want || res.ExitCode != 0 {
		t.Errorf("%q, %+v; want %q", out, res, want)
	}
	out, _ = sh(t, newBox(t, d), "grep 'core file' /proc/self/limits")
	if f := strings.Fields(out); len(f) < 6 || f[4] != "1" && f[4] != "0" || f[5] != f[4] {
		t.Errorf("the core limit is %q", out)
	}
}

// A limit above the host's is refused, or reduced with AllowDegraded.
func TestFilesAreCutWhenDegraded(t *testing.T) {
	d := newDriver(t)
	made, err := d.Create(t.Context(), sandbar.NewID(), sandbar.Spec{AllowDegraded: true, Limits: sandbar.Limits{Files: 1 << 40}})
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := sh(t, made.(*sandbox), "ulimit -Hn"); strings.TrimSpace(out) != fmt.Sprint(maxFiles()) {
		t.Errorf("the limit is %q; the host allows %d", out, maxFiles())
	}
}

// Programs do not inherit descriptors with which the daemon was started.
func TestInheritedDescriptorsAreSealed(t *testing.T) {
	var fds [2]int
	if err := syscall.Pipe(fds[:]); err != nil { // without close-on-exec
		t.Fatal(err)
	}
	defer syscall.Close(fds[0])
	defer syscall.Close(fds[1])
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fds[0]))
	if err != nil {
		t.Fatal(err)
	}
	b := newBox(t, newDriver(t))
	if out, _ := sh(t, b, "ls -l /proc/self/fd"); !strings.Contains(out, "pipe:") || strings.Contains(out, name) {
		t.Errorf("a program has the descriptors\n%s; one of them must not be %s", out, name)
	}
}

// A process that left the session, ignores signals and lost its parent is found by its tag.
// Processes of others are not killed.
func TestDestroyFindsWhatRanAway(t *testing.T) {
	d := newDriver(t)
	b, neighbour := newBox(t, d), newBox(t, d)
	other, err := neighbour.Start(t.Context(), sandbar.Cmd{Args: []string{"sleep", "60"}}, driver.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	sh(t, b, `: > pids; for i in 1 2 3; do (setsid sh -c 'trap "" TERM HUP INT; echo $$ >> pids; while :; do sleep 0.01; done' > /dev/null 2>&1 &); done
while [ "$(wc -l < pids)" -lt 3 ]; do sleep 0.01; done`)
	pids, err := os.ReadFile(filepath.Join(b.home, "pids"))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, pid := range strings.Fields(string(pids)) {
		if stat, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
			t.Errorf("process %s lives: %s", pid, stat)
		}
	}
	if err := syscall.Kill(other.(*process).child.pid(), 0); err != nil {
		t.Errorf("the neighbour's program is gone: %v", err)
	}
}

// A daemon inside a sandbox of another daemon adds its own tag to the other's.
func TestTagsOfNestedDaemons(t *testing.T) {
	t.Setenv(tagVariable, "outer.sb_1")
	d := newDriver(t)
	b := newBox(t, d)
	if out, _ := sh(t, b, "echo $"+tagVariable); strings.TrimSpace(out) != "outer.sb_1 "+b.tag()+" "+b.tag()+".1" {
		t.Errorf("the mark is %q", out)
	}
	sh(t, b, "(setsid sleep 60 > /dev/null 2>&1 &) ; echo")
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, _, err := (&treeKiller{matches: func(w string) bool { return w == b.tag() }}).scan(false); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestDescendants(t *testing.T) {
	p := func(pid, ppid int) proc { return proc{pid: pid, ppid: ppid} }
	got := descendants([]proc{p(10, 1)}, []proc{p(13, 12), p(12, 11), p(11, 10), p(20, 1), p(21, 20), p(14, 12)})
	pids := map[int]bool{}
	for _, g := range got {
		pids[g.pid] = true
	}
	if len(got) != 4 || !pids[11] || !pids[12] || !pids[13] || !pids[14] {
		t.Errorf("%v", got)
	}
}

func TestParseStat(t *testing.T) {
	const rest = " S 7 8 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 1 1"
	for name, want := range map[string]proc{
		"42 (cat)":         {pid: 42, ppid: 7, session: 9, threads: 1, state: 'S', start: "12345"},
		"42 (a) R 1 (b c)": {pid: 42, ppid: 7, session: 9, threads: 1, state: 'S', start: "12345"},
		"42 ()":            {pid: 42, ppid: 7, session: 9, threads: 1, state: 'S', start: "12345"},
	} {
		if got, err := parseStat(42, name+rest); err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, bad := range []string{"", "42 (cat) S 1", "42 (cat) S x" + rest[4:]} {
		if _, err := parseStat(42, bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// A peak that may be that of the daemon's memory before the exec is not reported for the program.
func TestPeakIsNotInvented(t *testing.T) {
	for _, tc := range []struct{ max, floor, want int64 }{{100, 50 << 10, 100 << 10}, {100, 100 << 10, 0}, {100, 1 << 30, 0}} {
		if got := peakOf(&syscall.Rusage{Maxrss: tc.max}, tc.floor); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
	}
}

// If a descendant holds the output open, the driver reads until the end of driver.DrainWindow. It
// delivers the bytes that are in the pipe then, even to a slow writer.
func TestDrainDeliversWhatIsThere(t *testing.T) {
	d := newDriver(t)
	b := newBox(t, d)
	w := &slow{first: make(chan struct{}), goOn: make(chan struct{})}
	p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", "sleep 60 & printf first; sleep 0.2; printf last; touch over"}}, driver.Stdio{Stdout: w})
	if err != nil {
		t.Fatal(err)
	}
	<-w.first
	until(t, "the program is over", func() bool { _, err := os.Stat(filepath.Join(b.home, "over")); return err == nil })
	time.Sleep(2 * driver.DrainWindow)
	close(w.goOn)
	res, err := p.Wait()
	if err != nil || w.text() != "firstlast" || res.StdoutBytes != 9 {
		t.Errorf("%q, %+v, %v", w.text(), res, err)
	}
}

// slow is a writer whose first Write takes long.
type slow struct {
	lockedBuffer
	once        sync.Once
	first, goOn chan struct{}
}

func (s *slow) Write(b []byte) (int, error) {
	s.once.Do(func() { close(s.first); <-s.goOn })
	return s.lockedBuffer.Write(b)
}

func (s *slow) text() string { return s.String() }

// A writer that never returns does not block Destroy.
func TestDestroyDoesNotWaitForWriters(t *testing.T) {
	d := newDriver(t)
	b := newBox(t, d)
	block := make(chan struct{})
	p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", "while :; do echo x; done"}}, driver.Stdio{Stdout: writerFunc(func(b []byte) (int, error) {
		<-block
		return len(b), nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	close(block)
	if res, err := p.Wait(); err != nil || res.Outcome != sandbar.Signaled {
		t.Errorf("%+v, %v", res, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

var _ io.Writer = writerFunc(nil)

// If the context of a Destroy ends, the work continues, and the next call waits for it.
func TestDestroyGoesOn(t *testing.T) {
	d := newDriver(t)
	b := newBox(t, d)
	sh(t, b, "sleep 60 > /dev/null 2>&1 & echo")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Destroy(ctx); err != nil && sandbar.CodeOf(err) != sandbar.Canceled {
		t.Error(err)
	}
	until(t, "the directory is gone", func() bool { _, err := os.Stat(b.dir); return os.IsNotExist(err) })
	if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// Directories to which a program has denied access are removed too.
func TestDestroyOpensWhatIsShut(t *testing.T) {
	d := newDriver(t)
	b := newBox(t, d)
	if out, res := sh(t, b, `set -e; mkdir -p a/b/c; echo x > a/b/c/f; chmod 0 a/b/c; chmod 0 a/b; chmod 500 a
i=0; mkdir deep; cd deep; while [ $i -lt 200 ]; do mkdir d; cd d; i=$((i+1)); done; chmod 0 .`); res.ExitCode != 0 {
		t.Fatal(out)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(b.dir); !os.IsNotExist(err) {
		t.Errorf("the directory: %v", err)
	}
}

// A recursive Remove or Chmod does not cross a mount, of the same or another file system.
func TestTreesDoNotCrossMounts(t *testing.T) {
	testenv.Need(t, testenv.Root)
	d := newDriver(t)
	b := newBox(t, d)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "f"), []byte("x"), 0o640); err != nil {
		t.Fatal(err)
	}
	for _, m := range []struct {
		name, source, kind string
		flags              uintptr
	}{{"tmpfs", "none", "tmpfs", 0}, {"bind", outside, "", unix.MS_BIND}} {
		at := filepath.Join(b.home, "t", m.name)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(m.source, at, m.kind, m.flags, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) })
		if err := os.WriteFile(filepath.Join(at, "f"), []byte("x"), 0o640); err != nil {
			t.Fatal(err)
		}
		if err := b.FS().Chmod(t.Context(), "t", 0o700, true); err != nil {
			t.Errorf("%s: Chmod: %v", m.name, err)
		}
		if err := b.FS().Remove(t.Context(), "t", true); sandbar.CodeOf(err) != sandbar.Conflict {
			t.Errorf("%s: Remove: %v", m.name, err)
		}
		if info, err := os.Stat(filepath.Join(at, "f")); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: the file behind the mount: %v, %v", m.name, info, err)
		}
		if err := unix.Unmount(at, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(outside, "f")); err != nil {
		t.Error(err)
	}
}

// Collect removes exactly the leftovers of dead instances.
func TestCollect(t *testing.T) {
	dir := t.TempDir()
	made, err := New(driver.Host{RuntimeDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	d := made.(*Driver)
	defer d.Close()
	long := time.Now().Add(-2 * minAge)
	mk := func(name string, lock bool, age time.Time) string {
		path := filepath.Join(d.base, name)
		if err := os.MkdirAll(filepath.Join(path, "sb_x", "home"), 0o700); err != nil {
			t.Fatal(err)
		}
		if lock {
			if err := os.WriteFile(filepath.Join(path, lockName), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(path, age, age); err != nil {
			t.Fatal(err)
		}
		return path
	}
	dead := mk("dead", true, time.Now())
	half := mk("half", false, long)
	born := mk("born", false, time.Now())
	live := mk("live", true, long)
	lock, err := lockFile(filepath.Join(live, lockName))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	// A process of the dead instance, and one with a similar tag.
	runaway := exec.Command("sleep", "60")
	runaway.Env = []string{tagVariable + "=dead.sb_x"}
	alike := exec.Command("sleep", "60")
	alike.Env = []string{tagVariable + "=deadly.sb_x", "X=" + tagVariable + "=dead.sb_x"}
	for _, c := range []*exec.Cmd{runaway, alike} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer c.Wait()
		defer c.Process.Kill()
	}
	reaped := make(chan struct{})
	go func() { runaway.Wait(); close(reaped) }()

	names := func(left []driver.Leftover) string {
		var all []string
		for _, l := range left {
			if l.Err != nil {
				t.Errorf("%s %s: %v", l.Kind, l.Name, l.Err)
			}
			all = append(all, l.Kind+" "+filepath.Base(l.Name))
		}
		return strings.Join(all, ", ")
	}
	want := fmt.Sprintf("process %d, directory dead, directory half", runaway.Process.Pid)
	for _, remove := range []bool{false, true} {
		left, err := d.Collect(t.Context(), remove)
		if got := names(left); err != nil || got != want {
			t.Errorf("remove %v: %s, %v; want %s", remove, got, err, want)
		}
	}
	<-reaped
	if left, err := d.Collect(t.Context(), true); err != nil || len(left) != 0 {
		t.Errorf("again: %v, %v", left, err)
	}
	for path, there := range map[string]bool{dead: false, half: false, born: true, live: true, d.instance.dir: true} {
		if _, err := os.Stat(path); (err == nil) != there {
			t.Errorf("%s: %v", filepath.Base(path), err)
		}
	}
	if err := syscall.Kill(alike.Process.Pid, 0); err != nil {
		t.Errorf("a process that only looks alike: %v", err)
	}
}

// A path of FS below /home/user never refers to that directory of the host.
func TestFilesOfDefaultDirAreTheSandboxs(t *testing.T) {
	b := newBox(t, newDriver(t))
	w, err := b.FS().Create(t.Context(), sandbar.DefaultDir+"/f", sandbar.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(b.home, "f")); err != nil {
		t.Error(err)
	}
	for _, path := range []string{sandbar.DefaultDir, sandbar.DefaultDir + "/", b.home} {
		if err := b.FS().Remove(t.Context(), path, true); sandbar.CodeOf(err) != sandbar.Conflict {
			t.Errorf("Remove(%q): %v", path, err)
		}
		if err := b.FS().Rename(t.Context(), path, "elsewhere"); sandbar.CodeOf(err) != sandbar.Conflict {
			t.Errorf("Rename(%q): %v", path, err)
		}
	}
}
