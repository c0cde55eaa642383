package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// An executor that is killed with SIGKILL while its sandbox runs leaves no process, mount,
// namespace, directory, socket or listener. The next start, or "sandbar gc", removes its cgroups.
func TestKilledExecutor(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	before := mounts(t)
	var killed []*daemon
	for i := range rounds(t) {
		x := newExecutor(t, nil)
		x.occupy(t)
		x.cmd.Process.Kill()
		x.cmd.Wait()
		gone := &daemon{cmd: x.cmd, dir: x.dir}
		killed = append(killed, gone)
		waitUntil(t, fmt.Sprintf("round %d: what ran in the killed executor has ended", i), func() (left []string) {
			for _, l := range leftovers(t, gone) {
				if strings.HasPrefix(l, "/proc/") {
					left = append(left, l)
				}
			}
			return left
		})
		gc := exec.Command(testenv.Build(t, "cmd/sandbar"), "gc")
		gc.Env = append(environ(), "SANDBAR_RUNTIME_DIR="+x.dir+"/run")
		if out, err := gc.CombinedOutput(); err != nil {
			t.Fatalf("round %d: gc: %v\n%s", i, err, out)
		}
		waitUntil(t, fmt.Sprintf("round %d: nothing of the killed executor is left", i), func() []string { return leftovers(t, gone) })
		for _, address := range []string{x.addr, x.proxy} {
			if c, err := net.Dial("tcp", address); err == nil {
				c.Close()
				t.Errorf("round %d: something listens on %s", i, address)
			}
		}
	}
	waitUntil(t, "namespaces and mounts are as before", func() []string { return remains(t, before, killed...) })
}

// An executor exits with its main command, even if other processes still run in the sandbox.
func TestEndedExecutor(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	before := mounts(t)
	x := newExecutor(t, nil)
	x.occupy(t)
	x.cmd.Process.Signal(os.Interrupt)
	if err := x.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	ended := &daemon{cmd: x.cmd, dir: x.dir}
	if left := leftovers(t, ended); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	waitUntil(t, "namespaces and mounts are as before", func() []string { return remains(t, before, ended) })
}

// occupy starts everything that might outlive the sandbox: programs in their own sessions, a
// listening background process whose output is followed, a connection through the proxy, a
// running command and an upload.
func (x *executor) occupy(t *testing.T) {
	t.Helper()
	stubborn := "trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000' &); sleep 1000"
	var started struct{ ID string }
	x.ask(t, "/start_process", object{"cmd": stubborn}, &started)
	x.ask(t, "/start_process", object{"cmd": "python3 -m http.server 8000"}, new(any))
	x.ask(t, "/bind_port", object{"port": "8000"}, new(any))
	conn, err := net.Dial("tcp", x.proxy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	x.hold(t, "GET", "/process_logs_streaming?id="+started.ID, nil)
	x.hold(t, "POST", "/run_streaming", strings.NewReader(`{"cmd":"echo up; `+strings.ReplaceAll(stubborn, `"`, `\"`)+`"}`))
	r, w := io.Pipe()
	t.Cleanup(func() { w.Close() })
	go x.send("PUT", "/files?path=half", r)
	if _, err := io.WriteString(w, "half"); err != nil {
		t.Fatal(err)
	}
}

// hold sends a request with an endless response, and waits until the response begins.
func (x *executor) hold(t *testing.T, method, path string, body io.Reader) {
	t.Helper()
	resp, err := x.send(method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
}

func (x *executor) send(method, path string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequest(method, "http://"+x.addr+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+x.secret)
	return http.DefaultClient.Do(r)
}

// A killed daemon leaves nothing of its long-lived sandboxes.
func TestKilledDaemonWithSandboxes(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	dir := t.TempDir()
	before := mounts(t)
	d := newDaemon(t, dir)
	cli := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(testenv.Build(t, "cmd/sandbar"), args...)
		cmd.Env = append(environ(), "SANDBAR_TOKEN="+token, "SANDBAR_URL=http://"+d.addr, "SANDBAR_STATE_DIR="+filepath.Join(dir, "state"))
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v; the daemon said:\n%s", args, err, d.said())
		}
		return strings.TrimSpace(string(out))
	}
	for range 3 {
		id := cli("create")
		cli("exec", "--detach", id, "--", "sh", "-c", "trap '' TERM HUP INT; (setsid sleep 1000 &); sleep 1000")
		cli("exec", id, "--", "sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo up")
	}
	d.kill()
	next := newDaemon(t, dir)
	waitUntil(t, "nothing of the killed daemon is left", func() []string { return leftovers(t, d) })
	if err := next.stop(); err != nil {
		t.Errorf("the daemon after it ended with %v; it said:\n%s", err, next.said())
	}
	waitUntil(t, "namespaces and mounts are as before", func() []string { return remains(t, before, d) })
}
