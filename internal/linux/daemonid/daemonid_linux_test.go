package daemonid

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

func TestOwners(t *testing.T) {
	me := ForPID(os.Getpid())
	if me == "" || !Alive(me) {
		t.Errorf("this process is called %q; alive: %v", me, Alive(me))
	}
	if again := ForPID(os.Getpid()); again != me {
		t.Errorf("this process is called %q and %q", me, again)
	}
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	name := ForPID(other.Process.Pid)
	if name == "" || name == me || !Alive(name) {
		t.Errorf("a process that runs is called %q; alive: %v", name, Alive(name))
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// A zombie counts as dead too, but the test cannot observe when the process becomes one.
	_ = other.Wait()
	if Alive(name) {
		t.Errorf("%q is said to be alive after its end", name)
	}
	// The same pid with another start time.
	parts := strings.Split(me, "-")
	if Alive(parts[0] + "-1-" + parts[2]) {
		t.Error("a process with this one's pid that started at another time is said to be alive")
	}
	if elsewhere := "999999999-1-" + parts[2] + "1"; !Alive(elsewhere) {
		t.Errorf("%q, of another PID namespace, is said to be dead: what it owns would be removed", elsewhere)
	}
	here := parts[2]
	for _, strange := range []string{"", "-", "--", "x-1-" + here, "1-x-" + here, "-5-7-" + here, "0-0-" + here, "1", "5-7", "5-7-", "5-7-" + here + "-", "user.slice"} {
		if !Alive(strange) {
			t.Errorf("%q, which is no name, is said to be dead: what it owns would be removed", strange)
		}
	}
	if ForPID(-1) != "" {
		t.Errorf("no process is called %q", ForPID(-1))
	}
}

func TestHere(t *testing.T) {
	here := Scope()
	if here == "" || here != Scope() || strings.ContainsAny(here, "[]: \n") {
		t.Errorf("this place is called %q", here)
	}
}

// If /proc cannot be read, every owner counts as alive.
func TestWhoCannotLook(t *testing.T) {
	name := ForPID(os.Getppid())
	if name == "" {
		t.Fatal("the parent has no name")
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	none := was
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	alive := Alive(name)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if !alive {
		t.Error("without a descriptor to look with, a process that lives was said to be dead")
	}
}

// Owners in another PID namespace count as alive.
func TestOtherNamespace(t *testing.T) {
	if outer := os.Getenv("SANDBAR_TEST_OUTER"); outer != "" {
		if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			t.Fatal(err)
		}
		if !Alive(outer) {
			t.Errorf("%s, outside, is said to be dead", outer)
		}
		fmt.Println("inner", ForPID(os.Getpid()))
		return
	}
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestOtherNamespace$")
	cmd.Env = append(os.Environ(), "SANDBAR_TEST_OUTER="+ForPID(os.Getpid()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, rest, _ := strings.Cut(string(out), "inner ")
	inner, _, _ := strings.Cut(rest, "\n")
	if !strings.HasPrefix(inner, "1-") || !Alive(inner) {
		t.Errorf("%q, who has ended unseen in another PID namespace: alive %v", inner, Alive(inner))
	}
}
