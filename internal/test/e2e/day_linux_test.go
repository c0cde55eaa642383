package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// day is a scripted day of a daemon: actions through each front end. secrets are the words that
// only their recipients may see.
type day struct {
	t       *testing.T
	d       *daemon
	iii     string // the address of the iii engine
	secrets []string
	want    []string // the actions with their outcomes, in order
}

const dayClient = "the-token-of-ci"

// newDay starts the daemon of a day. It has a client "ci".
func newDay(t *testing.T, dir string, env ...string) *day {
	secret := filepath.Join(dir, "ci.token")
	if err := os.WriteFile(secret, []byte(dayClient), 0o600); err != nil {
		t.Fatal(err)
	}
	d, iii := iiiDaemon(t, dir, append(env, "SANDBAR_DRIVER=native", "SANDBAR_TEMPLATES=off", "SANDBAR_E2B=true", "SANDBAR_III_IMAGE_ALLOWLIST=python", "SANDBAR_III_OPEN=true",
		"SANDBAR_CLIENTS=[{name: ci, token_file: "+secret+"}]")...)
	return &day{t: t, d: d, iii: iii, secrets: []string{token, dayClient, "zq-code", "zq-env", "zq-input", "zq-path", "zq-output"}}
}

// did notes the actions of what was just done.
func (y *day) did(actions ...string) { y.want = append(y.want, actions...) }

// fathom runs a program, and one whose language does not exist, which the protocol refuses itself.
func (y *day) fathom() {
	y.t.Helper()
	for language, want := range map[string]string{"shell": "result", "cobol": "error"} {
		if o, err := y.d.run(within(y.t, time.Minute), language, "echo zq-output # zq-code", 30*time.Second); err != nil || o.Type != want {
			y.t.Errorf("%+v, %v", o, err)
		}
	}
	y.did("execute exited")
}

// control makes a sandbox of the client ci and uses its API and its executor.
func (y *day) control() {
	y.t.Helper()
	ask := func(method, path, body string, want int) string {
		y.t.Helper()
		status, header, answer := y.d.as(y.t, dayClient, method, path, body)
		if status != want {
			y.t.Errorf("%s %s: %d %s", method, path, status, answer)
		}
		if id := header.Get("X-Request-Id"); !strings.HasPrefix(id, "req_") || status > 299 && !strings.Contains(answer, `"request":"`+id+`"`) {
			y.t.Errorf("%s %s has the request id %q: %s", method, path, id, answer)
		}
		return answer
	}
	var box struct{ ID string }
	if err := json.Unmarshal([]byte(ask("POST", "/v1/sandboxes", `{"env":{"ZQ":"zq-env"}}`, 201)), &box); err != nil {
		y.t.Fatal(err)
	}
	at := "/v1/sandboxes/" + box.ID
	ask("POST", at+"/executor/run", `{"cmd":"echo zq-output; exit 3"}`, 200)
	ask("POST", at+"/executor/write_file", `{"path":"zq-path","content":"zq-input"}`, 200)
	ask("POST", at+"/executor/start_process", `{"cmd":"sleep 100"}`, 201)
	ask("POST", "/v1/sandboxes", `{"limits":{"memory":1}}`, 400)
	ask("GET", at, "", 200)
	ask("DELETE", at, "", 204)
	ask("DELETE", at, "", 404)
	y.did("sandbox.create ok", "program.run exited", "file.write ok", "program.start ok", "sandbox.create invalid", "sandbox.stop ok", "sandbox.stop not_found")
}

// commands uses the command line.
func (y *day) commands() {
	y.t.Helper()
	id := strings.TrimSpace(y.d.cli(y.t, "create"))
	y.d.cli(y.t, "exec", id, "--", "sh", "-c", "echo zq-output")
	y.d.cli(y.t, "stop", id)
	y.did("sandbox.create ok", "program.run exited", "sandbox.stop ok")
}

// functions uses the functions of the iii engine.
func (y *day) functions() {
	y.t.Helper()
	c := dialIII(y.t, y.iii)
	id := c.call("sandbox::create", object{"image": "python"})["sandbox_id"]
	c.call("sandbox::exec", object{"sandbox_id": id, "cmd": "sh", "args": []string{"-c", "echo zq-output"}})
	c.call("sandbox::stop", object{"sandbox_id": id, "wait": true})
	y.did("sandbox.create ok", "program.start ok", "sandbox.stop ok") // exec follows a background program
}

