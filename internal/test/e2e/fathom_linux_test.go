package e2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// cobol is a language whose interpreter no host has.
const cobol = "SANDBAR_LANGUAGES=[{name: cobol, file: main.cob, command: [no-such-cobol, \"{file}\"]}]"

// A language whose interpreter this host lacks is refused at once, without an ack. The error and
// the schema of the tool name the available languages.
func TestFathomMissingInterpreter(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Python)
	d := newDaemon(t, t.TempDir(), cobol)
	c := d.dial(t)
	for _, language := range []string{"cobol", "rust", "cobol"} {
		if err := send(within(t, time.Minute), c, language, language, "x"); err != nil {
			t.Fatal(err)
		}
		f := receive(t, c)
		_, there, _ := strings.Cut(f.Message, "available are ")
		names := strings.Split(there, ", ")
		if f.Type != "error" || f.Code != "LANGUAGE_NOT_SUPPORTED" || slices.Contains(names, "cobol") || !slices.Contains(names, "python") || !slices.Contains(names, "shell") {
			t.Errorf("%s: %+v", language, f)
		}
	}
	if got := shell(t, c, "echo fine"); got != "fine\n" {
		t.Errorf("a program printed %q", got)
	}
	tool := exec.Command(testenv.Build(t, "cmd/sandbar"), "tool", "--schema")
	tool.Env = append(environ(), cobol, "SANDBAR_ALLOW_DEGRADED=true", "SANDBAR_RUNTIME_DIR="+filepath.Join(t.TempDir(), "run"))
	b, err := tool.Output()
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties struct{ Language struct{ Enum []string } }
	}
	if err := json.Unmarshal(b, &schema); err != nil {
		t.Fatal(err)
	}
	if names := schema.Properties.Language.Enum; slices.Contains(names, "cobol") || !slices.Contains(names, "python") {
		t.Errorf("the schema names %v", names)
	}
}

// Programs have no network unless the operator configures it. A daemon whose driver cannot provide
// it does not start.
func TestFathomNetwork(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.TUN)
	const devices = "grep -c : /proc/net/dev"
	for setting, want := range map[string]string{"SANDBAR_FATHOM_NETWORK=false": "1\n", "SANDBAR_FATHOM_NETWORK=true": "2\n"} {
		d := newDaemon(t, t.TempDir(), setting)
		if got := shell(t, d.dial(t), devices); got != want {
			t.Errorf("%s: %q network devices", setting, got)
		}
		if err := d.stop(); err != nil {
			t.Errorf("%s: the daemon ended with %v; it said:\n%s", setting, err, d.said())
		}
	}
	d := startDaemon(t, t.TempDir(), "SANDBAR_FATHOM_NETWORK=true", "SANDBAR_NETWORK_OUTBOUND=false")
	if err := d.cmd.Wait(); err == nil || !strings.Contains(d.said(), "fathom.network is true, but the driver native cannot give sandboxes a network on this host") {
		t.Errorf("it ended with %v and said:\n%s", err, d.said())
	}
}

// The setting that keeps code does not apply to Fathom unless the operator switches it on there.
func TestFathomKeepsNoCode(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	for setting, want := range map[string]int{"SANDBAR_FATHOM_STORE_CODE=false": 0, "SANDBAR_FATHOM_STORE_CODE=true": 1} {
		kept := t.TempDir()
		d := newDaemon(t, t.TempDir(), "SANDBOX_STORE_CODE=always", "SANDBAR_CODE_ARTIFACTS="+kept, setting)
		if got := shell(t, d.dial(t), "echo fine"); got != "fine\n" {
			t.Errorf("%s: a program printed %q", setting, got)
		}
		if err := d.stop(); err != nil {
			t.Errorf("%s: the daemon ended with %v; it said:\n%s", setting, err, d.said())
		}
		if files := glob(t, filepath.Join(kept, "executions", "*")); len(files) != want {
			t.Errorf("%s: kept %q, want %d files", setting, files, want)
		}
	}
}

// shell runs a program of the shell over Fathom and returns what it printed.
func shell(t *testing.T, c *websocket.Conn, code string) (out string) {
	t.Helper()
	execute(t, c, code, code)
	for {
		switch f := receive(t, c); f.Type {
		case "stdout":
			out += f.Data
		case "result", "error":
			return out + f.Message
		}
	}
}
