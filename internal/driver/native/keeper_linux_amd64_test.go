package native

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// keepersOf finds the processes that hold the memory of copies made since before.
func keepersOf(t *testing.T, d *Driver, before []int) (keepers []int) {
	t.Helper()
	for _, pid := range descendants(t, d) {
		if comm, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm"); !slices.Contains(before, pid) && string(comm) == "python3\n" {
			keepers = append(keepers, pid)
		}
	}
	_, keepers = split(t, keepers)
	return keepers
}

// needKeepers skips a test where copies have no keepers: where no group counts
// processes. A driver's probe decides by the same.
func needKeepers(t *testing.T) {
	t.Helper()
	if !testenv.CgroupV2.Met() {
		testenv.Need(t, testenv.CgroupV1)
	}
}

// keptFork makes a template and a fork, and finds its keeper.
func keptFork(t *testing.T, d *Driver, s driver.TemplateSpec) (f *fork, keeper int) {
	t.Helper()
	needKeepers(t)
	tmpl := newTemplate(t, d, s)
	before := descendants(t, d)
	f = newFork(t, tmpl).(*fork)
	keepers := keepersOf(t, d, before)
	if len(keepers) != 1 {
		t.Fatalf("%d keepers of one fork", len(keepers))
	}
	return f, keepers[0]
}

// The keeper of a program's memory has no more rights than the program, one
// descriptor, no time, and is in the sandbox's namespaces but for that of processes.
func TestKeeper(t *testing.T) {
	d := newDriver(t)
	f, pid := keptFork(t, d, pythonTemplate(d))
	proc := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := f.resources.HostIDs(f.resources.uid())
	id := strconv.Itoa(uid)
	wanted := []string{"Uid:\t" + id + "\t" + id + "\t" + id + "\t" + id, "NoNewPrivs:\t1", "Seccomp:\t2", "Threads:\t1",
		"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "CapInh:\t0000000000000000", "CapAmb:\t0000000000000000"}
	for _, line := range wanted {
		if !strings.Contains(string(status), "\n"+line+"\n") {
			t.Errorf("not %q in\n%s", line, status)
		}
	}
	if fds, err := os.ReadDir(proc + "/fd"); err != nil || len(fds) != 1 {
		t.Errorf("its descriptors are %v, %v", fds, err)
	}
	limits, err := os.ReadFile(proc + "/limits")
	if i := bytes.Index(limits, []byte("Max cpu time")); err != nil || i < 0 || strings.Join(strings.Fields(string(limits[i:]))[3:5], " ") != "1 1" {
		t.Errorf("its limits are %s, %v", limits, err)
	}
	for _, kind := range namespaces() {
		var own, sandbox unix.Stat_t
		fd, err := f.resources.Init.Open("ns/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Fstat(fd, &sandbox); err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		if err := unix.Stat(proc+"/ns/"+kind, &own); err != nil {
			t.Fatal(err)
		}
		if (own.Ino == sandbox.Ino) != (kind != "pid") {
			t.Errorf("of the sandbox's namespace %s: %v", kind, own.Ino == sandbox.Ino)
		}
	}
}

// A program may write what it likes where its keeper's code is: that ends with the
// sandbox all the same.
func TestKeeperIsOverwritten(t *testing.T) {
	for name, code := range map[string]string{
		"a loop":        "b'\\xeb\\xfe'",
		"a system call": "b'\\x90' * 64 + b'\\xb8\\x27\\x00\\x00\\x00\\x0f\\x05\\xeb\\xf7'",
		"nothing":       "b'\\xcc'",
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t)
			f, pid := keptFork(t, d, pythonTemplate(d))
			out := eval(t, f, `
import ctypes, os
libc = ctypes.CDLL(None)
code = `+code+`
pages = 0
for line in open('/proc/self/maps'):
    extent, mode, _, _, inode = line.split()[:5]
    start, end = (int(x, 16) for x in extent.split('-'))
    if mode == 'r-xp' and inode == '0' and 'vdso' not in line and 'vsyscall' not in line:
        assert libc.mprotect(ctypes.c_void_p(start), end - start, 7) == 0
        ctypes.memmove(start, (code * 4096)[:end - start], end - start)
        pages += 1
print(pages)
os._exit(0)
`)
			if n, _ := strconv.Atoi(strings.TrimSpace(out)); n < 2 {
				t.Fatalf("it has overwritten %q", out)
			}
			if err := f.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
			// It has given back all it held, and may not be off the list yet.
			waitUntil(t, "the keeper has gone", func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
		})
	}
}

// countProcesses tells how many processes it can be.
const countProcesses = `
import os, time
n = 1
try:
    while n < 100:
        if os.fork() == 0:
            time.sleep(100)
        n += 1
except OSError:
    pass
print(n)
`

// A sandbox that goes on when its program has ended gets the memory back, and has
// no process more than it had.
func TestMemoryIsGivenBack(t *testing.T) {
	d := newDriver(t)
	s := pythonTemplate(d)
	s.Spec.Limits.PIDs = 12
	f, pid := keptFork(t, d, s)
	eval(t, f, "x = b'x' * 50_000_000")
	waitUntil(t, "the keeper has gone", func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
	var out bytes.Buffer
	p, err := f.Start(t.Context(), sandbar.Cmd{Args: []string{"python3", "-c", countProcesses}}, driver.Stdio{Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil || out.String() != "12\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// Where copies have no keepers they are what they are with them.
func TestForkedWithoutKeepers(t *testing.T) {
	d := newDriver(t)
	d.forked = true
	tmpl := newTemplate(t, d, pythonTemplate(d))
	before := descendants(t, d)
	f := newFork(t, tmpl).(*fork)
	if f.holders() != 0 {
		t.Errorf("%d holders known", f.holders())
	}
	// The process between template and fork may not have been reaped yet.
	waitUntil(t, "the fork has no process besides", func() bool { return len(keepersOf(t, d, before)) == 0 })
	if got := eval(t, f, "import os, random, threading\nprint(os.getppid(), threading.get_native_id() == os.getpid())"); got != "1 True\n" {
		t.Errorf("it says %q", got)
	}
	if err := f.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// A copy with a keeper has as many processes as were asked for, like any sandbox.
func TestKeeperCostsNoProcess(t *testing.T) {
	needKeepers(t)
	d := newDriver(t)
	s := pythonTemplate(d)
	s.Spec.Limits.PIDs = 12
	if got := eval(t, newFork(t, newTemplate(t, d, s)), countProcesses); got != "12\n" {
		t.Errorf("a copy can have %q", got)
	}
}
