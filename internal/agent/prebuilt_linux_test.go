package agent

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// The agent in a sandbox that a container runtime made, here a shell script, over each connection
// that a runtime can provide.
func TestMadeElsewhere(t *testing.T) {
	testenv.Need(t, testenv.UserNS)
	binary := testenv.Build(t, "cmd/sandbar-agent")
	for _, mode := range []string{ModeSocket, ModeStream, ModeStdio, ModeDial} {
		t.Run(mode, func(t *testing.T) {
			m := makeSandbox(t, binary, mode)
			b, err := client.New(t.Context(), m.conn, client.Options{Destroy: m.destroy})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := b.Destroy(context.Background()); err != nil {
					t.Error(err)
				}
			}()
			threads, tun, err := b.Setup(t.Context(), &wire.Setup{
				Prebuilt: true, Hostname: "not used", Root: "/nowhere", UID: m.uid, GID: m.uid, TagResource: unix.RLIMIT_LOCKS,
				Mounts: []wire.Mount{{Kind: wire.MountBind, Source: "/nowhere", Target: "/nowhere"}},
				Env:    []string{"WHO=me"}, Dir: "/",
				Rlimits: []wire.Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 64, Hard: 64}},
			})
			if err != nil || threads < 2 || tun >= 0 {
				t.Fatalf("%d threads, device %d, %v", threads, tun, err)
			}
			lookAround(t, b, m)
			lookAtTrees(t, b)
			lookAtFiles(t, b)
			lookAtCounters(t, b)
		})
	}
}

// made is a sandbox that the test makes as a container runtime does.
type made struct {
	conn net.Conn
	cmd  *exec.Cmd
	uid  uint32 // the home directory, as programs see it
	dir  string // writable by programs
}

// makeSandbox starts the agent as PID 1 of namespaces with a /proc.
func makeSandbox(t *testing.T, binary, mode string) *made {
	t.Helper()
	dir := t.TempDir()
	// Any user may enter it: as root, the sandbox has another user.
	for d := dir; len(d) > len(os.TempDir()); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, Name) // where that user can reach it
	if b, err := os.ReadFile(binary); err != nil || os.WriteFile(program, b, 0o755) != nil {
		t.Fatal("copying the agent failed")
	}
	m := &made{dir: dir}
	args, namespaces := mode, uintptr(unix.CLONE_NEWUSER|unix.CLONE_NEWNS|unix.CLONE_NEWPID|unix.CLONE_NEWNET)
	var relay *net.TCPListener
	if mode == ModeDial {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		relay = l.(*net.TCPListener)
		t.Cleanup(func() { relay.Close() })
		args += " " + strconv.Itoa(relay.Addr().(*net.TCPAddr).Port)
		namespaces &^= unix.CLONE_NEWNET
	}
	m.cmd = exec.Command("/bin/sh", "-c", "mount -t proc proc /proc && cd / && exec "+program+" "+args)
	m.cmd.Stderr = os.Stderr
	m.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  namespaces,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	if os.Geteuid() == 0 {
		m.uid = 1000
		m.cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: 0x6fff0000, Size: 1 << 16}}
		m.cmd.SysProcAttr.GidMappings = m.cmd.SysProcAttr.UidMappings
		m.cmd.SysProcAttr.GidMappingsEnableSetgroups = true
		m.cmd.SysProcAttr.Credential = &syscall.Credential{}
	}
	connect := m.connection(t, mode, relay)
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.destroy(context.Background()) })
	m.conn = connect()
	return m
}

