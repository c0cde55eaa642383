package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// wasm returns the environment of a command with the wasm driver.
func (s *stdioSandbox) wasm() []string {
	return []string{"SANDBAR_DRIVER=wasm", "SANDBAR_CONFIG=" + s.config}
}

// The clients of the Fathom protocol work with the wasm driver as with the native driver.
func TestFathomOverWasm(t *testing.T) {
	s := newStdioSandbox(t)
	testenv.Need(t, testenv.Python, testenv.Node)
	d := newDaemon(t, t.TempDir(), s.wasm()...)
	d.runClients(t, []string{"python", "javascript", "shell"}, testenv.PyWebsockets)
	if err := d.stop(); err != nil {
		t.Errorf("the daemon ended with %v; it said:\n%s", err, d.said())
	}
	if left := append(leftovers(t, d), processes(t, s.modules)...); len(left) > 0 {
		t.Errorf("left behind: %s", strings.Join(left, ", "))
	}
}

// The executor protocol over the wasm driver: commands, files, and background processes.
func TestExecutorOverWasm(t *testing.T) {
	s := newStdioSandbox(t)
	x := newExecutor(t, nil, s.wasm()...)
	if got := x.run(t, `echo $((6*7)) > f; python3 -c 'print(int(input())+1)' < f | node -e 'console.log(require("fs").readFileSync(0,"utf8").trim()+"!")'`); got != "43!\n" {
		t.Errorf("the languages say %q", got)
	}
	var done struct{ Success bool }
	x.ask(t, "/write_file", map[string]string{"path": "/tmp/a.txt", "content": "text"}, &done)
	if !done.Success || x.run(t, "cat /tmp/a.txt") != "text" {
		t.Error("a file that was written is not what a command sees")
	}
	var listed struct{ Entries []string }
	if x.ask(t, "/list_dir", map[string]string{"path": "/tmp"}, &listed); strings.Join(listed.Entries, " ") != "a.txt" {
		t.Errorf("the directory has %v", listed.Entries)
	}
	var started struct{ ID, Status string }
	x.ask(t, "/start_process", map[string]string{"cmd": "echo up; sleep 1000"}, &started)
	if started.ID == "" || started.Status != "running" {
		t.Fatalf("a process was started with %+v", started)
	}
	x.ask(t, "/kill_process", map[string]string{"id": started.ID}, &done)
	waitUntil(t, "the process has ended", func() []string {
		var all struct {
			Processes []struct{ ID, Status string }
		}
		x.ask(t, "/list_processes", nil, &all)
		for _, p := range all.Processes {
			if p.ID == started.ID && p.Status == "killed" {
				return nil
			}
		}
		b, _ := json.Marshal(all)
		return []string{string(b)}
	})
}

// If the native driver does not work, auto uses wasm and says so. Here native fails because the
// user namespace allows no further ones, as in many containers.
func TestAutoTakesWasm(t *testing.T) {
	s := newStdioSandbox(t)
	testenv.Need(t, testenv.UserNS)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", `echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"`, "sh",
		testenv.Build(t, "cmd/sandbar"), "eval", "shell", "-c", "arch")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	cmd.Env = append(environ(), "SANDBAR_CONFIG="+s.config, "SANDBAR_RUNTIME_DIR="+filepath.Join(t.TempDir(), "run"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || string(out) != "wasm32\n" || !strings.Contains(stderr.String(), "driver auto: using wasm, because native does not work on this host") {
		t.Errorf("%v, stdout %q, stderr %q", err, out, stderr.String())
	}
	// An error in the configuration must not select a weaker boundary.
	b, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), "drivers:\n", "drivers:\n  native:\n    paths: not/absolute\n", 1)
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	mistaken := exec.CommandContext(ctx, testenv.Build(t, "cmd/sandbar"), "eval", "shell", "-c", "arch")
	mistaken.Env = cmd.Env
	out, err = mistaken.CombinedOutput()
	if mistaken.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "not/absolute") {
		t.Errorf("with a mistake in the configuration: %v, %q", err, out)
	}
}
