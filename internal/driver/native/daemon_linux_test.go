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

// daemonEnv, if set, makes the test binary a daemon with running sandboxes. Its value is the path
// of the agent.
const daemonEnv = "NATIVE_TEST_DAEMON"

// stubborn is a program with descendants in other sessions that ignore all signals that can be
// ignored.
const stubborn = `trap '' TERM HUP INT; (setsid sh -c 'trap "" TERM HUP INT; sleep 1000 & sleep 1000' &) ; sleep 1000`

// playDaemon creates sandboxes with programs, prints that they run, and waits to be killed.
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

// After SIGKILL to a daemon its processes end, and Collect of another daemon finds and removes its
// cgroups. Collect never removes those of a running daemon.
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

// runAndKill starts a daemon, kills it when its sandboxes run, and returns its id.
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

// agentsOf lists the agents of a daemon, and spawnersOf its spawner processes.
func agentsOf(owner string) []int   { return startedAs(owner, agent.ModeSocket, agent.ModeStream) }
func spawnersOf(owner string) []int { return startedAs(owner, agent.ModeSpawner) }

// startedAs lists the processes of a daemon that run the agent's program in one of the modes.
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

// groupsOf lists the cgroup directories of a daemon.
func groupsOf(owner string) (dirs []string) {
	filepath.WalkDir("/sys/fs/cgroup", func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.HasPrefix(e.Name(), owner+".") {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs
}

// waitUntil polls until a condition is true. Its timeout is long, because the tests do not measure
// time.
func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so: %s", what)
		}
	}
}

// If an agent is killed, its sandbox ends, and the outcome of its programs is Lost, not Exited.
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
