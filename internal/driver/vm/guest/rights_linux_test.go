package guest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
)

// probeProgram is the path of this test binary in a machine, where it does what its argument says.
const probeProgram = "/bin/probe"

func TestMain(m *testing.M) {
	if os.Args[0] != probeProgram {
		os.Exit(m.Run())
	}
	switch os.Args[1] {
	case "rights":
		tryRights()
	case "memory":
		var all [][]byte
		for {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			all = append(all, b)
			runtime.KeepAlive(all)
		}
	}
}

// testRights checks what a program of a machine, which is its user 0, can and cannot do.
func testRights(t *testing.T, sh shell) {
	for line := range strings.Lines(sh(probeProgram + " rights")) {
		t.Error(strings.TrimSpace(line))
	}
	if got := sh("unshare -r true 2>&1; echo $?"); got != "unshare: unshare failed: No space left on device\n1" {
		t.Errorf("a new user namespace: %s", got)
	}
	if got := sh("cat /proc/1/comm"); got != "sandbar-agent" {
		t.Errorf("process 1 is %q after the attempts", got)
	}
}

// tryRights prints a line for each outcome that is not as it should be.
func tryRights() {
	writable()
	const file = "/tmp/rights"
	write := func(path, text string) error {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteString(text)
		return err
	}
	limit := func(pid, resource int) error { return unix.Prlimit(pid, resource, &unix.Rlimit{Cur: 1, Max: 1}, nil) }
	node := func(path string, kind uint32, major, minor uint32) error {
		return unix.Mknod(path, kind|0o600, int(unix.Mkdev(major, minor)))
	}
	capabilities := func(set uint32) error {
		data := [2]unix.CapUserData{{Effective: set, Permitted: set, Inheritable: set}}
		return unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0])
	}
	all := []struct {
		name string
		err  error
		want error // nil for success
	}{
		{"grow the disk", unix.Mount("", "/tmp", "", unix.MS_REMOUNT, "size=1g"), unix.EPERM},
		{"grow the disk by its root", unix.Mount("", "/", "", unix.MS_REMOUNT, ""), unix.EPERM},
		{"mount a tmpfs", unix.Mount("tmpfs", "/tmp", "tmpfs", 0, ""), unix.EPERM},
		{"unmount /proc/sys", unix.Unmount("/proc/sys", unix.MNT_DETACH), unix.EPERM},
		{"make the disk's node", node("/tmp/disk", unix.S_IFBLK, 254, 0), unix.EPERM},
		{"make the port's node", node("/tmp/port", unix.S_IFCHR, 247, 1), unix.EPERM},
		{"make a file in /dev", write("/dev/file", "x"), unix.ENOENT},
		{"make a link in /dev", unix.Symlink("/tmp", "/dev/link"), unix.EROFS},
		{"make /dev/mem", node("/tmp/mem", unix.S_IFCHR, 1, 1), unix.EPERM},
		{"reboot", unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART), unix.EPERM},
		{"power off", unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF), unix.EPERM},
		{"power off by a key", write("/proc/sysrq-trigger", "o"), unix.EROFS},
		{"load a module", unix.InitModule([]byte("\x7fELF"), ""), unix.EPERM},
		{"have the kernel execute a program", write("/proc/sys/kernel/core_pattern", "|/tmp/x"), unix.EROFS},
		{"name the program that loads modules", write("/proc/sys/kernel/modprobe", "/tmp/x"), unix.EROFS},
		{"make a mount namespace", unix.Unshare(unix.CLONE_NEWNS), unix.EPERM},
		{"set the clock", unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{Sec: 1}), unix.EPERM},
		{"set the host name", unix.Sethostname([]byte("x")), unix.EPERM},
		{"kill the agent", unix.Kill(1, unix.SIGKILL), nil}, // without effect
		{"stop the agent", unix.Kill(1, unix.SIGSTOP), nil}, // without effect
		{"trace the agent", unix.PtraceSeize(1), unix.EPERM},
		{"read the agent's memory", firstErr(os.ReadFile("/proc/1/mem")), unix.EACCES},
		{"read the agent's environment", firstErr(os.ReadFile("/proc/1/environ")), unix.EACCES},
		{"limit the agent's processor time", limit(1, unix.RLIMIT_CPU), unix.EPERM},
		{"change the tag", limit(0, unix.RLIMIT_LOCKS), unix.EPERM},
		{"go below the agent's OOM score", write("/proc/self/oom_score_adj", "-1"), unix.EACCES},
		{"gain all capabilities", capabilities(^uint32(0)), unix.EPERM},

		{"write a file", os.WriteFile(file, nil, 0o600), nil},
		{"give it away", unix.Chown(file, 1234, 1234), nil},
		{"change its mode", unix.Chmod(file, 0o400), nil},
		{"write it all the same", write(file, "x"), nil},
		{"serve port 80", listen("tcp4", "127.0.0.1:80"), nil},
		{"ping", listen("ip4:icmp", "127.0.0.1"), nil},
		{"change the root", unix.Chroot("/tmp"), nil},
		{"find the file there", write("/rights", "x"), nil},
		{"remove it", os.Remove("/rights"), nil},
		{"become another group", unix.Setresgid(1234, 1234, 1234), nil},
		{"become another user", unix.Setresuid(1234, 1234, 1234), nil},
		{"become user 0 again", unix.Setuid(0), unix.EPERM},
	}
	for _, x := range all {
		if !errors.Is(x.err, x.want) {
			fmt.Printf("%s: %v, want %v\n", x.name, x.err, x.want)
		}
	}
}

