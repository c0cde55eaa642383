package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// The official TypeScript client works with every tool: over a pipe to a server without a daemon,
// over a pipe to one with a daemon, and over HTTP.
func TestMCPNpm(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.NpmMCP, testenv.Python)
	eachMCP(t, func(t *testing.T, env, server []string) {
		runMCP(t, 12, append(env, "NODE_PATH="+testenv.NpmMCPModules()), append([]string{"/usr/bin/node", "client.mjs"}, server...))
	})
}

// So does the official Python client.
func TestMCPPython(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.PyMCP)
	eachMCP(t, func(t *testing.T, env, server []string) {
		runMCP(t, 7, append(env, "PYTHONPATH="+testenv.PyMCPPath()), append([]string{"/usr/bin/python3", "client.py"}, server...))
	})
}

// The inspector's command line lists and calls every tool. Each of its calls is a session, which it
// does not end.
func TestMCPInspector(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.NpmMCP, testenv.Python)
	d := newDaemon(t, t.TempDir(), "SANDBAR_IDLE_TIMEOUT=5s")
	inspect := func(args ...string) (out []byte) {
		t.Helper()
		program := filepath.Join(testenv.NpmMCPModules(), "@modelcontextprotocol", "inspector-cli", "build", "index.js")
		all := append([]string{program, "http://" + d.addr + "/mcp", "--transport", "http", "--header", "Authorization: Bearer " + token, "--method"}, args...)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // in an emulated machine
		defer cancel()
		out, err := exec.CommandContext(ctx, "/usr/bin/node", all...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return out
	}
	var list struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(inspect("tools/list"), &list); err != nil {
		t.Fatal(err)
	}
	calls := map[string]struct {
		args []string
		want string // part of the answer
	}{
		"run_code":       {[]string{"code=6*7"}, `"42\n"`},
		"run_command":    {[]string{"command=echo hello"}, `"hello\n"`},
		"read_file":      {[]string{"path=none"}, "error not_found"},
		"write_file":     {[]string{"path=f", "content=x"}, "wrote 1 bytes"},
		"edit_file":      {[]string{"path=none", "old=a", "new=b"}, "error not_found"},
		"list_files":     {[]string{"path=/"}, "tmp"},
		"search_files":   {[]string{"pattern=x"}, "[no matches]"},
		"upload":         {[]string{"path=f", "data=AP8B"}, "wrote 3 bytes"},
		"download":       {[]string{"path=/etc/hostname"}, ""},
		"create_sandbox": {[]string{"name=box"}, "created sb_"},
		"list_sandboxes": {nil, "no sandboxes"},
		"stop_sandbox":   {[]string{"sandbox=sb_x"}, "error not_found"},
		"expose_port":    {[]string{"port=8000"}, "http://8000-"},
		"snapshot":       {nil, ""},
		"restore":        {[]string{"snapshot=sb_x"}, "error not_found"},
	}
	if len(list.Tools) != len(calls) {
		t.Errorf("%d tools are listed, want %d", len(list.Tools), len(calls))
	}
	for _, tool := range list.Tools {
		c, ok := calls[tool.Name]
		if !ok {
			t.Errorf("there is no call of %s", tool.Name)
			continue
		}
		args := []string{"tools/call", "--tool-name", tool.Name}
		for _, a := range c.args {
			args = append(args, "--tool-arg", a)
		}
		var answer struct{ Content []json.RawMessage }
		out := inspect(args...)
		if err := json.Unmarshal(out, &answer); err != nil || len(answer.Content) == 0 || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v: %s", tool.Name, err, out)
		}
	}
	endMCP(t, d)
}

// eachMCP runs a test with each way to reach the tools. env is for the client, and server its
// arguments.
func eachMCP(t *testing.T, run func(t *testing.T, env, server []string)) {
	program := testenv.Build(t, "cmd/sandbar")
	t.Run("per-session", func(t *testing.T) {
		dir := t.TempDir()
		run(t, []string{"SANDBAR_STATE_DIR=" + filepath.Join(dir, "state"), "SANDBAR_RUNTIME_DIR=" + filepath.Join(dir, "run"), "SANDBAR_ALLOW_DEGRADED=true"},
			[]string{program, "mcp", "--sandbox", "per-session"})
		if left := glob(t, filepath.Join(dir, "run", "*", "*")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		for _, f := range glob(t, filepath.Join(dir, "state", "mcp", "*", "*")) {
			if filepath.Base(f) != "lock" {
				t.Errorf("left behind: %s", f)
			}
		}
	})
	for _, way := range []string{"daemon", "http"} {
		t.Run(way, func(t *testing.T) {
			d := newDaemon(t, t.TempDir())
			server := []string{program, "mcp", "--url", "http://" + d.addr}
			if way == "http" {
				server = []string{"http"}
			}
			run(t, []string{"MCP_URL=http://" + d.addr + "/mcp", "SANDBAR_TOKEN=" + token}, server)
			endMCP(t, d)
		})
	}
}

// endMCP checks that the sessions have left no sandbox in a daemon, and stops it.
func endMCP(t *testing.T, d *daemon) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		r, err := http.NewRequest("GET", "http://"+d.addr+"/sandboxes", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if strings.TrimSpace(string(b)) == `{"sandboxes":[]}` {
			break
		}
		if time.Now().After(end) {
			t.Errorf("sandboxes are left after the sessions: %s", b)
			break
		}
	}
	if err := d.stop(); err != nil {
		t.Errorf("the daemon ended with %v; it said:\n%s", err, d.said())
	}
	if left := leftovers(t, d); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// runMCP runs a test program of testdata/mcp. All its checks must hold.
func runMCP(t *testing.T, checks int, env, args []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // of checks in emulated machines
	defer cancel()
	args[1] = filepath.Join("testdata", "mcp", args[1])
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(append(environ(), env...), fmt.Sprintf("SAVES=%t", testenv.Freezer.Err() == nil), "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*")
	out, err := cmd.CombinedOutput()
	if n := bytes.Count(out, []byte("ok ")) - bytes.Count(out, []byte("not ok ")); err != nil || n != checks {
		t.Errorf("%v; %d checks held, want %d:\n%s", err, n, checks, out)
	}
	var pid int
	if fmt.Sscanf(string(out), "pid %d", &pid); pid == 0 {
		return
	}
	for _, f := range glob(t, "/proc/[0-9]*/cmdline") {
		b, _ := os.ReadFile(f)
		if a := strings.Split(string(b), "\x00"); len(a) > 2 && a[0] == "sandbar-agent" && strings.HasPrefix(a[2], fmt.Sprintf("%d-", pid)) {
			t.Errorf("left behind: %s", f)
		}
	}
}
