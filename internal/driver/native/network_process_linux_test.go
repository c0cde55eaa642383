package native

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// stackProcesses returns the TCP/IP stack processes of this process.
func stackProcesses(t *testing.T) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		after := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])) // state, parent
		cmdline, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err == nil && after[0] != "Z" && after[1] == strconv.Itoa(os.Getpid()) && string(cmdline) == "sandbar-network\x00" {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// stackProcess waits for a stack process other than old and returns its pid.
func stackProcess(t *testing.T, old int) int {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if pids := stackProcesses(t); len(pids) == 1 && pids[0] != old {
			return pids[0]
		}
	}
	t.Fatalf("there is no process but %v", stackProcesses(t))
	return 0
}

// killStack kills the process and waits for the next.
func killStack(t *testing.T) {
	t.Helper()
	pid := stackProcess(t, 0)
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	stackProcess(t, pid)
}

// conversation is a program that reads requests and writes answers, one a line.
type conversation struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Scanner
}

func converse(t *testing.T, b driver.Sandbox, program string, args ...string) *conversation {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p, err := b.Start(t.Context(), sandbar.Cmd{Args: append([]string{"/usr/bin/python3", "-u", "-c", program}, args...)},
		driver.Stdio{Stdin: inR, Stdout: outW, Stderr: outW})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := p.Wait()
		outW.CloseWithError(err)
	}()
	t.Cleanup(func() {
		inW.Close()
		outR.Close()
		if err := b.Destroy(context.Background()); err != nil { // some programs do not end
			t.Error(err)
		}
		<-done
	})
	return &conversation{t, inW, bufio.NewScanner(outR)}
}

// read returns the next line.
func (c *conversation) read() string {
	c.t.Helper()
	if !c.out.Scan() {
		c.t.Fatalf("the program has ended: %v", c.out.Err())
	}
	return c.out.Text()
}

// ask sends a line and returns the answer.
func (c *conversation) ask(line string) string {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
	return c.read()
}

