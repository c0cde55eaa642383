package e2b

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/server/tenant"
)

// keysOf makes an API key of each role of a tenant.
func (r *rig) keysOf(name string) map[sandbar.Role]string {
	r.t.Helper()
	keys := map[sandbar.Role]string{}
	for _, role := range sandbar.Roles {
		keys[role] = "key-of-" + name + "-" + string(role)
		if err := tenant.Create(r.tokens, tenant.Token{Name: name + "-" + string(role), Tenant: name, Role: role, Hash: tenant.HashOf(keys[role]), Created: time.Now()}); err != nil {
			r.t.Fatal(err)
		}
	}
	return keys
}

// as asks the control plane with a key.
func (r *rig) as(key, method, path, body string) (int, string) {
	r.t.Helper()
	return r.ask(method, path, body, keyHeader, key)
}

// foreign are the bodies of the operations, in an order in which each can succeed. Each operation
// must be here.
var foreign = []struct{ operation, body string }{
	{"GET /sandboxes", ""}, {"GET /v2/sandboxes", ""}, {"GET /sandboxes/metrics", ""}, {"GET /sandboxes/*", ""}, {"GET /sandboxes/*/metrics", ""},
	{"GET /sandboxes/*/logs", ""}, {"GET /v2/sandboxes/*/logs", ""}, {"POST /sandboxes/*/timeout", `{"timeout":100}`}, {"POST /sandboxes/*/refreshes", `{"duration":100}`},
	{"PUT /sandboxes/*/network", `{"denyOut":["10.0.0.0/8"]}`}, {"POST /sandboxes/*/connect", `{"timeout":100}`}, {"POST /v2/sandboxes/*/connect", `{"timeout":100}`},
	{"POST /sandboxes/*/snapshots", `{"name":"other"}`}, {"POST /sandboxes/*/fork", `{"count":1}`}, {"POST /sandboxes/*/pause", `{"memory":false}`},
	{"POST /sandboxes/*/resume", `{"timeout":100}`}, {"GET /snapshots", ""}, {"GET /templates", ""}, {"GET /v2/templates", ""},
	{"POST /templates/tags", `{"target":"mine","tags":["v2"]}`}, {"DELETE /templates/tags", `{"name":"mine","tags":["v2"]}`},
	{"GET /templates/aliases/*", ""}, {"GET /templates/*", ""}, {"PATCH /templates/*", `{"public":false}`}, {"PATCH /v2/templates/*", `{"public":false}`},
	{"GET /templates/*/tags", ""}, {"GET /templates/*/files/*", ""}, {"PUT /templates/*/files/*", "content"},
	{"GET /templates/*/builds/*/status", ""}, {"GET /templates/*/builds/*/logs", ""}, {"POST /v2/templates/*/builds/*", `{"fromImage":"base"}`},
	{"DELETE /templates/*", ""}, {"DELETE /sandboxes/*", ""},
	{"POST /sandboxes", `{"templateID":"mine"}`}, {"POST /v2/sandboxes", `{"templateID":"mine"}`}, {"POST /v3/templates", `{"name":"mine"}`},
}

