package native

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// daemonEnv, when set, makes the test binary play a daemon with live
// sandboxes; its value is the path of the agent.
const daemonEnv = "NATIVE_TEST_DAEMON"

// stubborn is a program that tries to outlive everything: descendants in
// sessions of their own that ignore what can be ignored.
const stubborn = `trap '' TERM HUP INT; (setsid sh -c 'trap "" TERM HUP INT; sleep 1000 & sleep 1000' &) ; sleep 1000`

// playDaemon makes sandboxes with programs in them, says so, and waits to be
// killed.
func playDaemon() int {
	binary, err := os.ReadFile(os.Getenv(daemonEnv))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	d, err := New(driver.Host{}, binary)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for range 5 {
		s := spec(d)
		s.AllowDegraded = true
		box, err := d.Create(context.Background(), sandbar.NewID(), s)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		if _, err := box.Start(context.Background(), sandbar.Cmd{Args: []string{"sh", "-c", stubborn}}, driver.Stdio{}); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	fmt.Println("ready", d.Owner)
	select {}
}

// After a SIGKILL of the daemon its processes are gone by themselves, and what
// is left of its groups is found, and removed, by another; never a live one's.
func TestKilledDaemon(t *testing.T) {
	d := newDriver(t)
	live, err := d.Create(t.Context(), sandbar.NewID(), degraded(d))
	if err != nil {
		t.Fatal(err)
	}
	defer live.Destroy(context.Background())

	owner := runAndKill(t)
	waitUntil(t, "the killed daemon's agents have ended", func() bool { return len(agentsOf(owner))+len(spawnersOf(owner)) == 0 })
	found, err := d.Collect(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if want := groupsOf(owner); len(want) > 0 && len(found) == 0 {
		t.Errorf("groups %v are there and none was found", want)
	}
	for _, l := range found {
		if strings.Contains(l.Name, d.Owner) {
			t.Errorf("%s %s belongs to a live daemon", l.Kind, l.Name)
		}
	}
	if found, err = d.Collect(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	for _, l := range found {
		if l.Err != nil {
			t.Errorf("%s %s: %v", l.Kind, l.Name, l.Err)
		}
	}
	if left := groupsOf(owner); len(left) > 0 {
		t.Errorf("groups left: %v", left)
	}
	p, err := live.Start(t.Context(), sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{})
	if err != nil {
		t.Fatalf("the live daemon's sandbox was harmed: %v", err)
	}
	if r, _ := p.Wait(); r.Outcome != sandbar.Exited {
		t.Errorf("the live daemon's sandbox was harmed: %v", r.Outcome)
	}
}

func degraded(d *Driver) sandbar.Spec {
	s := spec(d)
	s.AllowDegraded = true
	return s
}

// runAndKill runs a daemon until its sandboxes are up, kills it and returns
// its name.
func runAndKill(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), daemonEnv+"="+testenv.Build(t, "cmd/sandbar-agent"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	owner, ok := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if !ok {
		t.Fatalf("the daemon said %q", line)
	}
	if n := len(agentsOf(owner)); n != 5 {
		t.Fatalf("the daemon has %d agents, want 5", n)
	}
	return owner
}

// agentsOf lists an owner's agents, and spawnersOf what starts them.
func agentsOf(owner string) []int   { return startedAs(owner, agent.ModeSocket, agent.ModeStream) }
func spawnersOf(owner string) []int { return startedAs(owner, agent.ModeSpawner) }

// startedAs lists the processes of an owner's that run the agent's program in
// one of the modes.
func startedAs(owner string, modes ...string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		args := strings.Split(string(b), "\x00")
		if len(args) == 4 && args[0] == agent.Name && slices.Contains(modes, args[1]) && args[2] == owner {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// groupsOf lists the cgroup directories of an owner.
func groupsOf(owner string) (dirs []string) {
	filepath.WalkDir("/sys/fs/cgroup", func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.HasPrefix(e.Name(), owner+".") {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs
}

// waitUntil polls a condition that must come true; it is generous, because
// how long it takes is not what is tested.
func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so: %s", what)
		}
	}
}

// An agent that is killed from outside takes its sandbox with it, and whoever
// waits is told that the program is lost, never that it exited.
func TestAgentKilled(t *testing.T) {
	d := newDriver(t)
	box, err := d.Create(t.Context(), sandbar.NewID(), degraded(d))
	if err != nil {
		t.Fatal(err)
	}
	defer box.Destroy(context.Background())
	p, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"sleep", "1000"}}, driver.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range agentsOf(d.Owner) {
		unix.Kill(pid, unix.SIGKILL)
	}
	r, err := p.Wait()
	if err != nil || r.Outcome != sandbar.Lost {
		t.Errorf("got %v, %v; want lost", r.Outcome, err)
	}
	w, _ := driver.As[driver.Watcher](box)
	<-w.Dead()
	if _, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{}); sandbar.CodeOf(err) != sandbar.Gone {
		t.Errorf("Start in a dead sandbox: %v; want gone", err)
	}
}