// connection prepares a connection to the agent. The connection is open after the agent's start.
func (m *made) connection(t *testing.T, mode string, relay *net.TCPListener) (connect func() net.Conn) {
	t.Helper()
	fail := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	switch mode {
	case ModeStdio:
		in, err := m.cmd.StdinPipe()
		fail(err)
		out, err := m.cmd.StdoutPipe()
		fail(err)
		return func() net.Conn { return &pipeConn{in: in.(*os.File), out: out.(*os.File)} }
	case ModeDial:
		return func() net.Conn { // the agent has started
			defer relay.Close() // a second connection is never accepted
			fail(relay.SetDeadline(time.Now().Add(time.Minute)))
			c, err := relay.Accept()
			fail(err)
			return c
		}
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	fail(err)
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	m.cmd.ExtraFiles = []*os.File{theirs}
	return func() net.Conn {
		theirs.Close()
		defer ours.Close()
		c, err := net.FileConn(ours)
		fail(err)
		if mode == ModeStream {
			return struct{ net.Conn }{c} // not a *net.UnixConn, so it passes no descriptors
		}
		return c
	}
}

// destroy ends the sandbox as a runtime does: it kills PID 1.
func (m *made) destroy(context.Context) error {
	if m.cmd.ProcessState == nil {
		_ = m.cmd.Process.Kill()
		_ = m.cmd.Wait() // the error says "killed"
	}
	return nil
}

// pipeConn is a connection of two pipes.
type pipeConn struct{ in, out *os.File }

func (c *pipeConn) Read(b []byte) (int, error)         { return c.out.Read(b) }
func (c *pipeConn) Write(b []byte) (int, error)        { return c.in.Write(b) }
func (c *pipeConn) Close() error                       { c.in.Close(); return c.out.Close() }
func (c *pipeConn) LocalAddr() net.Addr                { return &net.UnixAddr{} }
func (c *pipeConn) RemoteAddr() net.Addr               { return &net.UnixAddr{} }
func (c *pipeConn) SetReadDeadline(t time.Time) error  { return c.out.SetReadDeadline(t) }
func (c *pipeConn) SetWriteDeadline(t time.Time) error { return c.in.SetWriteDeadline(t) }
func (c *pipeConn) SetDeadline(t time.Time) error {
	return c.SetReadDeadline(t)
}

// shell runs a script to its end and returns its output.
func shell(t *testing.T, b driver.Sandbox, script, input string) string {
	t.Helper()
	var out, errs bytes.Buffer // each stream has a writing goroutine
	p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", script}},
		driver.Stdio{Stdin: strings.NewReader(input), Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Wait()
	if err != nil || r.Outcome != sandbar.Exited || r.ExitCode != 0 {
		t.Errorf("%s: %+v, %v", script, r, err)
	}
	return out.String() + errs.String()
}

// lookAround: a program has no rights and none of the agent's descriptors, and the sandbox is as
// the runtime made it.
func lookAround(t *testing.T, b driver.Sandbox, m *made) {
	t.Helper()
	status := shell(t, b, "cat; cat /proc/self/status; ls -l /proc/self/fd/; id -u; echo $WHO; ulimit -n", "what is sent\n")
	for _, want := range []string{"what is sent\n", "NoNewPrivs:\t1\n", "CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n",
		"CapBnd:\t0000000000000000\n", "CapInh:\t0000000000000000\n", "CapAmb:\t0000000000000000\n", "\nme\n64\n"} {
		if !strings.Contains(status, want) {
			t.Errorf("%q is not in what a program says:\n%s", want, status)
		}
	}
	if strings.Contains(status, "socket:") || strings.Contains(status, filepath.Join(m.dir, "s")) {
		t.Errorf("a program has a connection:\n%s", status)
	}
	if got := shell(t, b, "kill -9 1; readlink -v /proc/1/fd/0 2>&1; ls /proc/1/cwd/ 2>&1; true", ""); strings.Count(got, "denied") != 2 {
		t.Errorf("looking at the agent: %s", got)
	}
}

// lookAtTrees: KillTree ends all processes that a program started, in any session.
func lookAtTrees(t *testing.T, b driver.Sandbox) {
	t.Helper()
	p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", "(setsid sleep 1000 &); (setsid sh -c 'trap \"\" TERM; sleep 1000; :' &); sleep 1000"}}, driver.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	// Found by their arguments. Zombies have none. A process may end after the shell has listed it.
	const count = `cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\000' '\n' | grep -c '^sleep$'; true`
	for end := time.Now().Add(time.Minute); shell(t, b, count, "") != "3\n"; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the programs do not start")
		}
	}
	if err := p.KillTree(); err != nil {
		t.Error(err)
	}
	if got := shell(t, b, count, ""); got != "0\n" {
		t.Errorf("after KillTree %s run", got)
	}
	if r, err := p.Wait(); err != nil || r.Outcome != sandbar.Signaled && r.ExitCode != 128+int(unix.SIGKILL) { // the error of the program, or of the shell that waited for it
		t.Errorf("the program: %+v, %v", r, err)
	}
}

// lookAtFiles: files are read and written with the rights of the sandbox's user.
func lookAtFiles(t *testing.T, b *client.Sandbox) {
	t.Helper()
	fs := b.FS()
	where := strings.TrimSpace(shell(t, b, "mktemp -d", ""))
	w, err := fs.Create(t.Context(), where+"/f", sandbar.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, strings.Repeat("0123456789", 100_000)); err != nil {
		t.Error(err)
	}
	if err := w.Commit(); err != nil {
		t.Error(err)
	}
	if got := shell(t, b, "wc -c < "+where+"/f; stat -c %u "+where+"/f; id -u", ""); !strings.HasPrefix(got, "1000000\n") || strings.Split(got, "\n")[1] != strings.Split(got, "\n")[2] {
		t.Errorf("the file that was sent: %s", got)
	}
	shell(t, b, "rm -r "+where, "")
	if _, err := fs.Create(t.Context(), "/proc/sys/kernel/core_pattern", sandbar.CreateOptions{}); err == nil {
		t.Error("a file of the host's root can be written")
	}
}

// If the plan has another user than the agent and the agent may not change its user, the plan is
// refused before any program runs.
func TestMadeElsewhereForAnother(t *testing.T) {
	testenv.Need(t, testenv.UserNS)
	m := makeSandbox(t, testenv.Build(t, "cmd/sandbar-agent"), ModeStream)
	b, err := client.New(t.Context(), m.conn, client.Options{Destroy: m.destroy})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Destroy(context.Background())
	_, _, err = b.Setup(t.Context(), &wire.Setup{Prebuilt: true, UID: 1 << 20, GID: 1 << 20, TagResource: unix.RLIMIT_LOCKS, Dir: "/"})
	if sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Errorf("an agent took a plan for an id that it does not have: %v", err)
	}
}

// lookAtCounters compares the files of FSCounters with those of this process, whose mounts the
// sandbox has.
func lookAtCounters(t *testing.T, b *client.Sandbox) {
	t.Helper()
	got, err := b.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range wire.CounterFiles() {
		if _, err := os.ReadFile(path); (err == nil) != (got[i] != "") {
			t.Errorf("%s: %q in the sandbox, and here %v", path, got[i], err)
		}
	}
}
