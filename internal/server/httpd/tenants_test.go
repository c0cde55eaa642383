package httpd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/server/tenant"
)

// readable is a route that a caller that may only read can POST to, and nothing else.
type readable struct{ http.Handler }

func (readable) Reads(r *http.Request) bool { return r.Method == http.MethodPost }

// startTenants runs a server with a token of each role of the tenant "a", one of the default
// tenant, and routes. The token NAME is "of-NAME".
func startTenants(t *testing.T, change func(*Options)) (*Server, string) {
	path := filepath.Join(t.TempDir(), tenant.FileName)
	soon := time.Now().Add(-time.Second)
	for _, x := range []tenant.Token{
		{Name: "a-admin", Tenant: "a", Role: sandbar.RoleAdmin}, {Name: "a-user", Tenant: "a", Role: sandbar.RoleUser},
		{Name: "a-reader", Tenant: "a", Role: sandbar.RoleReadOnly}, {Name: "own", Tenant: sandbar.DefaultTenant, Role: sandbar.RoleUser},
		{Name: "old", Tenant: "a", Role: sandbar.RoleAdmin, Expires: &soon},
	} {
		x.Hash = tenant.HashOf("of-" + x.Name)
		if err := tenant.Create(path, x); err != nil {
			t.Fatal(err)
		}
	}
	store := tenant.Open(path, nil)
	t.Cleanup(store.Close)
	who := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := engine.Client(r.Context())
		fmt.Fprintf(w, "%s/%s/%s", c.Tenant, c.Role, c.Name)
	})
	s, _ := start(t, func(o *Options) {
		o.Tokens = store
		o.Routes["/who"] = who
		o.Routes["/read"] = readable{who}
		if change != nil {
			change(o)
		}
	})
	return s, path
}

// A token gives its identity, and a role that may only read reaches a handler only with what reads.
func TestTenants(t *testing.T) {
	s, path := startTenants(t, nil)
	ask := func(token, request string) string {
		resp, body := send(t, s, request+" HTTP/1.1\nHost: localhost\nAuthorization: Bearer "+token+"\nConnection: close\nContent-Length: 0\n\n")
		if resp.StatusCode != 200 {
			return fmt.Sprint(resp.StatusCode)
		}
		return body
	}
	for _, tc := range []struct{ token, request, want string }{
		{token, "POST /who", "//"},
		{"of-a-admin", "POST /who", "a/admin/a-admin"},
		{"of-a-user", "DELETE /who", "a/user/a-user"},
		{"of-own", "POST /who", "/user/own"},
		{"of-a-reader", "GET /who", "a/read-only/a-reader"},
		{"of-a-reader", "POST /who", "403"},
		{"of-a-reader", "DELETE /who", "403"},
		{"of-a-reader", "BREW /who", "403"},
		{"of-a-reader", "POST /read", "a/read-only/a-reader"},
		{"of-a-reader", "GET /read", "403"},
		{"of-old", "GET /who", "401"},
		{"of-nobody", "GET /who", "401"},
		{"of-a-admin", "GET /metrics", "403"},
	} {
		if got := ask(tc.token, tc.request); got != tc.want {
			t.Errorf("%s with %s: %s, want %s", tc.request, tc.token, got, tc.want)
		}
	}
	if got := ask("of-own", "GET /metrics"); !strings.Contains(got, `sandbar_http_refused_total{reason="role"}`) || strings.Contains(got, `{reason="role"} 0`) {
		t.Error("the metrics of the default tenant, or the count of refusals by role, are missing")
	}
	if resp, _ := send(t, s, "GET /who HTTP/1.1\nHost: localhost\nAuthorization: Bearer of-a-reader\nUpgrade: websocket\nConnection: Upgrade\n\n"); resp.StatusCode != 403 {
		t.Errorf("an upgrade of a reader: %d", resp.StatusCode)
	}
	for token, load := range map[string]bool{token: true, "of-a-admin": false, "of-own": false} {
		if got := ask(token, "GET /health"); strings.Contains(got, "load") != load {
			t.Errorf("health for %s: %s", token, got)
		}
	}
	// A damaged file refuses its tokens and says so. The operator's own token goes on.
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ask("of-a-user", "GET /who"); got != "503" {
		t.Error("with a damaged file:", got)
	}
	if got := ask(token, "GET /who"); got != "//" {
		t.Error("the operator with a damaged file:", got)
	}
}

// A request in progress ends when its token is revoked, also one over a hijacked connection, and
// one whose body arrives.
func TestRevocationEndsRequests(t *testing.T) {
	began := make(chan bool, 3)
	ended := make(chan error, 3)
	endless := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/upload" {
			began <- true
			if _, err := io.Copy(io.Discard, r.Body); err == nil {
				t.Error("the body has ended")
			}
			ended <- context.Cause(r.Context())
			return
		}
		if r.URL.Path == "/hijack" {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
			}
			defer conn.Close()
		} else {
			io.WriteString(w, "begun")
			http.NewResponseController(w).Flush()
		}
		began <- true
		<-r.Context().Done()
		ended <- context.Cause(r.Context())
	})
	s, path := startTenants(t, func(o *Options) {
		o.Routes["/endless"], o.Routes["/hijack"], o.Routes["/upload"] = endless, endless, endless
	})
	for route, header := range map[string]string{"/endless": "", "/hijack": "Upgrade: x\r\n", "/upload": "Content-Length: 100\r\n"} {
		conn, err := net.Dial("tcp", s.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, "GET "+route+" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer of-a-user\r\n"+header+"\r\n")
		<-began
	}
	if err := tenant.Revoke(path, "a-user"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := <-ended; !errors.Is(err, ErrRevoked) {
			t.Error("a request ended with", err)
		}
	}
}
