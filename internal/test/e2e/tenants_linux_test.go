package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// newToken makes a token of a tenant with the command, in a daemon's state directory.
func newToken(t *testing.T, dir string, args ...string) string {
	t.Helper()
	return strings.TrimSpace(tokenCommand(t, dir, append([]string{"create"}, args...)...))
}

func tokenCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.Command(testenv.Build(t, "cmd/sandbar"), append([]string{"token"}, args...)...)
	c.Env = append(environ(), "SANDBAR_STATE_DIR="+filepath.Join(dir, "state"))
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		t.Fatalf("sandbar token %v: %v: %s", args, err, said.String())
	}
	return string(out)
}

// tenantRoles are the roles of tokens.
var tenantRoles = []string{"admin", "user", "read-only"}

// tokensOf makes a token of each role of a tenant.
func tokensOf(t *testing.T, dir, tenant string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, role := range tenantRoles {
		all[role] = newToken(t, dir, "--tenant", tenant, "--role", role, tenant+"-"+role)
	}
	return all
}

// readingOperations are the operations of the control API that a read-only token may use. All
// others change something, or give access to more.
var readingOperations = []string{"getStatus", "getUsage", "listImages", "listLanguages", "followEvents", "listSandboxes", "getSandbox", "measureSandbox", "executorHealth", "listProcesses", "followProcess", "statFile", "downloadFile",
	"readFile", "listNames", "listDirectory", "watchFiles", "listContexts"}

// operatorOperations are those that only the operator may use.
var operatorOperations = []string{"examineHost", "getConfiguration"}

// Every operation of the OpenAPI document is tried by each role of another tenant and by a
// read-only token of the same tenant, just before a user or an admin of the tenant does it. Nothing
// of a tenant is readable, listed, changed or ended by another one, and a read-only token changes
// nothing.
func TestTenantsOpenAPI(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.Freezer, testenv.Python)
	dir := t.TempDir()
	a, b := tokensOf(t, dir, "a"), tokensOf(t, dir, "b")
	d := newDaemon(t, dir)
	for _, role := range []string{"user", "admin"} {
		t.Run(role, func(t *testing.T) {
			m := &tenantMatrix{replay: &replay{t: t, d: d, values: map[string]string{"port": "8000"}, bearer: a[role]}, readOnly: a["read-only"], strangers: b}
			m.replay.before = m.try
			m.run()
		})
	}
	d.endClean(t)
}

// tenantMatrix tries operations with tokens that must not succeed.
type tenantMatrix struct {
	*replay
	readOnly  string            // of the same tenant
	strangers map[string]string // of another one, by role
	tried     int
}

func (m *tenantMatrix) run() {
	text := m.get("/openapi.json")
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		m.t.Fatal(err)
	}
	m.schemas = jsonschema.NewCompiler()
	m.schemas.AssertFormat()
	if err := m.schemas.AddResource("openapi.json", doc); err != nil {
		m.t.Fatal(err)
	}
	all := operationsOf(m.t, text)
	for name := range all { // TestOpenAPI plays the same
		if !slices.Contains(replayed, name) {
			m.t.Errorf("%s is not tried", name)
		}
	}
	status, made := m.as(m.strangers["user"], "POST", "http://"+m.d.addr+"/v1/sandboxes", []byte("{}"))
	var box struct{ ID string }
	if err := json.Unmarshal([]byte(made), &box); status != http.StatusCreated || err != nil {
		m.t.Fatal(status, made, err)
	}
	for _, name := range replayed {
		before := m.tried
		if slices.Contains(operatorOperations, name) {
			m.refuseAll(all[name])
			continue
		}
		m.play(all[name])
		if m.tried == before {
			m.t.Errorf("%s was not tried", name)
		}
	}
	if status, text := m.as(m.bearer, "GET", "http://"+m.d.addr+"/v1/sandboxes", nil); strings.Contains(text, box.ID) {
		m.t.Errorf("the list of the tenant has the sandbox of another one: %d %s", status, text)
	}
	if status, text := m.as(token, "GET", "http://"+m.d.addr+"/v1/sandboxes", nil); !strings.Contains(text, box.ID) || !strings.Contains(text, `"tenant":"b"`) {
		m.t.Errorf("the list of the operator lacks the sandbox of a tenant: %d %s", status, text)
	}
	m.events(box.ID)
	if status, text := m.as(m.strangers["admin"], "DELETE", "http://"+m.d.addr+"/v1/sandboxes/"+box.ID, nil); status != http.StatusNoContent {
		m.t.Error(status, text)
	}
}

