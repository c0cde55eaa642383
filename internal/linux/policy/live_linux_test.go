package policy

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// The tests of this file run real programs under the real kernel. The test binary starts itself as
// a child that applies the policy and then makes the calls of a table, or executes another program.

const (
	childMode     = "SANDBAR_POLICY_CHILD"    // "calls", "foreign" or "exec"
	childRules    = "SANDBAR_POLICY_RULES"    // "counted" or "uncounted"
	childWritable = "SANDBAR_POLICY_WRITABLE" // with "exec": a directory, the only one that Landlock allows
)

func TestMain(m *testing.M) {
	if os.Getenv(childMode) == "" {
		os.Exit(m.Run())
	}
	if err := child(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(99)
	}
}

// child applies the policy and does what childMode says.
func child() error {
	runtime.LockOSThread()
	prog, err := Compile(runtime.GOARCH, ruleSets()[os.Getenv(childRules)])
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if dir := os.Getenv(childWritable); dir != "" {
		if err := restrict(dir); err != nil {
			return fmt.Errorf("Landlock: %w", err)
		}
	}
	if err := installFilter(prog); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	switch os.Getenv(childMode) {
	case "calls":
		for _, c := range liveCalls() {
			_, _, e := syscall.RawSyscall6(c.nr, c.args[0], c.args[1], c.args[2], c.args[3], 0, 0)
			fmt.Printf("%s %s\n", c.name, errnoText(e))
		}
		return nil
	case "foreign":
		_, _, e := syscall.RawSyscall(x32Bit|unix.SYS_GETPID, 0, 0, 0)
		return fmt.Errorf("still alive after a call with the x32 bit: %w", e)
	case "exec":
		return unix.Exec(os.Args[1], os.Args[1:], os.Environ())
	}
	return errors.New("unknown mode")
}

func errnoText(e syscall.Errno) string {
	if e == 0 {
		return "ok"
	}
	return unix.ErrnoName(e)
}

// restrict applies wire.Landlock like the agent: only rights that this kernel has, and only paths
// that exist.
func restrict(writable string) error {
	l := Landlock(HostDirs(), []string{writable})
	version := landlockVersion()
	if version < 2 {
		return nil
	}
	known := llRefer<<1 - 1
	for since, bit := range map[int]uint64{3: llTruncate, 5: llIoctlDev, 9: llResolveUnix} {
		if version >= since {
			known |= bit
		}
	}
	scoped := l.Scoped
	if version < 6 {
		scoped = 0
	}
	set, err := landlockCreate(l.HandledFS&known, scoped)
	if err != nil {
		return err
	}
	defer unix.Close(set)
	for _, r := range l.Rules {
		fd, err := unix.Open(r.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return err
		}
		access := r.Access & known
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			access &= llExecute | llWriteFile | llReadFile | llTruncate | llIoctlDev
		}
		err = landlockAdd(set, fd, access)
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Path, err)
		}
	}
	return landlockRestrict(set)
}

// command starts this binary as a child that executes argv.
func command(t *testing.T, mode, rules string, argv ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), exe, argv...)
	c.Env = append(slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "SANDBAR_") }),
		childMode+"="+mode, childRules+"="+rules, "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return c
}

// liveCall is a call with a known verdict of the filter. Its arguments make it harmless if the
// filter allows it.
type liveCall struct {
	name string
	nr   uintptr
	args [4]uintptr
	want string
}