// tools uses the tools of MCP.
func (y *day) tools() {
	y.t.Helper()
	headers := []string{"Content-Type", "application/json", "Accept", "application/json, text/event-stream"}
	_, h, _ := y.d.as(y.t, dayClient, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, headers...)
	headers = append(headers, "Mcp-Session-Id", h.Get("Mcp-Session-Id"))
	y.d.as(y.t, dayClient, "POST", "/mcp", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, headers...)
	y.d.as(y.t, dayClient, "POST", "/mcp", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"echo zq-output"}}}`, headers...)
	y.d.as(y.t, dayClient, "DELETE", "/mcp", "", headers...)
	y.did("sandbox.create ok", "program.run exited")
}

// foreign uses the protocol of E2B.
func (y *day) foreign() {
	y.t.Helper()
	key := []string{"X-Api-Key", token, "Content-Type", "application/json"}
	_, _, made := y.d.as(y.t, "", "POST", "/sandboxes", `{"templateID":"base","allow_internet_access":false}`, key...)
	var box struct{ SandboxID, EnvdAccessToken string }
	if err := json.Unmarshal([]byte(made), &box); err != nil {
		y.t.Fatalf("%s: %v", made, err)
	}
	at := []string{"E2b-Sandbox-Id", box.SandboxID, "E2b-Sandbox-Port", "49983", "X-Access-Token", box.EnvdAccessToken, "Content-Type", "application/octet-stream"}
	if status, _, said := y.d.as(y.t, "", "POST", "/files?path=zq-path&username=user", "zq-input", at...); status != 200 {
		y.t.Errorf("%d %s", status, said)
	}
	if status, _, said := y.d.as(y.t, "", "DELETE", "/sandboxes/"+box.SandboxID, "", key...); status > 299 {
		y.t.Errorf("%d %s", status, said)
	}
	y.secrets = append(y.secrets, box.EnvdAccessToken)
	y.did("sandbox.create ok", "file.write ok", "sandbox.stop ok")
}

// record is a line of the audit log.
type record struct {
	Time                                              time.Time
	Tenant, Client, Address, Action, Sandbox, Outcome string
}

// auditOf reads the audit log with its earlier files, in the order of time.
func auditOf(t *testing.T, log string) (all []record, text string) {
	t.Helper()
	files, err := filepath.Glob(log + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text += string(b)
	}
	for l := range strings.Lines(text) {
		var r record
		if err := json.Unmarshal([]byte(l), &r); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b record) int { return a.Time.Compare(b.Time) })
	return all, text
}

// The audit log of a day has each action of each front end once, with its outcome, over several
// files, also after the daemon was killed: then it has what was answered. It has no code,
// environment, input, output, path or token.
func TestAuditOfADay(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Python)
	dir := t.TempDir()
	log := filepath.Join(dir, "audit.log")
	y := newDay(t, dir, "SANDBAR_AUDIT_FILE="+log, "SANDBAR_AUDIT_MAX_SIZE=4KiB")
	for _, part := range []func(){y.fathom, y.control, y.commands, y.functions, y.tools, y.foreign, y.control, y.commands} {
		part()
	}
	y.d.kill()
	all, text := auditOf(t, log)
	var got []string
	for _, r := range all {
		got = append(got, r.Action+" "+r.Outcome)
	}
	if !cmp.Equal(y.want, got) {
		t.Error(cmp.Diff(y.want, got))
	}
	if in := found([]byte(text), y.secrets...); len(in) > 0 {
		t.Errorf("the audit log holds %v:\n%s", in, text)
	}
	if _, err := os.Stat(log + ".1"); err != nil {
		t.Errorf("the log was not rotated: %v", err)
	}
}

// Each line of the log about a request names its client, its sandbox and its request, and no two
// requests have the same id. The log has no code, environment, input, output, path or token.
func TestLogOfADay(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Python)
	y := newDay(t, t.TempDir(), "SANDBAR_LOG_FORMAT=json", "SANDBAR_LOG_LEVEL=debug")
	for _, part := range []func(){y.fathom, y.control, y.commands, y.functions, y.tools, y.foreign} {
		part()
	}
	y.d.as(t, "wrong", "GET", "/sandboxes", "")
	if err := y.d.stop(); err != nil {
		t.Errorf("%v\n%s", err, y.d.said())
	}
	said := y.d.said()
	if in := found([]byte(said), y.secrets...); len(in) > 0 {
		t.Errorf("the log holds %v:\n%s", in, said)
	}
	// ofRequest are the messages about a request, and whether their lines have a sandbox.
	ofRequest := map[string]bool{"execution ended": true, "execution failed": true, "sandbox created": true, "fathom: connected": false, "fathom: disconnected": false,
		"iii: a sandbox runs on another image than its name says": true}
	// ofSandbox are the messages about a sandbox that no request causes at that moment.
	ofSandbox := []string{"sandbox ended"}
	// ofDriver are the messages of a driver, which does not know clients.
	ofDriver := []string{"a sandbox's counters could not be read"}
	seen := map[string]int{}
	ends := map[string]int{} // ends of programs by request
	for l := range strings.Lines(said) {
		var line map[string]any
		if err := json.Unmarshal([]byte(l), &line); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		text := func(key string) string { s, _ := line[key].(string); return s }
		msg := text("msg")
		seen[msg]++
		_, hasClient := line["client"]
		withSandbox, about := ofRequest[msg]
		switch {
		case slices.Contains(ofSandbox, msg):
			if text("sandbox") == "" || !hasClient || text("request") != "" {
				t.Errorf("not a line about a sandbox: %s", l)
			}
		case about:
			if !strings.HasPrefix(text("request"), "req_") || !hasClient || withSandbox && text("sandbox") == "" {
				t.Errorf("the line does not name client, request and sandbox: %s", l)
			}
		case text("sandbox") != "" && !slices.Contains(ofDriver, msg):
			t.Errorf("the test does not know the line %s", l)
		}
		if strings.Count(l, `"client":`) > 1 || strings.Count(l, `"request":`) > 1 {
			t.Errorf("the line has a member twice: %s", l)
		}
		if msg == "execution ended" {
			ends[text("request")]++
		}
	}
	for msg := range ofRequest {
		if msg != "execution failed" && !strings.HasPrefix(msg, "iii: ") && seen[msg] == 0 {
			t.Errorf("there is no line %q", msg)
		}
	}
	for id, n := range ends {
		if n > 1 {
			t.Errorf("%d programs have the request %s", n, id)
		}
	}
	if seen["request refused"] == 0 || seen["sandbox ended"] < 5 {
		t.Errorf("%v", seen)
	}
}
