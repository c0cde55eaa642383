package e2b

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// E2B's own sandboxes have a root: the agent runs as root, and programs as another user. Here it is
// started in the same way in a mount and a PID namespace, in which it is not the first process.
func TestAgentAsRoot(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.Root)
	d := newDriver(t, serviceURL(t)) // for its filters
	const file = "/tmp/.sandbar-x/sandbar-agent"
	tmpl := template{uid: 1000, gid: 1000, env: []string{"FROM=template"}}
	conn, theirs := connected(t)
	program, err := os.Open(testenv.Build(t, "cmd/sandbar-agent"))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	const script = `mount --make-rprivate / && mount -t proc proc /proc && mount -t tmpfs t /home && mount -t tmpfs t /tmp && mkdir ` + "/tmp/.sandbar-x" +
		` && cat <&3 >` + file + ` && exec 3<&- && /bin/sh "$@"; exit $?`
	cmd := exec.Command("/bin/sh", append([]string{"-c", script, "sh"}, startArgs(tmpl, file)...)...)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.ExtraFiles = []string{"PATH=" + os.Getenv("PATH")}, "/", theirs, theirs, []*os.File{program}
	var said output
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	kill := func(context.Context) error { // the kernel ends the namespace with its first process
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		return nil
	}
	b, err := client.New(ctx, conn, client.Options{Destroy: kill, Enforced: d.caps.Enforced})
	if err != nil {
		kill(ctx)
		t.Fatalf("%v; it said %q", err, said.String())
	}
	defer b.Destroy(ctx)
	setup, err := d.setup(spec(), tmpl, file)
	if err == nil {
		_, _, err = b.Setup(ctx, setup)
	}
	if err != nil {
		t.Fatalf("%v; it said %q", err, said.String())
	}

	for script, want := range map[string]string{
		"id -u; id -g; id -G":                      "1000\n1000\n1000\n",
		"echo $FROM $HOME; pwd":                    "template /home/user\n/home/user\n",
		"grep -E 'CapEff|NoNew' /proc/self/status": "CapEff:\t0000000000000000\nNoNewPrivs:\t1\n",
		"echo x > f && stat -c %u:%g f .":          "1000:1000\n1000:1000\n",
		"cat /etc/shadow 2>&1 >/dev/null | grep -c denied; ls -d " + filepath.Dir(file) + " 2>/dev/null":      "1\n",
		"kill -9 -1; for p in /proc/[0-9]*; do kill -9 ${p#/proc/} 2>/dev/null && echo killed $p; done; true": "",
	} {
		var out output
		if r, err := wait(t, start(t, b, script, &out)); err != nil || script[:4] != "kill" && out.String() != want {
			t.Errorf("%s: %q, %+v, %v; want %q", script, out.String(), r, err, want)
		}
	}
	w, err := b.FS().Create(ctx, "written", sandbar.CreateOptions{})
	if err == nil {
		_, err = io.WriteString(w, "x")
	}
	if err == nil {
		err = w.Commit()
	}
	var out output
	if r, _ := wait(t, start(t, b, "stat -c %u written; rm written; exit 3", &out)); err != nil || r.ExitCode != 3 || out.String() != "1000\n" {
		t.Errorf("a file of the file API: %v, %+v, %q", err, r, out.String())
	}

	p := start(t, b, "setsid sleep 300 & setsid sh -c 'sleep 300 & sleep 300' & exec sleep 300", io.Discard)
	other := start(t, b, "sleep 300", io.Discard)
	time.Sleep(200 * time.Millisecond) // for the processes to start; KillTree is right without it
	if err := p.KillTree(); err != nil {
		t.Error(err)
	}
	var left output
	wait(t, start(t, b, "grep -l '^sleep' /proc/[0-9]*/comm | wc -l", &left))
	if strings.TrimSpace(left.String()) != "1" {
		t.Errorf("%s of the programs' processes are left, want the other program", strings.TrimSpace(left.String()))
	}
	if err := other.Signal(9); err != nil {
		t.Error(err)
	}
	if r, err := wait(t, other); err != nil || r.Signal != 9 {
		t.Errorf("%+v, %v", r, err)
	}
}

// connected returns a connection that cannot pass descriptors, and its other end.
func connected(t *testing.T) (net.Conn, *os.File) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	theirs, err := other.(*net.UnixConn).File()
	if err != nil {
		t.Fatal(err)
	}
	return struct{ net.Conn }{ours}, theirs
}
