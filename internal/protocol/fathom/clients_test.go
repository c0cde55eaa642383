package fathom

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// The clients of testdata/clients are independent of the server and of each other. Here they run
// scripts of the faulty driver; the end-to-end test runs them with real languages against the real
// binary.

func TestClientNpmWS(t *testing.T) {
	testenv.Need(t, testenv.NpmWS)
	checkClient(t, exec.Command("/usr/bin/node", "client.mjs", "python"))
}

func TestClientPyWebsockets(t *testing.T) {
	testenv.Need(t, testenv.PyWebsockets)
	checkClient(t, exec.Command("/usr/bin/python3", "client.py", "python"))
}

// TestClientsCanFail tests that the clients report errors.
func TestClientsCanFail(t *testing.T) {
	testenv.Need(t, testenv.NpmWS, testenv.PyWebsockets)
	wrong := filepath.Join(t.TempDir(), "wrong.json")
	if err := os.WriteFile(wrong, []byte(`{"python":{"hello":"exit 1","fail":"exit 4","sleep":"oom","flood":"lost","utf8":"signal 9"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []*exec.Cmd{
		exec.Command("/usr/bin/node", "client.mjs", "python"),
		exec.Command("/usr/bin/python3", "client.py", "python"),
	} {
		s, err := runClient(t, cmd, wrong)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || s.OK {
			t.Errorf("%s: %v, ok=%v, want exit code 1", s.Client, err, s.OK)
		}
		for _, c := range s.Checks {
			switch c.Name {
			case "version", "refusals", "ping":
			default:
				if c.OK {
					t.Errorf("%s: %s passed", s.Client, c.Name)
				}
			}
		}
	}
}

// summary is a client's report.
type summary struct {
	Client string
	OK     bool
	Checks []struct {
		Name, Detail string
		OK           bool
	}
}

func checkClient(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	s, err := runClient(t, cmd, "scripts.json")
	for _, c := range s.Checks {
		if !c.OK {
			t.Errorf("%s: %s: %s", s.Client, c.Name, c.Detail)
		}
	}
	if err != nil || !s.OK || len(s.Checks) != 10 {
		t.Errorf("%s: %v, %d checks, ok=%v", s.Client, err, len(s.Checks), s.OK)
	}
}

func runClient(t *testing.T, cmd *exec.Cmd, programs string) (summary, error) {
	t.Helper()
	r := newRig(t, engine.Config{}, Options{})
	cmd.Dir = filepath.Join("testdata", "clients")
	cmd.Env = append(os.Environ(), "NODE_PATH="+testenv.NodeModules(), "PYTHONPATH="+testenv.PythonPath(), "PYTHONDONTWRITEBYTECODE=1",
		"FATHOM_URL=ws"+strings.TrimPrefix(r.url, "http")+"/ws", "FATHOM_TOKEN=unused", "FATHOM_PROGRAMS="+programs)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var s summary
	if e := json.Unmarshal(out, &s); e != nil {
		t.Fatalf("%v; the client printed %q (%v)", err, out, e)
	}
	return s, err
}
