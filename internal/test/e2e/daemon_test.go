package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// daemon is a running `sandbar serve` with private directories.
type daemon struct {
	cmd        *exec.Cmd
	addr, dir  string
	logs       *os.File
	terminated bool
}

const token = "end-to-end"

// newDaemon starts a daemon in dir and waits until it answers.
func newDaemon(t *testing.T, dir string, env ...string) *daemon {
	t.Helper()
	d := startDaemon(t, dir, env...)
	d.await(t)
	return d
}

// startDaemon starts a daemon in dir.
func startDaemon(t *testing.T, dir string, env ...string) *daemon {
	t.Helper()
	return startDaemonBy(t, nil, dir, env...)
}

// startDaemonBy is startDaemon by a program that ends by executing its last arguments.
func startDaemonBy(t *testing.T, by []string, dir string, env ...string) *daemon {
	t.Helper()
	return startDaemonAt(t, testenv.FreeAddress(t), by, dir, env...)
}

// startDaemonAt is startDaemonBy with an address.
func startDaemonAt(t *testing.T, addr string, by []string, dir string, env ...string) *daemon {
	t.Helper()
	return startProgramAt(t, addr, append(slices.Clone(by), testenv.Build(t, "cmd/sandbar")), dir, env...)
}

// startProgramAt is startDaemonAt with another build of the daemon.
func startProgramAt(t *testing.T, addr string, program []string, dir string, env ...string) *daemon {
	t.Helper()
	d := &daemon{addr: addr, dir: dir}
	var err error
	if d.logs, err = os.CreateTemp(dir, "log-"); err != nil {
		t.Fatal(err)
	}
	args := append(slices.Clone(program), "serve", "--listen", d.addr)
	d.cmd = exec.Command(args[0], args[1:]...)
	d.cmd.Env = append(append(environ(), "SANDBAR_TOKEN="+token, "SANDBAR_ALLOW_DEGRADED=true",
		"SANDBAR_STATE_DIR="+filepath.Join(dir, "state"), "SANDBAR_RUNTIME_DIR="+filepath.Join(dir, "run")), env...)
	d.cmd.Stdout, d.cmd.Stderr = d.logs, d.logs
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.kill() })
	return d
}

// await waits until the daemon answers.
func (d *daemon) await(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if r, err := http.Get("http://" + d.addr + "/health"); err == nil {
			r.Body.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the daemon does not answer; it said:\n%s", d.said())
		}
	}
}

// environ returns the test's environment without Sandbar's variables.
func environ() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "SANDBAR_") })
}

func (d *daemon) said() string {
	b, _ := os.ReadFile(d.logs.Name())
	return string(b)
}

// kill ends the daemon with SIGKILL, once.
func (d *daemon) kill() {
	if !d.terminated {
		d.terminated = true
		d.cmd.Process.Kill()
		d.cmd.Wait()
	}
	d.logs.Close()
}

// stop sends SIGTERM to the daemon and returns its exit status.
func (d *daemon) stop() error {
	d.terminated = true
	// Not SIGINT: shells ignore it in background jobs, and children inherit that.
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- d.cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(time.Minute):
		d.cmd.Process.Kill()
		return errors.New("it did not end within a minute of SIGTERM")
	}
}

// endClean stops the daemon, which must exit with 0 and leave nothing behind.
func (d *daemon) endClean(t *testing.T) {
	t.Helper()
	if err := d.stop(); err != nil {
		t.Errorf("the daemon ended with %v; it said:\n%s", err, d.said())
	}
	if left := leftovers(t, d); len(left) > 0 {
		t.Errorf("left behind: %s", strings.Join(left, ", "))
	}
}

// Independent clients, which share no code with the server, run programs in every language of
// this host and test the whole protocol.
func TestClients(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Python, testenv.Node)
	languages := []string{"python", "javascript", "shell"}
	if testenv.Elixir.Met() {
		languages = append(languages, "elixir")
	}
	d := newDaemon(t, t.TempDir())
	d.runClients(t, languages, testenv.NpmWS, testenv.PyWebsockets)
	d.endClean(t)
}

// runClients runs clients, named by their requirements, with all programs of these languages.
func (d *daemon) runClients(t *testing.T, languages []string, needs ...testenv.Requirement) {
	t.Helper()
	clients, err := filepath.Abs("../../protocol/fathom/testdata/clients")
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string][]string{
		testenv.NpmWS.Name:        {"/usr/bin/node", "client.mjs"},
		testenv.PyWebsockets.Name: {"/usr/bin/python3", "client.py"},
	}
	for _, need := range needs {

		t.Run(need.Name, func(t *testing.T) {
			testenv.Need(t, need)
			cmd := exec.Command(programs[need.Name][0], append(programs[need.Name][1:], languages...)...)
			cmd.Dir = clients
			cmd.Env = append(os.Environ(), "NODE_PATH="+testenv.NodeModules(), "PYTHONPATH="+testenv.PythonPath(),
				"PYTHONDONTWRITEBYTECODE=1", "FATHOM_URL=ws://"+d.addr+"/ws", "FATHOM_TOKEN="+token,
				"FATHOM_PROGRAMS=programs.json")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s\nthe daemon said:\n%s", err, out, d.said())
			}
		})
	}
}

// leftovers returns the leftovers of an exited daemon: agents, monitors and their programs,
// cgroups, and directories in its runtime directory.
func leftovers(t *testing.T, d *daemon) (left []string) {
	t.Helper()
	owner := owner(d)
	for _, f := range glob(t, "/proc/[0-9]*/cmdline") {
		b, _ := os.ReadFile(f)
		if a := strings.Split(string(b), "\x00"); len(a) > 2 && (a[0] == "sandbar-agent" || a[0] == "qemu-system-x86_64") && strings.HasPrefix(a[2], owner) {
			left = append(left, f)
		}
	}
	filepath.WalkDir("/sys/fs/cgroup", func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.HasPrefix(e.Name(), owner) {
			left = append(left, path)
		}
		return nil
	})
	return append(left, glob(t, filepath.Join(d.dir, "run", "*", "*"))...)
}

// owner returns the prefix of the daemon's id, which is part of the names of its agents and
// cgroups.
func owner(d *daemon) string { return fmt.Sprintf("%d-", d.cmd.Process.Pid) }

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
