package mcp

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbar-dev/sandbar/internal/server/httpd"
	"github.com/sandbar-dev/sandbar/internal/server/tenant"
)

// bearer adds a token to requests.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

const (
	ownToken   = "the-daemons-own-token"
	aliceToken = "the-token-of-alice"
)

// serve serves the rig over HTTP, and returns the URL.
func (r *rig) serve() string {
	r.t.Helper()
	r.tokens = filepath.Join(r.t.TempDir(), tenant.FileName)
	store := tenant.Open(r.tokens, nil)
	r.t.Cleanup(store.Close)
	l, err := httpd.Listen(httpd.Options{Listen: "127.0.0.1:0", Token: ownToken, Tokens: store, Clients: map[string]string{"alice": aliceToken},
		Routes: map[string]http.Handler{Path: r.server}})
	if err != nil {
		r.t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- l.Serve() }()
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		r.server.Close()
		if err := l.Shutdown(ctx); err != nil {
			r.t.Error(err)
		}
		if err := <-served; err != nil {
			r.t.Error(err)
		}
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return l.URL() + Path
}

// dial begins a session over HTTP.
func (r *rig) dial(url, token string) *client {
	r.t.Helper()
	return newClient(r.t, &sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer(token)}})
}

// ask sends one message.
func ask(t *testing.T, method, url, body string, headers ...string) (int, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			q.Host = headers[i+1]
		}
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// A session over HTTP belongs to its client, is refused without a token, from other hosts and
// origins, and ends with DELETE, whatever runs in it.
func TestHTTP(t *testing.T) {
	r := newRig(t, Options{})
	url := r.serve()
	c := r.dial(url, aliceToken)
	if got, _ := c.call("run_code", object{"code": "1+1"}); got != "2\n" {
		t.Errorf("%q", got)
	}
	if spec := r.engine.List(context.Background())[0].Spec; spec.Client.Name != "alice" {
		t.Errorf("the sandbox is of %q", spec.Client.Name)
	}
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_sandboxes","arguments":{}}}`
	own, alice := "Bearer "+ownToken, "Bearer "+aliceToken
	for _, tt := range []struct {
		status  int
		headers []string
	}{
		{200, []string{"Authorization", alice, sessionHeader, c.ID()}},
		{401, []string{sessionHeader, c.ID()}},
		{401, []string{"Authorization", own + "x", sessionHeader, c.ID()}},
		{404, []string{"Authorization", own, sessionHeader, c.ID()}},
		{404, []string{"Authorization", alice, sessionHeader, c.ID() + "x"}},
		{421, []string{"Authorization", alice, sessionHeader, c.ID(), "Host", "evil.example"}},
		{403, []string{"Authorization", alice, sessionHeader, c.ID(), "Origin", "http://evil.example"}},
	} {
		if status, text := ask(t, "POST", url, list, tt.headers...); status != tt.status {
			t.Errorf("%v: %d %s", tt.headers, status, text)
		}
	}
	if status, text := ask(t, "DELETE", url, "", "Authorization", own, sessionHeader, c.ID()); status != http.StatusNotFound {
		t.Errorf("another client ends the session: %d %s", status, text)
	}
	if status, _ := ask(t, "POST", url, strings.Repeat(" ", maxBody+1), "Authorization", own); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a giant message: %d", status)
	}
	p := &sdk.CallToolParams{Name: "run_command", Arguments: object{"command": "echo started; sleep 1000"}}
	p.SetProgressToken("p")
	done := make(chan error, 1)
	go func() {
		_, err := c.CallTool(t.Context(), p)
		done <- err
	}()
	<-c.progress
	if status, text := ask(t, "DELETE", url, "", "Authorization", alice, sessionHeader, c.ID()); status != http.StatusNoContent {
		t.Errorf("%d %s", status, text)
	}
	<-done
	r.empty()
}

// empty waits until no sandbox is left.
func (r *rig) empty() {
	r.t.Helper()
	for end := time.Now().Add(patience); len(r.engine.List(context.Background())) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatal("a sandbox is left")
		}
	}
}

// An idle session ends; one with a call in progress is not idle.
func TestIdle(t *testing.T) {
	r := newRig(t, Options{IdleTimeout: 2 * time.Second})
	c := r.dial(r.serve(), ownToken)
	c.call("run_command", object{"command": "sleep 3"})
	r.empty()
	if _, err := c.ListTools(t.Context(), nil); err == nil {
		t.Error("the session is still there")
	}
}

// Shutdown lets a call end, and refuses new ones.
func TestShutdown(t *testing.T) {
	r := newRig(t, Options{})
	url := r.serve()
	c := r.dial(url, ownToken)
	p := &sdk.CallToolParams{Name: "run_command", Arguments: object{"command": "echo started; sleep 0.5; echo end"}}
	p.SetProgressToken("p")
	done := make(chan string, 1)
	go func() {
		if x, err := c.CallTool(t.Context(), p); err != nil {
			done <- err.Error()
		} else {
			done <- textOf(x)
		}
	}()
	<-c.progress
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := r.server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if got := <-done; got != "started\nend\n" {
		t.Errorf("%q", got)
	}
	if status, text := ask(t, "POST", url, "{}", "Authorization", "Bearer "+ownToken); status != http.StatusServiceUnavailable || !strings.Contains(text, "unavailable") {
		t.Errorf("%d %s", status, text)
	}
}