func firstErr(_ []byte, err error) error { return err }

func listen(network, address string) error {
	var l io.Closer
	var err error
	if network == "tcp4" {
		l, err = net.Listen(network, address)
	} else {
		l, err = net.ListenPacket(network, address)
	}
	if err == nil {
		l.Close()
	}
	return err
}

// writable prints the files of /proc that a program can write and that belong to no process.
func writable() {
	filepath.WalkDir("/proc", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // a process that has ended
		}
		if strings.Count(path, "/") == 2 && strings.Trim(e.Name(), "0123456789") == "" {
			return fs.SkipDir
		}
		// User 0 can open the others too, but they have no function for writing.
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.Mode()&0o222 != 0 && unix.Access(path, unix.W_OK) == nil {
			fmt.Println(path, "can be written")
		}
		return nil
	})
}

// testPIDs is the limit of processes of the machine under test.
const testPIDs = 32

// outcome runs a script and returns its end, its error output and the process.
func outcome(t *testing.T, box *client.Sandbox, script string) (sandbar.Result, string, driver.Process) {
	t.Helper()
	var stderr strings.Builder
	p, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", script}}, driver.Stdio{Stderr: &stderr})
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	end, err := p.Wait()
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return end, stderr.String(), p
}

// testMemory checks that a program that takes all memory is killed and told apart from others.
func testMemory(t *testing.T, box *client.Sandbox, sh shell) {
	other, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"sleep", "1000"}}, driver.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	end, stderr, _ := outcome(t, box, probeProgram+" memory")
	if end.Outcome != sandbar.OutOfMemory || end.OOMKills == 0 {
		t.Errorf("a program without bound: %+v: %s", end, stderr)
	}
	if end, _, _ := outcome(t, box, "kill -9 $$"); end.Outcome != sandbar.Signaled {
		t.Errorf("a killed program afterwards: %+v", end)
	}
	if err := other.Signal(9); err != nil {
		t.Error(err)
	}
	if end, err := other.Wait(); err != nil || end.Signal != 9 {
		t.Errorf("the other program: %+v, %v", end, err)
	}
	if got := sh("cat /proc/1/oom_score_adj /proc/self/oom_score_adj"); got != "-1000\n0" {
		t.Errorf("the OOM scores of the agent and a program are %q", got)
	}
}

// testProcesses checks that a fork bomb ends at the limit.
func testProcesses(t *testing.T, box *client.Sandbox, sh shell) {
	end, stderr, p := outcome(t, box, "i=0; while test $i -lt 100; do sleep 1000 & i=$((i+1)); done")
	if end.ExitCode == 0 || !strings.Contains(stderr, "ork") {
		t.Errorf("100 processes: %+v: %s", end, stderr)
	}
	held := strings.Count(sh("for f in /proc/[0-9]*/comm; do read name <$f && echo $name; done"), "sleep")
	if held < testPIDs/2 || held >= testPIDs {
		t.Errorf("%d processes exist, want nearly %d", held, testPIDs)
	}
	if err := p.KillTree(); err != nil {
		t.Error(err)
	}
	if got := sh("echo alive"); got != "alive" {
		t.Errorf("afterwards a program prints %q", got)
	}
}
