package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/dockerd"
)

// dockerd, the daemon, or both are killed during twenty executions. Every caller gets an error of
// the protocol in time; later requests succeed; and after the restart no container, volume,
// process, mount, cgroup or directory is left.
func TestDockerKilled(t *testing.T) {
	testenv.Need(t, testenv.Docker, testenv.DebianImage)
	e := engines.Engine(t)
	t.Cleanup(func() { // other tests need a running engine
		if _, err := e.Containers(context.Background()); err != nil {
			restart(t, e)
		}
	})
	dir := t.TempDir()
	env := []string{"SANDBOX_TYPE=docker", "SANDBAR_DRIVERS={docker: {host: " + e.Host() + "}}", "DOCKER_IMAGE=" + dockerd.Image}
	before := mounts(t)

	d := newDaemon(t, dir, env...)
	c := start(t, d, executions)
	old := containersOf(e)
	crash(t, e)
	toldOfLoss(t, c, executions)
	execute(t, c, "meanwhile", "echo ran")
	if f := last(t, c, "meanwhile"); f.Type != "error" || f.Code != "NETWORK_ERROR" || f.Retryable == nil || !*f.Retryable || f.Message == "" {
		t.Errorf("without an engine a caller is told %+v", f)
	}
	restart(t, e)
	c = d.dial(t) // nobody has answered the daemon's pings on the other one meanwhile
	execute(t, c, "again", "exit 3")
	if f := last(t, c, "again"); f.Type != "result" || f.ExitCode == nil || *f.ExitCode != 3 {
		t.Errorf("when the engine is back a caller is told %+v", f)
	}
	waitUntil(t, "the engine has none of the containers that were lost", func() []string { return still(e, old) })

	if testenv.Long() { // the suite of drivers kills a daemon alone, too
		c = start(t, d, executions)
		old = containersOf(e)
		d.kill()
		cutOff(t, c)
		next := newDaemon(t, dir, env...) // its start removes what is left
		waitUntil(t, "nothing of the killed daemon is left", func() []string { return append(still(e, old), leftovers(t, d)...) })
		d = next
	}

	c = start(t, d, executions)
	old = containersOf(e)
	crash(t, e)
	d.kill()
	cutOff(t, c)
	restart(t, e)
	next := newDaemon(t, dir, env...)
	waitUntil(t, "nothing of the killed daemon is left", func() []string { return append(still(e, old), leftovers(t, d)...) })
	execute(t, next.dial(t), "fine", "exit 0")
	next.endCleanWithEngine(t)
	waitUntil(t, "namespaces and mounts are as before", func() []string { return remains(t, before, d, next) })
}

func crash(t *testing.T, e *dockerd.Engine) {
	t.Helper()
	if err := e.Crash(); err != nil {
		t.Fatal(err)
	}
}

func restart(t *testing.T, e *dockerd.Engine) {
	t.Helper()
	if err := e.Restart(context.Background()); err != nil { // it has a bound of its own
		t.Fatal(err)
	}
}

// toldOfLoss waits until each of the callers x0, x1, … gets the error that its sandbox was lost,
// which is retryable, and never a result.
func toldOfLoss(t *testing.T, c *websocket.Conn, n int) {
	t.Helper()
	told := map[string]bool{}
	for len(told) < n {
		f := receive(t, c)
		if f.Type != "error" {
			if f.Type != "stdout" && f.Type != "stderr" {
				t.Fatalf("a caller whose engine was killed is told %+v", f)
			}
			continue
		}
		if told[f.ID] || f.Code != "INTERNAL_ERROR" && f.Code != "NETWORK_ERROR" || f.Retryable == nil || !*f.Retryable || f.Message == "" {
			t.Errorf("a caller whose engine was killed is told %+v", f)
		}
		told[f.ID] = true
	}
	for i := range n {
		if !told[fmt.Sprint("x", i)] {
			t.Errorf("x%d is not among those who were told: %v", i, told)
		}
	}
}

// last waits for the message that ends an execution.
func last(t *testing.T, c *websocket.Conn, id string) frame {
	t.Helper()
	for {
		if f := receive(t, c); f.ID == id && (f.Type == "error" || f.Type == "result") {
			return f
		}
	}
}

// cutOff waits until the connection is closed. No message on it may say that a program ended.
func cutOff(t *testing.T, c *websocket.Conn) {
	t.Helper()
	ctx := within(t, 2*time.Minute)
	for {
		_, b, err := c.Read(ctx)
		switch {
		case ctx.Err() != nil:
			t.Fatal("the connection to a daemon that was killed does not end")
		case err != nil:
			return
		case bytes.Contains(b, []byte(`"type":"result"`)):
			t.Errorf("a caller is told %s", b)
		}
	}
}

// containersOf lists the containers of an engine.
func containersOf(e *dockerd.Engine) []string {
	names, err := e.Containers(context.Background())
	if err != nil {
		return []string{err.Error()}
	}
	return names
}

// still returns those of the containers that the engine still has. A running daemon has others: the
// sandboxes of its warm pool.
func still(e *dockerd.Engine, old []string) []string {
	return slices.DeleteFunc(containersOf(e), func(name string) bool { return strings.HasPrefix(name, "/") && !slices.Contains(old, name) })
}

// remainsOn returns the leftovers of sandboxes on an engine and on this machine: containers and
// volumes, processes in containers, their mounts and cgroups. It ignores what a crashed engine
// itself loses: shims without containers, the mount for a container's start files, and the
// runtime's process of a container that was never started.
func remainsOn(e *dockerd.Engine) []string {
	left := containersOf(e)
	volumes, err := e.Volumes(context.Background())
	if err != nil {
		left = append(left, err.Error())
	}
	for _, v := range volumes {
		left = append(left, "volume "+v)
	}
	processes, _ := filepath.Glob("/proc/[0-9]*") // fails only for a malformed pattern
	for _, p := range processes {
		args, _ := os.ReadFile(p + "/cmdline") // it may have ended
		groups, _ := os.ReadFile(p + "/cgroup")
		if bytes.Contains(groups, []byte("/"+filepath.Base(e.Dir())+"/")) && !neverStarted(args) {
			left = append(left, fmt.Sprintf("%s %q", p, args))
		}
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		left = append(left, err.Error())
	}
	for line := range strings.Lines(string(info)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], e.Dir()+"/") && !strings.HasSuffix(f[4], "-init/merged") &&
			(strings.Contains(f[4], "/containers/") || strings.HasSuffix(f[4], "/merged")) {
			left = append(left, "mount "+f[4])
		}
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(e.Dir()) + "/*/") // version 1
	unified, _ := filepath.Glob("/sys/fs/cgroup/" + filepath.Base(e.Dir()) + "/*/")
	return append(left, slices.DeleteFunc(append(groups, unified...), func(group string) bool {
		pids, err := os.ReadFile(group + "cgroup.procs")
		return err == nil && len(pids) > 0 && !slices.ContainsFunc(strings.Fields(string(pids)), func(pid string) bool {
			args, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			return !neverStarted(args)
		})
	})...)
}

// neverStarted reports whether a process is the runtime's process of a container that waits for its
// start.
func neverStarted(args []byte) bool { return string(args) == "runc\x00init\x00" }
