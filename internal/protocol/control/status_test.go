package control

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/engine"
)

// aDaemon describes a daemon whose images and counts are fixed.
func aDaemon() Daemon {
	return Daemon{Version: "v1.2.3", Started: time.Unix(1e9, 0), Skipped: []wire.DriverState{{Name: "vm", State: wire.DriverSkipped, Error: "no KVM"}},
		Count: func(st *wire.Status) {
			st.Executions = &wire.Executions{Total: 7, ByLanguage: map[string]int64{}, ByOutcome: map[string]int64{}}
		},
		Doctor:        func(context.Context) (any, error) { return map[string]bool{"ok": true}, nil },
		Configuration: func() wire.Configuration { return wire.Configuration{Settings: []wire.Setting{{Name: "listen"}}} },
		Images: func(_ context.Context, all bool) ([]wire.Image, error) {
			images := []wire.Image{{Name: "python", Ref: "python:3", Source: wire.ImagePull, Preset: true}}
			if all {
				images = append(images, wire.Image{Name: "registry.example/private", Ref: "registry.example/private", Source: wire.ImageInstalled})
			}
			return images, nil
		}}
}

// The operator sees the state of the daemon and of all tenants; a tenant sees its own.
func TestStatus(t *testing.T) {
	r := newRig(t, Options{Daemon: aDaemon()}, nil)
	r.create(`{}`)
	if status, text := r.ask(strangerToken, "POST", "/sandboxes", `{}`); status != 201 {
		t.Fatal(status, text)
	}
	get := func(token string) (st wire.Status, text string) {
		status, text := r.ask(token, "GET", "/v1/status", "")
		if err := json.Unmarshal([]byte(text), &st); err != nil || status != 200 {
			t.Fatal(status, text)
		}
		return st, text
	}
	st, text := get(token)
	if st.Version != "v1.2.3" || !st.Started.Equal(time.Unix(1e9, 0)) || st.Driver != "faulty" || st.Engine.Sandboxes != 2 || st.Executions.Total != 7 ||
		!slices.Equal(st.Drivers, []wire.DriverState{{Name: "faulty", Boundary: st.Boundary, State: "ready"}, {Name: "vm", State: "skipped", Error: "no KVM"}}) ||
		!slices.Equal(st.Clients, []wire.ClientLoad{{Tenant: "default", Sandboxes: 1, Memory: 256 << 20}, {Tenant: "other", Sandboxes: 1, Memory: 256 << 20}}) || !strings.Contains(text, `"ready_pools":[]`) {
		t.Errorf("the operator: %s", text)
	}
	st, text = get(strangerToken)
	if st.Engine.Sandboxes != 1 || !slices.Equal(st.Clients, []wire.ClientLoad{{Tenant: "other", Sandboxes: 1, Memory: 256 << 20}}) {
		t.Errorf("a tenant: %s", text)
	}
	var members map[string]any
	if err := json.Unmarshal([]byte(text), &members); err != nil || len(members) != 3 {
		t.Errorf("a tenant sees more than version, engine and clients: %s", text)
	}
	if st, text = get(readerToken); st.Engine.Sandboxes != 1 || st.Executions != nil || len(st.Clients) != 1 || st.Clients[0].Tenant != sandbar.DefaultTenant {
		t.Errorf("a token for reading in the default tenant: %s", text)
	}
}