func liveCalls() []liveCall {
	const bad = ^uintptr(0) // no descriptor, no address
	return []liveCall{
		{"getpid", unix.SYS_GETPID, [4]uintptr{}, "ok"},
		{"clone3", unix.SYS_CLONE3, [4]uintptr{bad, 64}, "ENOSYS"},
		{"clone with CLONE_NEWUSER", unix.SYS_CLONE, [4]uintptr{unix.CLONE_NEWUSER | unix.CLONE_VM}, "EPERM"},
		{"unshare", unix.SYS_UNSHARE, [4]uintptr{unix.CLONE_NEWUSER}, "EPERM"},
		{"setns", unix.SYS_SETNS, [4]uintptr{bad, 0}, "EPERM"},
		{"mount", unix.SYS_MOUNT, [4]uintptr{bad, bad, bad, 0}, "EPERM"},
		{"umount2", unix.SYS_UMOUNT2, [4]uintptr{bad, 0}, "EPERM"},
		{"open_tree", unix.SYS_OPEN_TREE, [4]uintptr{bad, bad, 0}, "EPERM"},
		{"mount_setattr", unix.SYS_MOUNT_SETATTR, [4]uintptr{bad, bad, 0, 0}, "EPERM"},
		{"pivot_root", unix.SYS_PIVOT_ROOT, [4]uintptr{bad, bad}, "EPERM"},
		{"chroot", unix.SYS_CHROOT, [4]uintptr{bad}, "EPERM"},
		{"keyctl", unix.SYS_KEYCTL, [4]uintptr{0}, "EPERM"},
		{"add_key", unix.SYS_ADD_KEY, [4]uintptr{bad, bad, 0, 0}, "EPERM"},
		{"bpf", unix.SYS_BPF, [4]uintptr{bad, bad, 0}, "EPERM"},
		{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, [4]uintptr{bad}, "EPERM"},
		{"userfaultfd", unix.SYS_USERFAULTFD, [4]uintptr{bad}, "EPERM"},
		{"open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, [4]uintptr{bad, bad, 0}, "EPERM"},
		{"process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, [4]uintptr{bad}, "EPERM"},
		{"pidfd_getfd", unix.SYS_PIDFD_GETFD, [4]uintptr{bad, 0, 0}, "EPERM"},
		{"syslog", unix.SYS_SYSLOG, [4]uintptr{10}, "EPERM"},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, [4]uintptr{1, bad}, "ENOSYS"},
		{"io_setup", unix.SYS_IO_SETUP, [4]uintptr{1, bad}, "ENOSYS"},
		{"memfd_secret", unix.SYS_MEMFD_SECRET, [4]uintptr{bad}, "ENOSYS"},
		{"a number nobody has", 5000, [4]uintptr{}, "ENOSYS"},
		{"socket UNIX", unix.SYS_SOCKET, [4]uintptr{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, 0}, "ok"},
		{"socket TCP", unix.SYS_SOCKET, [4]uintptr{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_NONBLOCK, unix.IPPROTO_TCP}, "ok"},
		{"socket routing", unix.SYS_SOCKET, [4]uintptr{unix.AF_NETLINK, unix.SOCK_RAW | unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE}, "ok"},
		{"socket netfilter", unix.SYS_SOCKET, [4]uintptr{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, "EPROTONOSUPPORT"},
		{"socket MPTCP", unix.SYS_SOCKET, [4]uintptr{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, "EPROTONOSUPPORT"},
		{"socket SCTP", unix.SYS_SOCKET, [4]uintptr{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, "EPROTONOSUPPORT"},
		{"socket ICMP", unix.SYS_SOCKET, [4]uintptr{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, "EPROTONOSUPPORT"},
		{"socket raw", unix.SYS_SOCKET, [4]uintptr{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, "EPERM"},
		{"socket VSOCK", unix.SYS_SOCKET, [4]uintptr{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, "EAFNOSUPPORT"},
		{"socket PACKET", unix.SYS_SOCKET, [4]uintptr{unix.AF_PACKET, unix.SOCK_RAW, 0}, "EAFNOSUPPORT"},
		{"socket ALG", unix.SYS_SOCKET, [4]uintptr{unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, "EAFNOSUPPORT"},
		{"socketpair TIPC", unix.SYS_SOCKETPAIR, [4]uintptr{unix.AF_TIPC, unix.SOCK_STREAM, 0, bad}, "EAFNOSUPPORT"},
		{"ioctl TIOCSTI", unix.SYS_IOCTL, [4]uintptr{bad, unix.TIOCSTI, bad}, "EPERM"},
		{"ioctl TIOCSTI with high bits", unix.SYS_IOCTL, [4]uintptr{bad, unix.TIOCSTI | 1<<32, bad}, "EPERM"},
		{"ioctl TIOCLINUX", unix.SYS_IOCTL, [4]uintptr{bad, ioctlTIOCLINUX, bad}, "EPERM"},
		{"ioctl on no descriptor", unix.SYS_IOCTL, [4]uintptr{bad, unix.TCGETS, bad}, "EBADF"},
		{"personality asking", unix.SYS_PERSONALITY, [4]uintptr{0xffffffff}, "ok"},
		{"personality READ_IMPLIES_EXEC", unix.SYS_PERSONALITY, [4]uintptr{0x400000}, "EPERM"},
		{"prctl PR_SCHED_CORE", unix.SYS_PRCTL, [4]uintptr{prctlSchedCore, 1, 0, 0}, "EINVAL"},
		{"prctl PR_SET_SPECULATION_CTRL", unix.SYS_PRCTL, [4]uintptr{unix.PR_SET_SPECULATION_CTRL, unix.PR_SPEC_STORE_BYPASS, unix.PR_SPEC_FORCE_DISABLE, 0}, "EPERM"},
		{"prctl PR_SET_SPECULATION_CTRL of no kind", unix.SYS_PRCTL, [4]uintptr{unix.PR_SET_SPECULATION_CTRL, bad, bad, 0}, "EPERM"},
		{"sendto MSG_OOB", unix.SYS_SENDTO, [4]uintptr{bad, 0, 0, unix.MSG_OOB | unix.MSG_NOSIGNAL}, "ENOTSUP"},
		{"sendto MSG_OOB with high bits", unix.SYS_SENDTO, [4]uintptr{bad, 0, 0, unix.MSG_OOB | 1<<32}, "ENOTSUP"},
		{"sendto", unix.SYS_SENDTO, [4]uintptr{bad, 0, 0, unix.MSG_NOSIGNAL}, "EBADF"},
		{"sendmsg MSG_OOB", unix.SYS_SENDMSG, [4]uintptr{bad, 0, unix.MSG_OOB}, "ENOTSUP"},
		{"sendmsg", unix.SYS_SENDMSG, [4]uintptr{bad, 0, 0}, "EBADF"},
		{"sendmmsg MSG_OOB", unix.SYS_SENDMMSG, [4]uintptr{bad, 0, 1, unix.MSG_OOB}, "ENOTSUP"},
		{"sendmmsg", unix.SYS_SENDMMSG, [4]uintptr{bad, 0, 1, 0}, "EBADF"},
		{"setrlimit RLIMIT_CORE", unix.SYS_SETRLIMIT, [4]uintptr{unix.RLIMIT_CORE, bad}, "ok"},
		{"sync", unix.SYS_SYNC, [4]uintptr{}, "ok"},
		{"rseq", unix.SYS_RSEQ, [4]uintptr{bad, 0, 0, 0}, "EINVAL"},
		{"close_range", unix.SYS_CLOSE_RANGE, [4]uintptr{1 << 20, 1<<20 + 1, 0}, "ok"},
	}
}

// TestLiveCalls makes calls under the filter in the kernel.
func TestLiveCalls(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	for set := range ruleSets() {
		out, err := command(t, "calls", set).Output()
		if err != nil {
			t.Fatalf("%s: %v (%s)", set, err, stderrOf(err))
		}
		got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
		want := liveCalls()
		if len(got) != len(want) {
			t.Fatalf("%s: %d answers to %d calls:\n%s", set, len(got), len(want), out)
		}
		for i, c := range want {
			if got[i] != c.name+" "+c.want {
				t.Errorf("%s: %s, want %s", set, got[i], c.want)
			}
		}
	}
}

func stderrOf(err error) string {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(e.Stderr)
	}
	return ""
}

// TestLiveForeignCalls: the x32 bit ends the process on amd64; elsewhere such a number is unknown.
func TestLiveForeignCalls(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	err := command(t, "foreign", "counted").Run()
	e, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatalf("the child ended with %v", err)
	}
	ws := e.Sys().(syscall.WaitStatus)
	switch runtime.GOARCH {
	case "amd64":
		if !ws.Signaled() || ws.Signal() != syscall.SIGSYS {
			t.Errorf("the child ended with %v, want SIGSYS", err)
		}
	default:
		if ws.ExitStatus() != 99 {
			t.Errorf("the child ended with %v, want to be told ENOSYS", err)
		}
	}
}

// TestLiveInterrupt80: the 32-bit entry ends the process, with SIGSYS by the filter, or with
// SIGSEGV if the kernel has no such entry.
func TestLiveInterrupt80(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.Python)
	// mov eax, 20 (getpid); int 0x80; ret
	const script = `
import ctypes, mmap
m = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
m.write(bytes([0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3]))
f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))
print("ready", flush=True)
print("alive", f())
`
	var out bytes.Buffer
	c := command(t, "exec", "counted", "/usr/bin/python3", "-c", script)
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	if !strings.HasPrefix(out.String(), "ready\n") || strings.Contains(out.String(), "alive") {
		t.Fatalf("the program said %q", out.String())
	}
	e, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatalf("the program ended with %v", err)
	}
	ws := e.Sys().(syscall.WaitStatus)
	switch {
	case runtime.GOARCH != "amd64" && ws.Signaled(): // on other processors those bytes are another instruction
	case ws.Signaled() && (ws.Signal() == syscall.SIGSYS || ws.Signal() == syscall.SIGSEGV):
	default:
		t.Errorf("the program ended with %v, want SIGSYS", err)
	}
}

// TestLivePrograms: the interpreters run under both sets of rules.
func TestLivePrograms(t *testing.T) {
	for _, p := range []struct {
		name string
		need testenv.Requirement
		argv []string
		want string
	}{
		{"sh", testenv.Linux, []string{"/bin/sh", "-c", `ulimit -c 0 && echo $(echo one | cat) && (exit 3); echo $?`}, "one\n3\n"},
		{"python", testenv.Python, []string{"/usr/bin/python3", "-c", `
import multiprocessing, os, signal, socket, subprocess, threading, resource
def square(x): return x * x
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as p: print(p.map(square, [1, 2, 3]))
    t = threading.Thread(target=print, args=("thread",)); t.start(); t.join()
    p = subprocess.Popen(["sleep", "60"]); p.send_signal(signal.SIGTERM); print(p.wait())
    s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
    c = socket.create_connection(s.getsockname()); print(c.send(b"x"), len(socket.if_nameindex()) > 0)
    m, s = os.openpty(); os.write(s, b"tty"); print(os.read(m, 3))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.sync(); print(os.getrandom(4) != None)
`}, "[1, 4, 9]\nthread\n-15\n1 True\nb'tty'\nTrue\n"},
		{"node", testenv.Node, []string{"/usr/bin/node", "-e", `
const { Worker } = require("worker_threads"), cp = require("child_process"), os = require("os"), fs = require("fs");
fs.watch("/usr").close();
console.log(cp.execSync("echo child").toString().trim(), Object.keys(os.networkInterfaces()).length > 0, os.cpus().length > 0);
new Worker("require('worker_threads').parentPort.postMessage('worker')", { eval: true }).on("message", m => {
  console.log(m);
  const s = require("http").createServer((q, r) => r.end("served")).listen(0, "127.0.0.1", () =>
    fetch("http://127.0.0.1:" + s.address().port).then(r => r.text()).then(t => { console.log(t); process.exit(7); }));
});
`}, "child true true\nworker\nserved\n"},
		{"elixir", testenv.Elixir, []string{"/usr/bin/elixir", "-e", `
IO.inspect(1..3 |> Enum.map(fn x -> Task.async(fn -> x * x end) end) |> Enum.map(&Task.await/1))
IO.inspect(System.cmd("echo", ["port"]))
`}, "[1, 4, 9]\n{\"port\\n\", 0}\n"},
	} {
		for set := range ruleSets() {
			t.Run(p.name+"/"+set, func(t *testing.T) {
				testenv.Need(t, testenv.Linux, p.need)
				c := command(t, "exec", set, p.argv...)
				var stderr bytes.Buffer
				c.Stderr = &stderr
				out, err := c.Output()
				code := 0
				if e, ok := errors.AsType[*exec.ExitError](err); ok {
					code = e.ExitCode()
				} else if err != nil {
					t.Fatal(err)
				}
				want := 0
				if p.name == "node" {
					want = 7
				}
				if string(out) != p.want || code != want {
					t.Errorf("exit code %d, output %q; want %d, %q\n%s", code, out, want, p.want, stderr.String())
				}
			})
		}
	}
}

// TestLiveLandlock: in the domain programs use their own directories without restrictions and no
// others. A kernel without Landlock runs the first half only.
func TestLiveLandlock(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.Python)
	own, other := t.TempDir(), t.TempDir()
	for _, dir := range []string{own, other} {
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const script = `
import errno, os, socket, subprocess, sys, multiprocessing
own, other, parent = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.chdir(own)
os.mkdir("a"); os.mkdir("b"); open("a/x", "w").write("12345")
os.rename("a/x", "b/x"); os.link("b/x", "a/y"); os.truncate("b/x", 2); os.symlink("b/x", "l"); os.mkfifo("p")
for name in ("s", "\0sandbar-policy-%d" % os.getpid()):
    s = socket.socket(socket.AF_UNIX); s.bind(name); s.listen(); socket.socket(socket.AF_UNIX).connect(name)
open("run", "w").write("#!/bin/sh\necho ran\n"); os.chmod("run", 0o755)
print(subprocess.run(["./run"], capture_output=True).stdout, open("a/y").read())
print(subprocess.run("echo gone > /dev/null; echo $((1+1)) > /dev/stderr", shell=True, capture_output=True).stderr)
print(len(os.listdir("/")) > 0, open("/dev/null").isatty())
r, w = multiprocessing.Pipe(); p = multiprocessing.get_context("fork").Process(target=w.send, args=(1,)); p.start(); print(r.recv()); p.join()
p = subprocess.Popen(["sleep", "60"]); p.kill(); print(p.wait())
for what, f in {
    "read": lambda: open(other + "/file"), "write": lambda: open(other + "/file", "w"), "make": lambda: os.mkdir(other + "/d"),
    "remove": lambda: os.unlink(other + "/file"), "take": lambda: os.rename(other + "/file", own + "/stolen"), "give": lambda: os.link(own + "/file", other + "/given"),
    "truncate": lambda: os.truncate(other + "/file", 0), "settings": lambda: open("/etc/sandbar-test", "x"),
    "programs": lambda: open("/usr/sandbar-test", "x"), "signal": lambda: os.kill(parent, 0),
    "score": lambda: open("/proc/self/oom_score_adj", "w"),
}.items():
    try: f(); print(what, "done")
    except OSError as e: print(what, errno.errorcode[e.errno])
`
	c := command(t, "exec", "uncounted", "/usr/bin/python3", "-c", script, own, other, fmt.Sprint(os.Getpid()))
	c.Env = append(c.Env, childWritable+"="+own)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr.String())
	}
	const free = "b'ran\\n' 12\nb'2\\n'\nTrue False\n1\n-9\n"
	got, ok := strings.CutPrefix(string(out), free)
	if !ok {
		t.Fatalf("the program's own directory: %q, want %q\n%s", out, free, stderr.String())
	}
	version := landlockVersion()
	if version < 2 {
		return
	}
	for line := range strings.Lines(got) {
		what, answer, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case what == "signal" && version < 6, what == "truncate" && version < 3:
		case answer != "EACCES" && answer != "EPERM" && answer != "EXDEV" && answer != "EROFS":
			t.Errorf("%s: %s", what, answer)
		}
	}
	if b, err := os.ReadFile(filepath.Join(other, "file")); err != nil || string(b) != "text" {
		t.Errorf("the other directory's file is %q, %v", b, err)
	}
}