// worldServer starts a server on an address of this machine that is not a loopback address. The
// first byte of a connection selects its behaviour: send or receive without end, nothing, or echo.
func worldServer(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(worldAddress(t).String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				what, block := []byte{0}, make([]byte, 64<<10)
				c.Read(what)
				switch what[0] {
				case 's':
					for err == nil {
						_, err = c.Write(block)
					}
				case 'e':
					io.Copy(c, c)
				default:
					io.Copy(io.Discard, c)
				}
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func open(at netip.AddrPort) driver.Outbound {
	return driver.Outbound{AllowPrivate: []netip.Prefix{netip.PrefixFrom(at.Addr(), at.Addr().BitLen())}}
}

// transfers is a program with a receiving, a sending and some idle connections. It reports when
// they have ended, and connects again.
const transfers = `
import socket, sys, threading
def connect(what):
    s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); s.sendall(what); return s
moved = threading.Semaphore(0)
def receive(s):
    n = 0
    while True:
        b = s.recv(1 << 16)
        if not b: return
        n += len(b)
        if n >= 4 << 20: moved.release(); n = -1 << 60
def send(s):
    n = 0
    while True:
        s.sendall(bytes(1 << 16)); n += 1
        if n == 64: moved.release()
def wait(s):
    moved.release()
    while s.recv(1): pass
def until(f, s):
    try: f(s)
    except ConnectionError: pass
    except OSError as e: print("not by its end:", e)
jobs = [(receive, b"s"), (send, b"t")] + [(wait, b"w")] * 20
while True:
    threads = [threading.Thread(target=until, args=(f, connect(what))) for f, what in jobs]
    for t in threads: t.start()
    for t in threads: moved.acquire()
    print("moving")
    for t in threads: t.join()
    print("ended")
    s = connect(b"e"); s.sendall(b"x"); assert s.recv(1) == b"x"; s.close()
    print("again")
    sys.stdin.readline()
`

// When the stack's process dies, all connections of programs end, in all sandboxes, and new
// connections succeed. No resource leaks.
func TestNetworkProcessKilled(t *testing.T) {
	testenv.Need(t, testenv.Python)
	at := worldServer(t)
	d := newReaching(t, open(at))
	if pids := stackProcesses(t); len(pids) != 0 {
		t.Errorf("there is a process before a sandbox reaches out: %v", pids)
	}
	var all []*conversation
	for range 2 {
		b := newReacher(t, d, reaching(d))
		all = append(all, converse(t, b, transfers, at.Addr().String(), fmt.Sprint(at.Port())))
	}
	idle := newReacher(t, d, reaching(d))
	if len(stackProcesses(t)) != 1 {
		t.Errorf("three sandboxes have the processes %v", stackProcesses(t))
	}
	fds := 0
	for i := range 3 {
		for _, c := range all {
			if got := c.read(); got != "moving" {
				t.Fatalf("got %q", got)
			}
		}
		killStack(t)
		for _, c := range all {
			if got := c.read(); got != "ended" {
				t.Fatalf("got %q", got)
			}
			if got := c.read(); got != "again" {
				t.Fatalf("got %q", got)
			}
		}
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d descriptors", len(list))
		if i > 0 && len(list) > fds+8 { // the number of worldServer's connections varies
			t.Errorf("%d descriptors were open, %d are", fds, len(list))
		}
		fds = len(list)
		for _, c := range all {
			io.WriteString(c.in, "\n")
		}
	}
	for _, c := range all {
		c.read() // moving: its end is that of the sandbox
	}
	got := run(t, idle, fmt.Sprintf("import socket\ns = socket.create_connection((%q, %d)); s.sendall(b'ex'); print(s.recv(1))", at.Addr(), at.Port()))
	if got != "b'x'\n" {
		t.Errorf("a sandbox that did nothing so far: %q", got)
	}
}

// The byte counts of a sandbox survive the end of the stack's process.
func TestNetworkBytesSurvive(t *testing.T) {
	testenv.Need(t, testenv.Python)
	at := worldServer(t)
	o := open(at)
	o.MaxBytes = 5 << 18
	d := newReaching(t, o)
	c := converse(t, newReacher(t, d, reaching(d)), `
import socket, sys
for line in sys.stdin:
    try:
        s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); s.sendall(b"e")
        for i in range(int(line)):
            s.sendall(bytes(1 << 15)); n = 0
            while n < 1 << 15:
                b = s.recv((1 << 15) - n)
                if not b: raise ConnectionResetError()
                n += len(b)
        print("done")
    except ConnectionError: print("cut")
`, at.Addr().String(), fmt.Sprint(at.Port()))
	for i, want := range []string{"done", "done", "cut", "cut"} { // half a MiB each, of one and a quarter
		if got := c.ask("8"); got != want {
			t.Errorf("transfer %d: %q, want %q", i, got, want)
		}
		killStack(t)
	}
	other := converse(t, newReacher(t, d, reaching(d)), "import socket, sys\ninput(); s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); print('connected')",
		at.Addr().String(), fmt.Sprint(at.Port()))
	if got := other.ask(""); got != "connected" {
		t.Errorf("a neighbour: %q", got)
	}
}

// The stack's process is confined, and ends with the driver.
func TestNetworkProcess(t *testing.T) {
	d := newReaching(t, driver.Outbound{})
	b, err := d.Create(t.Context(), sandbar.NewID(), reaching(d))
	if err != nil {
		t.Fatal(err)
	}
	pid := stackProcess(t, 0)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Seccomp:\t2\n", "NoNewPrivs:\t1\n", "CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("there is no %q in\n%s", want, status)
		}
	}
	if os.Getuid() == 0 && strings.Contains(string(status), "Uid:\t0") {
		t.Error("it is root")
	}
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmRSS") || strings.HasPrefix(line, "RssAnon") {
			t.Log(strings.TrimSpace(line))
		}
	}
	if os.Getuid() == 0 { // it is not dumpable, so only root may read its /proc files
		links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil || len(links) == 0 {
			t.Fatal(links, err)
		}
		for _, l := range links {
			to, err := os.Readlink(l)
			if err != nil {
				continue // closed since
			}
			ok := false
			for _, kind := range []string{"socket:", "pipe:", "anon_inode:", "/dev/null", "/dev/net/tun", "/memfd:sandbar-ledger"} {
				ok = ok || strings.HasPrefix(to, kind)
			}
			if !ok {
				t.Errorf("it has a descriptor of %s", to)
			}
		}
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.net.close(); err != nil {
		t.Fatal(err)
	}
	if pids := stackProcesses(t); len(pids) != 0 {
		t.Errorf("the driver is closed, and there are %v", pids)
	}
}
