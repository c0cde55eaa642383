package control

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/server/httpd"
)

// TestOneFormOfError tests that all refusals, of whichever layer, have one form: code, message and
// fix, none of them empty, and field if a field is the cause.
func TestOneFormOfError(t *testing.T) {
	r := newRig(t, Options{}, nil)
	faultyAddr := httpdOver(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a fault") }), 0)
	auth := "Authorization: Bearer " + token + "\r\n"
	id := string(r.create(`{}`).ID)
	gone := string(r.create(`{}`).ID)
	if err := r.engine.Stop(t.Context(), sandbar.ID(gone)); err != nil {
		t.Fatal(err)
	}
	hastyAuth := "Authorization: Bearer " + hastyToken + "\r\n"
	body := func(s string) string {
		b, _ := json.Marshal(len(s))
		return "Content-Length: " + string(b) + "\r\n\r\n" + s
	}
	seen := map[int]bool{}
	for _, tt := range []struct {
		addr, request string
		status        int
		code          sandbar.Code
	}{
		{r.addr, "GET /sandboxes HTTP/1.1\r\nHost: localhost\r\n\r\n", 401, sandbar.Unauthenticated},
		{r.addr, "GET /sandboxes HTTP/1.1\r\nHost: localhost\r\n" + auth + "Origin: http://evil.example\r\n\r\n", 403, sandbar.Denied},
		{r.addr, "GET /sandboxes HTTP/1.1\r\nHost: evil.example\r\n" + auth + "\r\n", 421, sandbar.Denied},
		{r.addr, "GET /nothing HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 404, sandbar.NotFound},
		{r.addr, "GET /sandboxes/x/y HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 404, sandbar.NotFound},
		{r.addr, "GET /sandboxes/nobody HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 404, sandbar.NotFound},
		{r.addr, "GET /sandboxes/" + gone + " HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 404, sandbar.NotFound},
		{r.addr, "GET /koyeb-sandbox/health HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 400, sandbar.Invalid},
		{r.addr, "POST /health HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 405, sandbar.Invalid},
		{r.addr, "PUT /sandboxes HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 405, sandbar.Invalid},
		{r.addr, "POST /sandboxes/" + id + " HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 405, sandbar.Invalid},
		{r.addr, "POST /sandboxes HTTP/1.1\r\nHost: localhost\r\n" + auth + body(`{"nmae":"x"}`), 400, sandbar.Invalid},
		{r.addr, "POST /sandboxes HTTP/1.1\r\nHost: localhost\r\n" + auth + body(`{"limits":{"memory":1e15}}`), 400, sandbar.Invalid},
		{r.addr, "POST /sandboxes HTTP/1.1\r\nHost: localhost\r\n" + auth + body(`{"driver":"other"}`), 422, sandbar.Unsupported},
		{r.addr, "POST /sandboxes HTTP/1.1\r\nHost: localhost\r\n" + auth + body(strings.Repeat(" ", maxBody+1)), 413, sandbar.TooLarge},
		{r.addr, "POST /sandboxes HTTP/1.1\r\nHost: localhost\r\n" + hastyAuth + body(`{}`), 201, ""},
		{r.addr, "POST /sandboxes HTTP/1.1\r\nHost: localhost\r\n" + hastyAuth + body(`{}`), 429, sandbar.Exhausted},
		{r.addr, "GET /sandboxes/" + id + "/exec HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 426, sandbar.Invalid},
		{r.addr, "GET /sandboxes/" + id + "/dir?path=/nowhere HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 404, sandbar.NotFound},
		{r.addr, "GET /sandboxes/" + id + "/dir?paht=/ HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 400, sandbar.Invalid},
		{r.addr, "GET /sandboxes/" + id + "/ports/0 HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 400, sandbar.Invalid},
		{r.addr, "GET /v1/sandboxes?label= HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 400, sandbar.Invalid},
		{r.addr, "GET /v1/sandboxes/" + id + "/metrics HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 422, sandbar.Unsupported},
		{r.addr, "POST /v1/sandboxes/" + id + "/renew HTTP/1.1\r\nHost: localhost\r\n" + auth + body(`{"idle_timeout":1e9}`), 400, sandbar.Invalid},
		{r.addr, "GET /v1/sandboxes/" + id + "/renew HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 405, sandbar.Invalid},
		{r.addr, "GET /v1/events?type=x HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 400, sandbar.Invalid},
		{r.addr, "GET /v1/events?sandbox=nobody HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 404, sandbar.NotFound},
		{r.addr, "POST /v1/events HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 405, sandbar.Invalid},
		{r.addr, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n", 401, sandbar.Unauthenticated},
		{r.addr, "GET /r/" + id + "/ HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 404, sandbar.NotFound},
		{faultyAddr, "GET /sandboxes HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 500, sandbar.Internal},
	} {
		name, _, _ := strings.Cut(tt.request, " HTTP")
		resp, text := exchange(t, tt.addr, tt.request)
		if resp.StatusCode != tt.status {
			t.Errorf("%s: %s %.200s, want %d", name, resp.Status, text, tt.status)
		}
		if tt.code != "" {
			checkForm(t, name, resp, text, tt.code)
			seen[tt.status] = true
		}
	}
	narrow := httpdOver(t, http.NotFoundHandler(), 1)
	hold, err := net.Dial("tcp", narrow)
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	if _, err := io.WriteString(hold, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if resp, err := http.ReadResponse(bufio.NewReader(hold), nil); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v, %v", resp, err)
	}
	resp, text := exchange(t, narrow, "GET /sandboxes HTTP/1.1\r\nHost: localhost\r\n"+auth+"\r\n")
	checkForm(t, "one connection too many", resp, text, sandbar.Exhausted)
	r.server.Close()
	resp, text = exchange(t, r.addr, "GET /sandboxes HTTP/1.1\r\nHost: localhost\r\n"+auth+"\r\n")
	checkForm(t, "during the shutdown", resp, text, sandbar.Unavailable)
	for _, status := range []int{400, 401, 403, 404, 405, 413, 421, 422, 426, 429, 500} {
		if !seen[status] {
			t.Errorf("nothing was refused with %d", status)
		}
	}
}

// httpdOver returns a listener over one handler.
func httpdOver(t *testing.T, h http.Handler, connections int) string {
	t.Helper()
	listener, err := httpd.Listen(httpd.Options{Listen: "127.0.0.1:0", Token: token, MaxConnections: connections,
		Load: func() engine.Stats { return engine.Stats{} }, Routes: map[string]http.Handler{"/sandboxes": h}})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- listener.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		listener.Shutdown(ctx)
		<-served
	})
	return strings.TrimPrefix(listener.URL(), "http://")
}

// exchange sends a request unchanged over a new connection and reads the response.
func exchange(t *testing.T, addr, request string) (*http.Response, string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go io.WriteString(conn, request) // the response may arrive before all of it is read
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%.60s: %v", request, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%.60s: %v", request, err)
	}
	return resp, string(b)
}

// checkForm checks the form of a refusal.
func checkForm(t *testing.T, name string, resp *http.Response, text string, code sandbar.Code) {
	t.Helper()
	var got map[string]any
	members := 5
	if name != "one connection too many" { // which has no request
		members = 6
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got) != members {
		t.Errorf("%s: %s %.200s: %v", name, resp.Status, text, err)
		return
	}
	e, _ := got["error"].(map[string]any)
	if got["type"] != "urn:sandbar:error:"+string(code) || got["title"] == "" || got["status"] != float64(resp.StatusCode) || got["detail"] != e["message"] {
		t.Errorf("%s: the members of RFC 9457 are wrong: %s", name, text)
	}
	if id := resp.Header.Get(wire.RequestHeader); members == 6 && (!strings.HasPrefix(id, "req_") || got["request"] != id) {
		t.Errorf("%s: the id of the request is %q: %s", name, id, text)
	}
	for _, field := range []string{"code", "message", "fix"} {
		if s, ok := e[field].(string); !ok || s == "" {
			t.Errorf("%s: %s says no %s", name, text, field)
		}
	}
	for field := range e {
		if !slices.Contains([]string{"code", "message", "fix", "field"}, field) {
			t.Errorf("%s: %s has the field %s", name, text, field)
		}
	}
	if e["code"] != string(code) || resp.Header.Get("Content-Type") != wire.MediaProblem {
		t.Errorf("%s: %s, %s, want the code %s", name, text, resp.Header.Get("Content-Type"), code)
	}
}
