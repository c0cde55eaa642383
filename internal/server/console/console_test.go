package console_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/server/console"
	"github.com/sandbar-dev/sandbar/internal/server/httpd"
	"github.com/sandbar-dev/sandbar/internal/server/tenant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const operatorToken = "the-daemons-own-token"

// auditor collects actions.
type auditor struct {
	mu     sync.Mutex
	all    []engine.Action
	failed error
}

func (a *auditor) Record(x engine.Action) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, x)
}

func (a *auditor) Ready() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

// actions returns what was recorded, as "VERB OUTCOME TENANT/NAME".
func (a *auditor) actions() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []string
	for _, x := range a.all {
		if x.Client.Address == "" || x.Time.IsZero() {
			all = append(all, "without address or time")
		}
		all = append(all, fmt.Sprintf("%s %s %s/%s", x.Verb, x.Outcome, x.Client.Tenant, x.Client.Name))
	}
	return all
}

// host is a handler of host names of previews.
type host struct{ http.Handler }

func (host) Serves(name string) bool { return name == "8000-x.localhost" }

func (h host) ServeHost(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r) }

// rig is the console behind a real listener. The token NAME is "of-NAME".
type rig struct {
	t      *testing.T
	addr   string
	audit  *auditor
	tokens string // the file
}

func newRig(t *testing.T, assets fstest.MapFS) *rig {
	t.Helper()
	r := &rig{t: t, audit: &auditor{}, tokens: filepath.Join(t.TempDir(), tenant.FileName)}
	for _, x := range []tenant.Token{{Name: "user", Tenant: "a", Role: sandbar.RoleUser}, {Name: "reader", Tenant: "a", Role: sandbar.RoleReadOnly}} {
		x.Hash = tenant.HashOf("of-" + x.Name)
		if err := tenant.Create(r.tokens, x); err != nil {
			t.Fatal(err)
		}
	}
	store := tenant.Open(r.tokens, nil)
	t.Cleanup(store.Close)
	who := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := engine.Client(r.Context())
		fmt.Fprintf(w, "%s/%s/%s", c.Tenant, c.Role, c.Name)
	})
	var server *httpd.Server
	sessions := console.NewSessions(operatorToken)
	o := console.Options{Sessions: sessions, Identify: func(token string) (sandbar.Client, error) { return server.Identify(token) },
		Fail: httpd.WriteError, PreviewDomain: "previews.example", Version: "v1.2.3", Audit: r.audit}
	if assets != nil {
		o.Assets = assets
	}
	page := console.New(o)
	routes := map[string]http.Handler{"/v1/who": who, "/r/": who, "/mcp": who, "/sandboxes": who}
	for _, pattern := range console.Patterns {
		routes[pattern] = page
	}
	var err error
	server, err = httpd.Listen(httpd.Options{Listen: "127.0.0.1:0", Token: operatorToken, Tokens: store, Sessions: sessions, AllowedOrigins: []string{"https://app.example"},
		Routes: routes,
		Hosts:  []httpd.HostHandler{host{who}}})
	if err != nil {
		t.Fatal(err)
	}
	r.addr = strings.TrimPrefix(server.URL(), "http://")
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	t.Cleanup(func() {
		if err := errors.Join(server.Shutdown(context.Background()), <-served); err != nil {
			t.Error(err)
		}
	})
	return r
}