// What only the operator may read, and what each may.
func TestDaemonPaths(t *testing.T) {
	r := newRig(t, Options{Daemon: aDaemon()}, nil)
	id := string(r.create(`{"secret":"` + secret + `"}`).ID)
	for _, path := range []string{"/v1/doctor", "/v1/configuration"} {
		if status, text := r.ask(token, "GET", path, ""); status != 200 || !strings.Contains(text, "ok") && !strings.Contains(text, "listen") {
			t.Errorf("%s: %d %s", path, status, text)
		}
		for _, bearer := range []string{readerToken, strangerToken} {
			if status, text := r.ask(bearer, "GET", path, ""); status != 403 || errorOf(t, text).Code != sandbar.Denied {
				t.Errorf("%s with %s: %d %s", path, bearer, status, text)
			}
		}
	}
	for _, path := range []string{"/v1/doctor", "/v1/configuration", "/v1/status", "/v1/images", "/v1/languages", "/v1/usage"} {
		if status, _ := r.ask(secret, "GET", path, ""); status != 401 {
			t.Errorf("%s with the secret of %s: %d", path, id, status)
		}
		if status, text := r.ask(token, "GET", path+"?x=1", ""); status != 400 || errorOf(t, text).Code != sandbar.Invalid {
			t.Errorf("%s with a parameter: %d %s", path, status, text)
		}
		if status, text := r.ask(token, "GET", strings.TrimPrefix(path, "/v1"), ""); status != 404 {
			t.Errorf("%s without its version: %d %s", path, status, text)
		}
	}
	if _, text := r.ask(token, "GET", "/v1/images", ""); !strings.Contains(text, "private") || !strings.Contains(text, `"drivers":["faulty"]`) {
		t.Error("the operator does not see an installed image:", text)
	}
	for _, bearer := range []string{readerToken, strangerToken} {
		if status, text := r.ask(bearer, "GET", "/v1/images", ""); status != 200 || strings.Contains(text, "private") || !strings.Contains(text, "python") {
			t.Errorf("the images of %s: %d %s", bearer, status, text)
		}
	}
	var all wire.Languages
	_, text := r.ask(readerToken, "GET", "/v1/languages", "")
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	contexts := 0
	for _, l := range all.Languages {
		if l.Contexts {
			contexts++
		}
		i := slices.Index([]string{"python", "javascript", "shell", "elixir", "typescript"}, l.Name)
		if want := [][2]bool{{true, true}, {true, true}, {true, true}, {true, false}, {false, true}}; i >= 0 && want[i] != [2]bool{l.Executions, l.Contexts} {
			t.Errorf("%+v", l)
		}
	}
	if contexts != len(engine.ContextLanguages()) {
		t.Errorf("%d languages of contexts: %s", contexts, text)
	}
}

// A daemon without a description says so.
func TestNoDaemon(t *testing.T) {
	r := newRig(t, Options{}, nil)
	for _, path := range []string{"/v1/doctor", "/v1/configuration", "/v1/images"} {
		if status, text := r.ask(token, "GET", path, ""); status != 422 || errorOf(t, text).Code != sandbar.Unsupported {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, text := r.ask(token, "GET", "/v1/status", ""); status != 200 {
		t.Errorf("%d %s", status, text)
	}
}

// A tenant reads its own usage and quotas, the operator those of any tenant, over all daemons.
func TestUsage(t *testing.T) {
	var asked atomic.Value
	o := Options{Others: func(r *http.Request) ([]http.Header, [][]byte, error) {
		asked.Store(r.URL.RawQuery)
		return nil, [][]byte{[]byte(`{"tenant":"other","sandboxes":2,"cpus":0.25,"memory_bytes":1024,"disk_bytes":7,"deciding":1,"quota":{}}`)}, nil
	}}
	r := newRig(t, o, nil)
	if err := r.engine.SetTenants(map[string]engine.TenantLimits{"other": {MaxSandboxes: 5, CPUs: 1.5}}); err != nil {
		t.Fatal(err)
	}
	if status, text := r.ask(strangerToken, "POST", "/sandboxes", `{"limits":{"cpus":0.5,"memory":67108864,"disk":1048576}}`); status != 201 {
		t.Fatal(status, text)
	}
	want := wire.Usage{Tenant: "other", Sandboxes: 3, CPUs: 0.75, Memory: 64<<20 + 1024, Disk: 1<<20 + 7, Deciding: 1, Quota: wire.Quota{Sandboxes: 5, CPUs: 1.5}}
	for _, x := range []struct{ token, query string }{{strangerToken, ""}, {strangerToken, "tenant=other"}, {token, "tenant=other"}} {
		var got wire.Usage
		status, text := r.ask(x.token, "GET", "/v1/usage?"+x.query, "")
		if err := json.Unmarshal([]byte(text), &got); err != nil || status != 200 || got != want || asked.Load() != x.query {
			t.Errorf("%+v: %d %s", x, status, text)
		}
	}
	for _, x := range []struct {
		token, query string
		code         sandbar.Code
	}{
		{token, "", sandbar.Invalid}, {token, "tenant=default", sandbar.Invalid}, {token, "x=1", sandbar.Invalid},
		{strangerToken, "tenant=another", sandbar.Denied}, {strangerToken, "tenant=default", sandbar.Denied}, {readerToken, "", sandbar.Denied}, {readerToken, "tenant=other", sandbar.Denied},
	} {
		if _, text := r.ask(x.token, "GET", "/v1/usage?"+x.query, ""); errorOf(t, text).Code != x.code {
			t.Errorf("%+v: %s", x, text)
		}
	}
}
