package native

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/slot"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// holdersOf returns the memory holders of copies made since before.
func holdersOf(t *testing.T, d *Driver, before []int) (holders []int) {
	t.Helper()
	_, holders = split(t, interpreters(t, d, before))
	return holders
}

// needHolders skips a test if copies have no memory holders, because no cgroup counts processes.
func needHolders(t *testing.T) {
	t.Helper()
	if !testenv.CgroupV2.Met() {
		testenv.Need(t, testenv.CgroupV1)
	}
}

// forkWithHolder makes a template and a fork, and returns the fork's memory holder.
func forkWithHolder(t *testing.T, d *Driver, s driver.TemplateSpec) (f *fork, holder int) {
	t.Helper()
	needHolders(t)
	tmpl := newTemplate(t, d, s)
	before := descendants(t, d)
	f = newFork(t, tmpl).(*fork)
	holders := holdersOf(t, d, before)
	if len(holders) != 1 {
		t.Fatalf("%d memory holders of one fork", len(holders))
	}
	return f, holders[0]
}

// A memory holder has no more rights than the program, one descriptor and one second of processor
// time. It is in all namespaces of the sandbox except the PID namespace.
func TestMemoryHolder(t *testing.T) {
	d := newDriver(t)
	f, pid := forkWithHolder(t, d, pythonTemplate(d))
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
	for _, kind := range slot.Namespaces() {
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

// The memory holder ends with the sandbox, whatever the program writes over its code.
func TestMemoryHolderIsOverwritten(t *testing.T) {
	for name, code := range map[string]string{
		"a loop":        "b'\\xeb\\xfe'",
		"a system call": "b'\\x90' * 64 + b'\\xb8\\x27\\x00\\x00\\x00\\x0f\\x05\\xeb\\xf7'",
		"nothing":       "b'\\xcc'",
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t)
			f, pid := forkWithHolder(t, d, pythonTemplate(d))
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
			// Its memory is freed; the process may still be a zombie.
			waitUntil(t, "the memory holder has exited", func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
		})
	}
}

// countProcesses prints how many processes it can have. The process that made the copy counts
// until the driver has reaped it, so a fork that fails is tried again for a while.
const countProcesses = `
import os, time
n, failures = 1, 0
while n < 100 and failures < 20:
    try:
        if os.fork() == 0:
            time.sleep(100)
        n += 1
    except OSError:
        failures += 1
        time.sleep(0.05)
print(n)
`

// A sandbox that outlives its program gets the program's memory and the holder's process back.
func TestMemoryIsFreed(t *testing.T) {
	d := newDriver(t)
	s := pythonTemplate(d)
	s.Spec.Limits.PIDs = 12
	f, pid := forkWithHolder(t, d, s)
	eval(t, f, "x = b'x' * 50_000_000")
	waitUntil(t, "the memory holder has exited", func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
	var out bytes.Buffer
	p, err := f.Start(t.Context(), sandbar.Cmd{Args: []string{"python3", "-c", countProcesses}}, driver.Stdio{Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil || out.String() != "12\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// Without machine code a copy has no memory holder and no fast exit, and works.
func TestForkWithoutMachineCode(t *testing.T) {
	d := newDriver(t)
	d.machineCode = false
	tmpl := newTemplate(t, d, pythonTemplate(d))
	before := descendants(t, d)
	f := newFork(t, tmpl).(*fork)
	if n := f.t.holderTasks(); n != 0 {
		t.Errorf("the driver reports %d memory holders", n)
	}
	// The process between template and fork may not have been reaped yet.
	waitUntil(t, "the fork has no memory holder", func() bool { return len(holdersOf(t, d, before)) == 0 })
	const program = "import atexit, os, random, threading\nprint(os.getppid(), threading.get_native_id() == os.getpid(), atexit._ncallbacks())"
	if got := eval(t, f, program); got != "1 True 0\n" {
		t.Errorf("it prints %q", got)
	}
	if err := f.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// The memory holder does not count towards the sandbox's process limit.
func TestMemoryHolderCostsNoProcess(t *testing.T) {
	needHolders(t)
	d := newDriver(t)
	s := pythonTemplate(d)
	s.Spec.Limits.PIDs = 12
	if got := eval(t, newFork(t, newTemplate(t, d, s)), countProcesses); got != "12\n" {
		t.Errorf("a copy has %q processes", got)
	}
}
