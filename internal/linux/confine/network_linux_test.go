package confine

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// tryNetwork is the confined network process: it tries operations, prints the results, and waits
// until the test has examined it.
func tryNetwork() {
	world, err := net.Listen("tcp", "127.0.0.1:0") // before the confinement, which denies listening
	if err != nil {
		fmt.Println(err)
		return
	}
	memory, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		fmt.Println(err)
		return
	}
	tell("confine", Network())
	for _, a := range []string{"tcp", "udp"} {
		c, err := net.Dial(a, world.Addr().String())
		if tell("connect by "+a, err) == nil {
			c.Close()
		}
	}
	_, err = unix.Pwrite(memory, make([]byte, 100), 1<<20)
	tell("write to what it has", err)
	open := func(path string, flags int) error {
		_, err := unix.Open(path, flags, 0o600)
		return err
	}
	tell("open a file", open("/etc/passwd", unix.O_RDONLY))
	tell("open a path", open("/", unix.O_PATH))
	tell("open itself", open("/proc/self/exe", unix.O_RDONLY))
	tell("make a file", open("/tmp/sandbar-confine-test", unix.O_CREAT|unix.O_WRONLY))
	_, err = unix.Openat2(unix.AT_FDCWD, "/etc/passwd", &unix.OpenHow{})
	tell("openat2", err)
	tell("stat", unix.Stat("/etc/passwd", &unix.Stat_t{}))
	tell("exec", syscall.Exec("/proc/self/exe", []string{"x"}, nil))
	_, err = syscall.ForkExec("/bin/true", []string{"true"}, nil)
	tell("fork", err)
	socket := func(family, kind, protocol int) error {
		_, err := unix.Socket(family, kind, protocol)
		return err
	}
	tell("a raw socket", socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP))
	tell("a ping socket", socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP))
	tell("MPTCP", socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP))
	tell("netlink", socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE))
	tell("a UNIX socket", socket(unix.AF_UNIX, unix.SOCK_STREAM, 0))
	tell("vsock", socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0))
	_, err = net.Listen("tcp", "127.0.0.1:0")
	tell("listen", err)
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	tell("a TCP socket", err)
	tell("bind", unix.Bind(s, &unix.SockaddrInet4{}))
	tell("another protocol above TCP", unix.SetsockoptString(s, unix.IPPROTO_TCP, unix.TCP_ULP, "tls"))
	tell("a socket filter", unix.SetsockoptSockFprog(s, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{}))
	tell("keep alive", unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1))
	tell("another ioctl", unix.IoctlSetInt(s, unix.SIOCGIFCONF, 0))
	tell("signal another", unix.Kill(os.Getppid(), 0))
	tell("signal a thread of another", unix.Tgkill(os.Getppid(), os.Getppid(), 0))
	tell("ptrace", unix.PtraceAttach(os.Getppid()))
	tell("a namespace", unix.Unshare(unix.CLONE_NEWUSER))
	tell("an id", unix.Setuid(0))
	_, err = unix.MemfdCreate("more", 0)
	tell("a memory file", err)
	_, err = unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	tell("new code", err)
	_, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&[120]byte{})), 0)
	tell("io_uring", errno(e))
	_, _, e = unix.Syscall(unix.SYS_BPF, 0, 0, 0)
	tell("bpf", errno(e))
	fmt.Println("tried")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test has examined it
}

func errno(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// TestNetworkConfined: the allowed and the denied operations of the process of the TCP/IP stacks,
// by its own attempts and by its /proc files.
func TestNetworkConfined(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	if _, _, e := syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0); e == syscall.ENOTSUP {
		t.Log("with cgo nothing is taken; the test is that it says so without an error")
		return
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), modeVariable+"=network"), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	var lines []string
	for r := bufio.NewScanner(out); r.Scan() && r.Text() != "tried"; {
		lines = append(lines, r.Text())
	}
	can := map[string]bool{"confine": true, "connect by tcp": true, "connect by udp": true, "write to what it has": true, "a TCP socket": true, "keep alive": true}
	if len(lines) < 34 {
		t.Errorf("only this was tried: %q", lines)
	}
	for _, l := range lines {
		what, came, _ := strings.Cut(l, ": ")
		if can[what] != (came == "done") {
			t.Errorf("%s", l)
		}
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]string{}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		status[name] = strings.Join(strings.Fields(value), " ")
	}
	id := fmt.Sprint(os.Getuid())
	if os.Getuid() == 0 {
		id = fmt.Sprint(networkID)
		if status["Groups"] != "" {
			t.Errorf("groups %q", status["Groups"])
		}
	}
	const none = "0000000000000000"
	for name, want := range map[string]string{"Seccomp": "2", "NoNewPrivs": "1", "CapEff": none, "CapPrm": none, "CapInh": none, "CapAmb": none,
		"Uid": strings.Join([]string{id, id, id, id}, " ")} {
		if status[name] != want {
			t.Errorf("%s is %q, want %q", name, status[name], want)
		}
	}
}