// ask sends a request. headers are pairs; Host is one of them.
func (r *rig) ask(method, path, body string, headers ...string) (*http.Response, string) {
	r.t.Helper()
	q, err := http.NewRequest(method, "http://"+r.addr+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Add(headers[i], headers[i+1])
		if headers[i] == "Host" {
			q.Host = headers[i+1]
		}
	}
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	resp, err := transport.RoundTrip(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp, string(b)
}

// login logs in and returns the Cookie header of the session.
func (r *rig) login(token string) string {
	r.t.Helper()
	resp, body := r.ask("POST", "/console/login", `{"token":"`+token+`"}`)
	cookies := resp.Cookies()
	if resp.StatusCode != http.StatusNoContent || body != "" || len(cookies) != 1 {
		r.t.Fatalf("login: %d %s %v", resp.StatusCode, body, cookies)
	}
	return cookies[0].Name + "=" + cookies[0].Value
}

// codeOf returns the code of an error's body, "" for another body.
func codeOf(body string) sandbar.Code {
	var e wire.Error
	if json.Unmarshal([]byte(body), &e) != nil {
		return ""
	}
	return e.Error.Code
}

// The cookie of a login stands for its token, and only in requests of the daemon's own page to the
// console and to the control API.
func TestCookie(t *testing.T) {
	r := newRig(t, nil)
	own, user, reader := r.login(operatorToken), r.login("of-user"), r.login("of-reader")
	const console = "Sandbar-Console"
	for _, tc := range []struct {
		name    string
		request string // method and path
		headers []string
		status  int
		body    string
	}{
		{"by Sec-Fetch-Site", "GET /v1/who", []string{"Cookie", own, "Sec-Fetch-Site", "same-origin"}, 200, "//"},
		{"by Origin", "POST /v1/who", []string{"Cookie", user, "Origin", "http://" + r.addr}, 200, "a/user/user"},
		{"by the header", "GET /v1/who", []string{"Cookie", user, console, "1"}, 200, "a/user/user"},
		{"beside other cookies", "GET /v1/who", []string{"Cookie", "a=b; " + user + "; c=d", console, "1"}, 200, "a/user/user"},
		{"a role that may only read", "GET /v1/who", []string{"Cookie", reader, console, "1"}, 200, "a/read-only/reader"},
		{"a role that may only read changes nothing", "POST /v1/who", []string{"Cookie", reader, console, "1"}, 403, ""},
		{"no sign of the page", "GET /v1/who", []string{"Cookie", own}, 401, ""},
		{"another value of the header", "GET /v1/who", []string{"Cookie", own, console, "0"}, 401, ""},
		{"an address that the user typed", "GET /v1/who", []string{"Cookie", own, "Sec-Fetch-Site", "none"}, 401, ""},
		{"an address that the user typed, with the header", "GET /v1/who", []string{"Cookie", own, "Sec-Fetch-Site", "none", console, "1"}, 401, ""},
		{"a foreign origin", "POST /v1/who", []string{"Cookie", own, "Origin", "https://evil.example", console, "1"}, 403, ""},
		{"the origin null", "POST /v1/who", []string{"Cookie", own, "Origin", "null", console, "1"}, 403, ""},
		{"an origin of a preview", "POST /v1/who", []string{"Cookie", own, "Origin", "http://8000-x." + r.addr, "Sec-Fetch-Site", "same-site", console, "1"}, 403, ""},
		{"a preview without Origin", "GET /v1/who", []string{"Cookie", own, "Sec-Fetch-Site", "same-site", console, "1"}, 403, ""},
		{"another port", "POST /v1/who", []string{"Cookie", own, "Origin", "http://127.0.0.1:1"}, 403, ""},
		{"an allowed origin", "POST /v1/who", []string{"Cookie", own, "Origin", "https://app.example", console, "1"}, 401, ""},
		{"a wrong token beside it", "GET /v1/who", []string{"Cookie", own, console, "1", "Authorization", "Bearer wrong"}, 401, ""},
		{"an empty Authorization beside it", "GET /v1/who", []string{"Cookie", own, console, "1", "Authorization", ""}, 401, ""},
		{"another token beside it", "GET /v1/who", []string{"Cookie", own, console, "1", "Authorization", "Bearer of-user"}, 200, "a/user/user"},
		{"two cookies", "GET /v1/who", []string{"Cookie", own + "; " + user, console, "1"}, 401, ""},
		{"two Cookie headers", "GET /v1/who", []string{"Cookie", own, "Cookie", user, console, "1"}, 401, ""},
		{"a page of a sandbox", "GET /r/x/", []string{"Cookie", own, "Sec-Fetch-Site", "same-origin"}, 401, ""},
		{"MCP", "GET /mcp", []string{"Cookie", own, console, "1"}, 401, ""},
		{"the API without its version", "GET /sandboxes", []string{"Cookie", own, console, "1"}, 401, ""},
		{"the metrics", "GET /metrics", []string{"Cookie", own, console, "1"}, 401, ""},
		{"a path to be cleaned", "GET /v1/../r/x/", []string{"Cookie", own, console, "1"}, 307, ""},
		{"a preview", "GET /", []string{"Host", "8000-x.localhost", "Cookie", own, "Sec-Fetch-Site", "same-origin", console, "1"}, 200, "/none/"},
		{"a foreign host", "GET /v1/who", []string{"Host", "evil.example", "Cookie", own, console, "1"}, 421, ""},
	} {
		method, path, _ := strings.Cut(tc.request, " ")
		resp, body := r.ask(method, path, "", tc.headers...)
		if resp.StatusCode != tc.status || tc.body != "" && body != tc.body {
			t.Errorf("%s: %d %s", tc.name, resp.StatusCode, body)
		}
	}
	if err := tenant.Revoke(r.tokens, "user"); err != nil {
		t.Fatal(err)
	}
	if resp, _ := r.ask("GET", "/v1/who", "", "Cookie", user, console, "1"); resp.StatusCode != 401 {
		t.Error("the session of a revoked token:", resp.StatusCode)
	}
}

// A login, the session and a logout, and what the audit log has of them.
func TestLogin(t *testing.T) {
	r := newRig(t, nil)
	session := func(cookie string) string {
		_, body := r.ask("GET", "/console/session", "", "Cookie", cookie, "Sandbar-Console", "1")
		return strings.TrimSpace(body)
	}
	for token, want := range map[string]string{
		operatorToken: `{"name":"","tenant":"default","role":"admin","version":"v1.2.3","operator":true}`,
		"of-user":     `{"name":"user","tenant":"a","role":"user","version":"v1.2.3","operator":false}`,
		"of-reader":   `{"name":"reader","tenant":"a","role":"read-only","version":"v1.2.3","operator":false}`,
	} {
		if got := session(r.login(token)); got != want {
			t.Errorf("%s: %s", token, got)
		}
	}
	if got := session("sandbar_console=x"); codeOf(got) != sandbar.Unauthenticated {
		t.Error("no session:", got)
	}
	cookie := r.login("of-reader")
	resp, body := r.ask("POST", "/console/logout", "", "Cookie", cookie, "Sandbar-Console", "1")
	gone := resp.Cookies()
	if resp.StatusCode != 204 || body != "" || len(gone) != 1 || gone[0].MaxAge != -1 || gone[0].Name != "sandbar_console" || gone[0].Path != "/" {
		t.Errorf("logout: %d %s %v", resp.StatusCode, body, gone)
	}
	if resp, _ := r.ask("POST", "/console/logout", ""); resp.StatusCode != 204 {
		t.Error("logout without a session:", resp.StatusCode)
	}
	resp, _ = r.ask("POST", "/console/login", `{"token":"of-user"}`, "X-Forwarded-Proto", "https")
	if c := resp.Cookies(); len(c) != 1 || c[0].Name != "__Host-sandbar_console" || !c[0].Secure || !c[0].HttpOnly || c[0].SameSite != http.SameSiteStrictMode {
		t.Errorf("over TLS: %v", c)
	}
	for name, tc := range map[string]struct {
		request, body string
		headers       []string
		status        int
		code          sandbar.Code
	}{
		"a wrong token":      {"POST /console/login", `{"token":"wrong"}`, nil, 401, sandbar.Unauthenticated},
		"no token":           {"POST /console/login", `{}`, nil, 401, sandbar.Unauthenticated},
		"not JSON":           {"POST /console/login", `token=x`, nil, 400, sandbar.Invalid},
		"an unknown member":  {"POST /console/login", `{"tokens":"x"}`, nil, 400, sandbar.Invalid},
		"a large body":       {"POST /console/login", `{"token":"` + strings.Repeat("x", 32<<10) + `"}`, nil, 413, sandbar.TooLarge},
		"a foreign page":     {"POST /console/login", `{"token":"of-user"}`, []string{"Origin", "https://evil.example"}, 403, sandbar.Denied},
		"a preview's page":   {"POST /console/login", `{"token":"of-user"}`, []string{"Sec-Fetch-Site", "same-site"}, 403, sandbar.Denied},
		"a foreign host":     {"POST /console/login", `{"token":"of-user"}`, []string{"Host", "evil.example"}, 421, sandbar.Denied},
		"another method":     {"GET /console/login", "", nil, 405, sandbar.Invalid},
		"an unknown path":    {"GET /console/none", "", nil, 404, sandbar.NotFound},
		"no page was built":  {"GET /", "", nil, 501, sandbar.Unsupported},
		"no asset was built": {"GET /console/assets/a.js", "", nil, 404, sandbar.NotFound},
	} {
		method, path, _ := strings.Cut(tc.request, " ")
		resp, body := r.ask(method, path, tc.body, tc.headers...)
		if resp.StatusCode != tc.status || codeOf(body) != tc.code || len(resp.Cookies()) != 0 || resp.Header.Get("Content-Type") != wire.MediaProblem {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
	want := []string{"console.login ok /", "console.login ok a/user", "console.login ok a/reader", "console.login ok a/reader", "console.logout ok a/reader",
		"console.login ok a/user", "console.login unauthenticated /", "console.login unauthenticated /"}
	got := r.audit.actions()
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the audit log has %q", got)
	}
	r.audit.failed = &sandbar.Error{Code: sandbar.Unavailable, Message: "the disk is full"}
	if resp, body := r.ask("POST", "/console/login", `{"token":"of-user"}`); resp.StatusCode != 503 || codeOf(body) != sandbar.Unavailable || len(resp.Cookies()) != 0 {
		t.Errorf("while actions cannot be recorded: %d %s", resp.StatusCode, body)
	}
}

// After too many failures the right token is refused too; requests with other credentials are not.
func TestLoginIsBounded(t *testing.T) {
	r := newRig(t, nil)
	failures := 0
	for {
		resp, body := r.ask("POST", "/console/login", `{"token":"wrong"}`)
		if resp.StatusCode == 401 && failures < 100 {
			failures++
			continue
		}
		wait, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if resp.StatusCode != 429 || codeOf(body) != sandbar.Exhausted || err != nil || wait < 1 || failures < 5 {
			t.Fatalf("after %d failures: %d %s, Retry-After %q", failures, resp.StatusCode, body, resp.Header.Get("Retry-After"))
		}
		break
	}
	if resp, _ := r.ask("POST", "/console/login", `{"token":"of-user"}`); resp.StatusCode != 429 || len(resp.Cookies()) != 0 {
		t.Error("the right token:", resp.StatusCode)
	}
	if resp, _ := r.ask("GET", "/v1/who", "", "Authorization", "Bearer of-user"); resp.StatusCode != 200 {
		t.Error("the API:", resp.StatusCode)
	}
}

// The page has a policy that allows no foreign content, and its assets are kept by browsers.
func TestPage(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	io.WriteString(z, "let a = 1")
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, fstest.MapFS{"index.html": {Data: []byte("<!doctype html>")}, "assets/app-1.js.gz": {Data: packed.Bytes()}, "assets/app-1.css": {Data: []byte("a{}")},
		"assets/secret": {Data: []byte("x")}})
	resp, body := r.ask("GET", "/", "")
	policy := resp.Header.Get("Content-Security-Policy")
	_, port, _ := strings.Cut(r.addr, ":")
	if resp.StatusCode != 200 || body != "<!doctype html>" || resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Content-Type") != "text/html; charset=utf-8" ||
		resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("Cross-Origin-Opener-Policy") != "same-origin" {
		t.Errorf("%d %s %v", resp.StatusCode, body, resp.Header)
	}
	for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data: blob:", "connect-src 'self' ws://" + r.addr,
		"font-src 'self'", "frame-src http://*.previews.example:" + port, "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
		if !slices.Contains(strings.Split(policy, "; "), part) {
			t.Errorf("the policy %q lacks %q", policy, part)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Error(policy)
	}
	if resp, _ := r.ask("GET", "/", "", "X-Forwarded-Proto", "https", "Host", "localhost"); !strings.Contains(resp.Header.Get("Content-Security-Policy"), "frame-src https://*.previews.example;") {
		t.Error("behind a TLS proxy:", resp.Header.Get("Content-Security-Policy"))
	}
	if resp, body := r.ask("HEAD", "/", ""); resp.StatusCode != 200 || body != "" {
		t.Errorf("HEAD: %d %q", resp.StatusCode, body)
	}
	for _, tc := range []struct{ path, accept, encoding, media, body string }{
		{"/console/assets/app-1.js", "br, gzip", "gzip", "text/javascript; charset=utf-8", packed.String()},
		{"/console/assets/app-1.js", "gzip;q=0", "", "text/javascript; charset=utf-8", "let a = 1"},
		{"/console/assets/app-1.js", "", "", "text/javascript; charset=utf-8", "let a = 1"},
		{"/console/assets/app-1.css", "gzip", "", "text/css; charset=utf-8", "a{}"},
	} {
		resp, body := r.ask("GET", tc.path, "", "Accept-Encoding", tc.accept)
		if resp.StatusCode != 200 || body != tc.body || resp.Header.Get("Content-Encoding") != tc.encoding || resp.Header.Get("Content-Type") != tc.media ||
			resp.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" || resp.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s with %q: %d %q %v", tc.path, tc.accept, resp.StatusCode, body, resp.Header)
		}
	}
	for _, path := range []string{"/console", "/console/assets/none.js", "/console/assets/secret", "/console/assets/", "/console/assets/%2e%2e/index.html", "/console/assets/..%2findex.html"} {
		if resp, body := r.ask("GET", path, ""); resp.StatusCode == 200 || strings.Contains(body, "doctype") || resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
}

// A request in progress ends with its session.
func TestSessionEndsRequests(t *testing.T) {
	ended := make(chan error, 1)
	server, err := httpd.Listen(httpd.Options{Listen: "127.0.0.1:0", Token: operatorToken, Sessions: brief{}, Routes: map[string]http.Handler{
		"/v1/endless": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			ended <- context.Cause(r.Context())
			if err := engine.Validity(r.Context()).Err(); err != nil {
				t.Error("what the session began ends with it:", err)
			}
		})}})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	q, err := http.NewRequest("GET", server.URL()+"/v1/endless", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Sandbar-Console", "1")
	transport := &http.Transport{DisableKeepAlives: true}
	if resp, err := transport.RoundTrip(q); err == nil {
		resp.Body.Close()
	}
	if err := <-ended; !errors.Is(err, httpd.ErrRevoked) {
		t.Error("the request ended with", err)
	}
	if err := errors.Join(server.Shutdown(context.Background()), <-served); err != nil {
		t.Error(err)
	}
}

// brief is a session of the operator that ends after 100 ms.
type brief struct{}

func (brief) Open(*http.Request) (string, time.Time, bool) {
	return operatorToken, time.Now().Add(100 * time.Millisecond), true
}
