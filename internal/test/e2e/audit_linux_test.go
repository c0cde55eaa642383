package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// The audit log has each action of a client once, with its outcome, when the action is answered: a
// daemon that is killed afterwards has it in the file, and the next one appends.
func TestAudit(t *testing.T) {
	testenv.Need(t, testenv.UserNS)
	dir := t.TempDir()
	log := filepath.Join(dir, "audit.log")
	start := func() *daemon { return nativeDaemon(t, dir, "SANDBAR_AUDIT_FILE="+log) }
	d := start()
	var box struct{ ID string }
	d.must(t, "POST", "/sandboxes", object{}, &box)
	d.shell(t, box.ID, "exit 3")
	path := "/sandboxes/" + box.ID
	d.must(t, "POST", path+"/executor/write_file", object{"path": "f", "content": "x"}, nil)
	d.must(t, "POST", path+"/executor/read_file", object{"path": "f"}, nil)
	d.must(t, "POST", path+"/executor/start_process", object{"cmd": "sleep 100"}, nil)
	if err := d.ask(within(t, time.Minute), "POST", "/sandboxes", object{"limits": object{"memory": 1}}, nil); err == nil {
		t.Error("a sandbox of one byte was made")
	}
	d.kill()
	d = start()
	if err := d.ask(within(t, time.Minute), "DELETE", path, nil, nil); err == nil {
		t.Error("a sandbox outlived its daemon")
	}
	d.must(t, "POST", "/sandboxes", object{}, &box)
	d.must(t, "DELETE", "/sandboxes/"+box.ID, nil, nil)
	d.endClean(t)
	want := []string{"sandbox.create ok", "program.run exited", "file.write ok", "file.read ok", "program.start ok", "sandbox.create invalid",
		"sandbox.stop not_found", "sandbox.create ok", "sandbox.stop ok"}
	if got := audited(t, log); !cmp.Equal(want, got) {
		t.Errorf("%s", cmp.Diff(want, got))
	}
}

// The actions of every protocol are those of its clients, and the end of an idle sandbox is none.
func TestAuditOfProtocols(t *testing.T) {
	testenv.Need(t, testenv.UserNS, testenv.Python)
	dir := t.TempDir()
	log := filepath.Join(dir, "audit.log")
	d := nativeDaemon(t, dir, "SANDBAR_AUDIT_FILE="+log, "SANDBAR_E2B=true", "SANDBAR_IDLE_TIMEOUT=3s")
	request := func(method, path, body string, headers ...string) (http.Header, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(within(t, time.Minute), method, "http://"+d.addr+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode > 299 {
			t.Fatalf("%s %s: %s %s %v", method, path, resp.Status, b, err)
		}
		return resp.Header, string(b)
	}
	_, made := request("POST", "/sandboxes", `{"templateID":"base","allow_internet_access":false}`, "X-Api-Key", token, "Content-Type", "application/json")
	var box struct{ SandboxID, EnvdAccessToken string }
	if err := json.Unmarshal([]byte(made), &box); err != nil {
		t.Fatal(err)
	}
	at := func(port string, more ...string) []string {
		return append([]string{"E2b-Sandbox-Id", box.SandboxID, "E2b-Sandbox-Port", port, "X-Access-Token", box.EnvdAccessToken}, more...)
	}
	request("POST", "/files?path=f&username=user", "x", at("49983", "Content-Type", "application/octet-stream")...)
	request("POST", "/execute", `{"code":"1+1","language":"python"}`, at("49999", "Content-Type", "application/json")...)
	request("DELETE", "/sandboxes/"+box.SandboxID, "", "X-Api-Key", token)

	mcp := []string{"Authorization", "Bearer " + token, "Content-Type", "application/json", "Accept", "application/json, text/event-stream"}
	h, _ := request("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, mcp...)
	mcp = append(mcp, "Mcp-Session-Id", h.Get("Mcp-Session-Id"))
	request("POST", "/mcp", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, mcp...)
	request("POST", "/mcp", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"true"}}}`, mcp...)
	request("DELETE", "/mcp", "", mcp...)

	var idle struct{ ID string }
	d.must(t, "POST", "/sandboxes", object{"idle_timeout": 1}, &idle)
	waitUntil(t, "the idle sandbox is gone", func() (left []string) {
		for id := range d.sandboxes(t) {
			left = append(left, id)
		}
		return left
	})
	d.endClean(t)
	want := []string{"sandbox.create ok", "file.write ok", "context.create ok", "context.run exited", "sandbox.stop ok",
		"sandbox.create ok", "program.run exited", "sandbox.create ok"}
	if got := audited(t, log); !cmp.Equal(want, got) {
		t.Errorf("%s", cmp.Diff(want, got))
	}
}

// audited returns the actions of an audit log with their outcomes, and checks the other members.
func audited(t *testing.T, log string) (got []string) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		var r struct {
			Time                              time.Time
			Address, Action, Sandbox, Outcome string
		}
		if err := json.Unmarshal([]byte(l), &r); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		if !strings.HasPrefix(r.Address, "127.0.0.1:") || time.Since(r.Time) > time.Hour || (r.Sandbox == "") != (r.Outcome == "invalid") {
			t.Errorf("%s", l)
		}
		got = append(got, r.Action+" "+r.Outcome)
	}
	return got
}
