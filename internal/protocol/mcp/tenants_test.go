package mcp

import (
	"context"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/server/tenant"
)

// Every tool is tried by another tenant: in the session of a tenant, which does not exist for it,
// and in a session of its own for the tenant's sandbox. A read-only token reaches no tool. A
// session ends with its token, with what runs in it.
func TestTenants(t *testing.T) {
	r := newRig(t, Options{})
	url := r.serve()
	for name, role := range map[string]sandbar.Role{"a": sandbar.RoleUser, "b": sandbar.RoleAdmin, "reader": sandbar.RoleReadOnly} {
		x := tenant.Token{Name: name, Tenant: strings.Replace(name, "reader", "a", 1), Role: role, Hash: tenant.HashOf("token-" + name), Created: time.Now()}
		if err := tenant.Create(r.tokens, x); err != nil {
			t.Fatal(err)
		}
	}
	a, b := r.dial(url, "token-a"), r.dial(url, "token-b")
	if got, _ := a.call("run_command", object{"command": "echo kept > f"}); strings.Contains(got, "error") {
		t.Error(got)
	}
	mine := r.engine.List(context.Background())
	if len(mine) != 1 || mine[0].Spec.Client.Tenant != "a" {
		t.Fatalf("%+v", mine)
	}
	box := string(mine[0].ID)
	with := func(o object) object { o["sandbox"] = box; return o }
	tools := map[string]object{
		"run_code": with(object{"code": "1"}), "run_command": with(object{"command": "rm f"}), "read_file": with(object{"path": "f"}),
		"write_file": with(object{"path": "f", "content": "x"}), "edit_file": with(object{"path": "f", "old": "kept", "new": "x"}),
		"list_files": with(object{}), "search_files": with(object{"pattern": "kept"}), "upload": with(object{"path": "f", "data": "AA=="}),
		"download": with(object{"path": "f"}), "stop_sandbox": with(object{}), "expose_port": with(object{"port": 80}),
		"snapshot": with(object{}), "restore": {"snapshot": box}, "create_sandbox": nil, "list_sandboxes": nil,
	}
	all, err := b.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range all.Tools {
		args, ok := tools[tool.Name]
		if !ok {
			t.Errorf("%s is not tried", tool.Name)
			continue
		}
		if args != nil {
			if code, text := b.refused(tool.Name, args); code != "not_found" {
				t.Errorf("%s by another tenant: %s %s", tool.Name, code, text)
			}
		}
		call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool.Name + `","arguments":{}}}`
		if status, text := ask(t, "POST", url, call, "Authorization", "Bearer token-b", sessionHeader, a.ID()); status != 404 {
			t.Errorf("%s in the session of another tenant: %d %s", tool.Name, status, text)
		}
		if status, text := ask(t, "POST", url, call, "Authorization", "Bearer token-reader", sessionHeader, a.ID()); status != 403 {
			t.Errorf("%s by a reader: %d %s", tool.Name, status, text)
		}
	}
	if got, _ := b.call("list_sandboxes", object{}); strings.Contains(got, box) {
		t.Error("the list of another tenant:", got)
	}
	if got, _ := a.call("run_command", object{"command": "cat f"}); got != "kept\n" {
		t.Errorf("the file of the tenant has %q", got)
	}

	p := &sdk.CallToolParams{Name: "run_command", Arguments: object{"command": "echo started; sleep 1000"}}
	p.SetProgressToken("p")
	done := make(chan error, 1)
	go func() {
		_, err := a.CallTool(t.Context(), p)
		done <- err
	}()
	<-a.progress
	if err := tenant.Revoke(r.tokens, "a"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("a call of a revoked token went on")
	}
	for len(r.engine.List(context.Background())) > 0 { // the sandboxes of the session end with it
		time.Sleep(10 * time.Millisecond)
	}
}