// Every operation of the control plane is tried by each role of another tenant, and by a read-only
// key of the same tenant, before a user of the tenant does it: nothing is readable, listed, changed
// or ended by another tenant.
func TestTenants(t *testing.T) {
	for _, o := range operations() {
		if !slices.ContainsFunc(foreign, func(f struct{ operation, body string }) bool { return f.operation == o.method+" "+o.path }) {
			t.Errorf("%s %s is not tried", o.method, o.path)
		}
	}
	r := newRig(t, Options{Dir: t.TempDir()}, savingDriver)
	a, b := r.keysOf("a"), r.keysOf("b")
	r.key = a[sandbar.RoleUser]
	box := r.create("{}")
	q := r.request(`{"name":"mine"}`)
	if s := r.built(q, `{"fromImage":"base"}`); s.Status != ready {
		t.Fatalf("%+v", s)
	}
	next := r.request(`{"name":"mine:next"}`)
	hash := strings.Repeat("a", 64)
	if status, text := r.plane("PUT", "/templates/"+q.TemplateID+"/files/"+hash, "of a"); status != 200 {
		t.Fatal(status, text)
	}
	secrets := []string{box.SandboxID, box.AccessToken, q.TemplateID, q.BuildID, next.BuildID}
	for _, f := range foreign {
		method, path, _ := strings.Cut(f.operation, " ")
		inside := strings.Contains(path, "*") || strings.Contains(path, "tags")
		switch {
		case strings.Contains(path, "/aliases/"):
			path = strings.Replace(path, "*", "mine", 1)
		case strings.Contains(path, "templates/"):
			path = strings.Replace(path, "*", q.TemplateID, 1)
		default:
			path = strings.Replace(path, "*", box.SandboxID, 1)
		}
		path = strings.Replace(path, "files/*", "files/"+hash, 1)
		path = strings.Replace(path, "builds/*", "builds/"+next.BuildID, 1)
		if strings.HasSuffix(path, "/sandboxes/metrics") {
			path += "?sandbox_ids=" + box.SandboxID
		}
		reads := method == "GET"
		for _, role := range sandbar.Roles {
			status, text := r.as(b[role], method, path, f.body)
			want := 404
			switch {
			case role == sandbar.RoleReadOnly && !reads:
				want = 403
			case strings.Contains(path, "/files/"): // the files of a tenant are its own, whatever the template
				want = status
				if method == "GET" && !strings.Contains(text, `"present":false`) && role == sandbar.RoleAdmin {
					t.Errorf("another tenant sees an upload: %d %s", status, text)
				}
			case path == "/v3/templates":
				want = 202
			case method == "POST" && strings.HasSuffix(path, "/sandboxes"):
				want = 201 // of an image: this driver has all; see TestTenantsNames
			case !inside && reads:
				want = 200
			}
			if status != want {
				t.Errorf("%s by %s of another tenant: %d %s, want %d", f.operation, role, status, text, want)
			}
			for _, secret := range secrets {
				if strings.Contains(text, secret) && status < 300 && !strings.Contains(path, "/files/") {
					t.Errorf("%s by %s of another tenant shows %s: %s", f.operation, role, secret, text)
				}
			}
		}
		status, text := r.as(a[sandbar.RoleReadOnly], method, path, f.body)
		if want := map[bool]int{true: 200, false: 403}[reads]; status != want && !(reads && status < 300) {
			t.Errorf("%s by a reader: %d %s, want %d", f.operation, status, text, want)
		}
		if strings.Contains(text, box.AccessToken) {
			t.Errorf("%s gives a reader the access token: %s", f.operation, text)
		}
		if strings.HasPrefix(path, "/v3/") || method == "POST" && strings.HasSuffix(path, "/sandboxes") {
			continue // the template has been removed
		}
		if status, text := r.plane(method, path, f.body); status == 401 || status == 403 || status == 404 || status == 405 {
			t.Errorf("%s by a user of the tenant: %d %s", f.operation, status, text)
		}
	}
	r.key = apiKey
	if status, text := r.plane("GET", "/v2/sandboxes", ""); status != 200 || strings.Count(text, `"sandboxID"`) != 5 {
		t.Errorf("the operator sees %d %s, want the copy of the tenant's sandbox and four of the other tenant", status, text)
	}
}

// The names of templates are those of a tenant, also for the operator, and a read-only key gets no
// access token.
func TestTenantsNames(t *testing.T) {
	r := newRig(t, Options{}, savingDriver)
	labels := map[string]string{}
	keys := map[string]string{"": apiKey, "a": r.keysOf("a")[sandbar.RoleUser], "b": r.keysOf("b")[sandbar.RoleAdmin]}
	for name, key := range keys {
		r.key = key
		q := r.request(`{"name":"mine"}`)
		if s := r.built(q, `{"fromImage":"base","steps":[{"type":"ENV","args":["OF","`+name+`"]}]}`); s.Status != ready {
			t.Fatalf("%+v", s)
		}
		labels[name] = q.TemplateID
	}
	for name, key := range keys {
		r.key = key
		c := r.create(`{"templateID":"mine"}`)
		if _, text := r.ask("GET", "/envs", "", c.to("49983")...); text != `{"OF":"`+name+`"}` {
			t.Errorf("the template of %q has %s", name, text)
		}
		var all []templateInfo
		status, text := r.plane("GET", "/templates", "")
		if err := json.Unmarshal([]byte(text), &all); err != nil || status != 200 || len(all) != 1 || all[0].TemplateID != labels[name] {
			t.Errorf("the templates of %q: %d %s", name, status, text)
		}
	}
	r.key = keys["a"]
	c := r.create(`{}`)
	if _, text := r.as("key-of-a-read-only", "GET", "/sandboxes/"+c.SandboxID, ""); strings.Contains(text, c.AccessToken) || !strings.Contains(text, c.SandboxID) {
		t.Error(text)
	}
}
