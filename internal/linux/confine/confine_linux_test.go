package confine

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// modeVariable makes the test binary a confined process, which tries operations and prints one
// result per line.
const modeVariable = "CONFINE_TEST"

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeVariable); mode == "network" {
		tryNetwork()
		os.Exit(0)
	} else if mode != "" {
		try(mode, os.Getenv(modeVariable+"_DIR"))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func try(mode, dir string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // before the confinement: an open descriptor stays open
	tell("listen before", err)
	if err == nil {
		listener.Close()
	}
	tell("worker", Worker(dir))
	if mode == "runner" {
		tell("runner", Runner())
	}
	_, err = os.ReadFile(filepath.Join(dir, "readable"))
	tell("read what is allowed", err)
	_, err = os.ReadFile("/etc/passwd")
	tell("read a file of the host", err)
	_, err = os.ReadDir("/")
	tell("list the host's root", err)
	tell("write", os.WriteFile(filepath.Join(dir, "written"), nil, 0o600))
	_, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	tell("socket", err)
	_, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	tell("unix socket", err)
	tell("signal another", unix.Kill(os.Getppid(), 0))
	tell("start a program of the host", start("/bin/true"))
	tell("start itself", start("/proc/self/exe"))
	tell("ptrace", unix.PtraceAttach(os.Getppid()))
	tell("mount", unix.Mount("none", dir, "tmpfs", 0, ""))
	tell("unshare", unix.Unshare(unix.CLONE_NEWUSER))
	var l unix.Rlimit
	tell("ask for limits", unix.Getrlimit(unix.RLIMIT_CORE, &l))
	fmt.Println("core dumps: ", l.Cur)
}

func tell(what string, err error) error {
	if err == nil {
		fmt.Println(what + ": done")
	} else {
		fmt.Println(what + ": refused")
	}
	return err
}

func start(program string) error {
	cmd := exec.Command(program, "-test.list=^$")
	cmd.Env = []string{"GOMAXPROCS=1"}
	in, err := cmd.StdinPipe() // otherwise os/exec opens /dev/null
	if err != nil {
		return err
	}
	in.Close()
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}

// TestConfined: the allowed and the denied operations of a worker and a runner.
func TestConfined(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	if _, _, e := syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0); e == syscall.ENOTSUP {
		t.Log("with cgo nothing is taken; the test is that it says so without an error")
		return
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "readable"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	files := "refused"
	if abi, _, e := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); e != 0 {
		t.Logf("this kernel has no Landlock (%v, version %d): files of the host can be read", e, abi)
		files = "done"
	}
	for _, mode := range []string{"worker", "runner"} {
		t.Run(mode, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), modeVariable+"="+mode, modeVariable+"_DIR="+dir)
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			itself := "done"
			if mode == "runner" {
				itself = "refused"
			}
			for what, want := range map[string]string{
				"listen before": "done", "worker": "done", "read what is allowed": "done",
				"read a file of the host": files, "list the host's root": files,
				"write": "refused", "socket": "refused", "unix socket": "refused", "signal another": "refused",
				"start itself": itself, "ptrace": "refused", "mount": "refused", "unshare": "refused",
				"ask for limits": "done", "core dumps": " 1",
			} {
				if line := what + ": " + want; !strings.Contains(string(out), line+"\n") {
					t.Errorf("there is no line %q in\n%s", line, out)
				}
			}
			if files == "refused" && !strings.Contains(string(out), "start a program of the host: refused\n") {
				t.Errorf("a program of the host could be started:\n%s", out)
			}
		})
	}
}