// refuseAll tries an operation of the operator with the tokens of both tenants.
func (m *tenantMatrix) refuseAll(o apiOperation) {
	m.t.Helper()
	m.tried++
	tokens := append([]string{m.bearer, m.readOnly}, slices.Collect(maps.Values(m.strangers))...)
	for _, bearer := range tokens {
		status, text := m.as(bearer, o.method, "http://"+m.d.addr+"/v1"+o.path, nil)
		if status != http.StatusForbidden || !strings.Contains(text, `"code":"denied"`) {
			m.t.Errorf("%s by a tenant: %d %s", o.OperationID, status, text)
		}
	}
}

// as sends a request with another token.
func (m *tenantMatrix) as(bearer, method, url string, body []byte, header ...string) (int, string) {
	m.t.Helper()
	own := m.bearer
	m.bearer = bearer
	resp := m.send(method, url, bytes.NewReader(body), header...)
	m.bearer = own
	defer resp.Body.Close()
	endless := resp.StatusCode == http.StatusSwitchingProtocols || strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") ||
		strings.HasPrefix(resp.Header.Get("Content-Type"), "application/x-ndjson")
	if endless {
		return resp.StatusCode, ""
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		m.t.Error(err)
	}
	return resp.StatusCode, string(text)
}

// try tries a request with all tokens that must not succeed, and checks that nothing has changed.
func (m *tenantMatrix) try(o apiOperation, url string, body []byte, header []string) {
	m.t.Helper()
	m.tried++
	reads := slices.Contains(readingOperations, o.OperationID)
	inside := strings.Contains(o.path, "{id}")
	state := m.state()
	check := func(who, bearer, url string, want int, header ...string) {
		m.t.Helper()
		status, text := m.as(bearer, o.method, url, body, header...)
		if status != want && !(want == http.StatusOK && status < 300) {
			m.t.Errorf("%s by %s: %d %s, want %d", o.OperationID, who, status, text, want)
		}
		if id := m.values["id"]; id != "" && who != "the same tenant" && !strings.Contains(text, "there is no sandbox") && strings.Contains(text, id) {
			m.t.Errorf("%s by %s shows the sandbox: %s", o.OperationID, who, text)
		}
	}
	want := http.StatusForbidden
	if reads {
		want = http.StatusOK
	}
	check("the same tenant", m.readOnly, url, want, header...)
	for role, stranger := range m.strangers {
		want := http.StatusNotFound
		switch {
		case role == "read-only" && !reads:
			want = http.StatusForbidden
		case o.OperationID == "createSandbox":
			continue // it is the stranger's own
		case !inside:
			want = http.StatusOK
		}
		check(role+" of another", stranger, url, want, header...)
		if rest, ok := strings.CutPrefix(o.path, "/sandboxes/{id}/executor"); ok {
			_, query, _ := strings.Cut(url, "?")
			check(role+" of another by the header", stranger, "http://"+m.d.addr+"/koyeb-sandbox"+rest+"?"+query, want, "X-Routing-Key", m.values["id"])
		}
	}
	if now := m.state(); now != state {
		m.t.Errorf("%s by those who must not has changed the sandbox:\n%s", o.OperationID, cmp.Diff(state, now))
	}
}

// state describes what the tenant has, without times of use and names of requests.
func (m *tenantMatrix) state() string {
	m.t.Helper()
	id := m.values["id"]
	if id == "" {
		return ""
	}
	var all []string
	for _, path := range []string{"", "/previews", "/contexts", "/executor/list_processes", "/dir?path=."} {
		status, text := m.as(m.bearer, "GET", "http://"+m.d.addr+"/v1/sandboxes/"+id+path, nil)
		var v any
		if json.Unmarshal([]byte(text), &v) == nil {
			if o, ok := v.(map[string]any); ok {
				delete(o, "last_used_at")
				delete(o, "request") // of an error
			}
			b, err := json.Marshal(v)
			if err != nil {
				m.t.Fatal(err)
			}
			text = string(b)
		}
		all = append(all, fmt.Sprint(path, " ", status, " ", text))
	}
	return strings.Join(all, "\n")
}

// events checks that the other tenant sees the events of its own sandbox alone.
func (m *tenantMatrix) events(own string) {
	m.t.Helper()
	bearer := m.bearer
	defer func() { m.bearer = bearer }()
	m.bearer = m.strangers["read-only"]
	resp := m.send("GET", "http://"+m.d.addr+"/v1/events?after=oldest", nil)
	defer resp.Body.Close()
	text := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(resp.Body) // until the body is closed
		text <- string(b)
	}()
	time.Sleep(time.Second) // the events are there: the reader begins with the oldest
	resp.Body.Close()
	seen := <-text
	if !strings.Contains(seen, own) {
		m.t.Errorf("the other tenant does not see the events of its sandbox %s:\n%s", own, seen)
	}
	for line := range strings.Lines(seen) {
		if strings.HasPrefix(line, "data: ") && !strings.Contains(line, `"tenant":"b"`) {
			m.t.Errorf("the other tenant sees %s", line)
		}
	}
}
