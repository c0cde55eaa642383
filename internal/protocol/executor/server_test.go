package executor

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

func TestHealth(t *testing.T) {
	r, d := newFaulty(t, Options{})
	q := r.request(http.MethodGet, "/health", nil)
	q.Header.Del("Authorization")
	a := r.send(q)
	if a.status != 200 || a.body != "{\"status\":\"ok\"}\n" || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %q %v", a.status, a.body, a.header)
	}
	d.DieAll()
	<-r.sandbox.Done()
	if a := r.get("/health"); a.status != 503 {
		t.Errorf("without a sandbox: %d %s", a.status, a.body)
	}
}

// TestRoutes tests that every endpoint first refuses requests without a token, and then unknown
// methods.
func TestRoutes(t *testing.T) {
	r, _ := newFaulty(t, Options{})
	for path, route := range newRoutes() {
		for _, p := range []string{path, prefix + path} {
			for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
				q := r.request(method, p, nil)
				a := r.send(q)
				if route.allows(method) {
					if a.status == 404 || a.status == 405 {
						if path != "/files" {
							t.Errorf("%s %s: %d", method, p, a.status)
						}
					}
				} else if a.status != 405 || a.header.Get("Allow") != route.allowed() || method != "HEAD" && a.body != "Method not allowed\n" {
					t.Errorf("%s %s: %d %q, allowed %q", method, p, a.status, a.body, a.header.Get("Allow"))
				}
				q = r.request(method, p, nil)
				q.Header.Set("Authorization", "Bearer wrong")
				if a := r.send(q); !route.open && (a.status != 401 || method != "HEAD" && a.body != "Unauthorized\n") {
					t.Errorf("%s %s without the secret: %d %q", method, p, a.status, a.body)
				}
			}
		}
	}
	for _, p := range []string{"/", "/nothing", "/run/", "/koyeb-sandbox", "/koyeb-sandbox/", "/koyeb-sandboxrun", "/koyeb-sandbox/koyeb-sandbox/run", "//run"} {
		q := r.request(http.MethodPost, "/", nil)
		q.URL.Path = p
		if a := r.send(q); a.status != 404 {
			t.Errorf("%s: %d", p, a.status)
		}
	}
}

// TestUnknownPathsDoNotClaim tests that an unknown path is not authorized, because that could claim
// a pool.
func TestUnknownPathsDoNotClaim(t *testing.T) {
	asked := 0
	r, _ := newFaulty(t, Options{Authorize: func(*http.Request) error { asked++; return nil }})
	r.get("/favicon.ico")
	r.get("/health")
	if asked != 0 {
		t.Errorf("asked %d times", asked)
	}
	if r.get("/list_processes"); asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

func TestAuthorizeFails(t *testing.T) {
	r, _ := newFaulty(t, Options{Authorize: func(*http.Request) error {
		return &sandbar.Error{Code: sandbar.Internal, Message: "the secret could not be saved"}
	}})
	if a := r.get("/list_processes"); a.status != 500 || !strings.Contains(a.body, "could not be saved") {
		t.Errorf("%d %q", a.status, a.body)
	}
	closed := New(r.sandbox, Options{})
	if err := closed.options.Authorize(r.request("GET", "/run", nil)); sandbar.CodeOf(err) != sandbar.Unauthenticated {
		t.Errorf("without Authorize: %v", err)
	}
	closed.Close()
}

// jsonEndpoints are the endpoints with a JSON body.
var jsonEndpoints = []string{"/run", "/run_streaming", "/start_process", "/write_file", "/read_file", "/delete_file", "/make_dir",
	"/delete_dir", "/list_dir", "/bind_port", "/kill_process"}

// TestBadBodies tests that an invalid body is 400 with the specification's text, and has no effect.
func TestBadBodies(t *testing.T) {
	r, d := newFaulty(t, Options{MaxJSON: 1 << 20})
	for name, body := range badRequests {
		for _, path := range jsonEndpoints {
			sent := body
			if strings.HasPrefix(name, "twice") && path == "/write_file" {
				sent = `{"path":"/tmp/x","content":"a","content":"b"}`
			}
			if a := r.post(path, sent); a.status != 400 || a.body != "Invalid request\n" {
				t.Errorf("%s %s: %d %q", path, name, a.status, a.body)
			}
		}
	}
	for _, body := range []string{`{"cmd":"echo","env":[]}`, `{"cmd":"echo","env":{"A":1}}`, `{"cmd":"echo","cwd":1}`} {
		for _, path := range []string{"/run", "/run_streaming", "/start_process"} {
			if a := r.post(path, body); a.status != 400 {
				t.Errorf("%s %s: %d", path, body, a.status)
			}
		}
	}
	if n := d.Counts().Started; n != 0 {
		t.Errorf("%d programs were started", n)
	}
	if _, ok := r.server.Bound(); ok {
		t.Error("a port is bound")
	}
	if got := r.call("/list_dir", m{"path": "/tmp"}); fmt.Sprint(got) != "map[entries:[]]" {
		t.Errorf("files were made: %v", got)
	}
}

// TestRefusals tests missing fields and invalid values.
func TestRefusals(t *testing.T) {
	r, d := newFaulty(t, Options{})
	for _, tt := range []struct {
		path, body string
		status     int
		answer     string
	}{
		{"/start_process", `{}`, 400, "Command is required"},
		{"/start_process", `{"cmd":""}`, 400, "Command is required"},
		{"/kill_process", `{}`, 400, "Process ID is required"},
		{"/kill_process", `{"id":"zz"}`, 400, `{"success":false,"error":"process not found: zz"}`},
		{"/bind_port", `{}`, 400, "Port is required"},
		{"/run", `{"cmd":"print stdout x","timeout":0}`, 400, "Invalid timeout: 0 (a number of seconds greater than 0)"},
		{"/run", `{"cmd":"print stdout x","timeout":-1}`, 400, "Invalid timeout: -1 (a number of seconds greater than 0)"},
		{"/run", `{"cmd":"print stdout x","timeout":1e999}`, 400, "Invalid timeout: +Inf (a number of seconds greater than 0)"},
		{"/run", `{"cmd":"print stdout x","timeout":"5"}`, 400, "Invalid request"},
		{"/run", `{"cmd":"print stdout x","encoding":"utf-16"}`, 400, `Invalid encoding: "utf-16" ("utf-8" or "base64")`},
	} {
		if a := r.post(tt.path, tt.body); a.status != tt.status || a.body != tt.answer+"\n" {
			t.Errorf("%s %s: %d %q, want %d %q", tt.path, tt.body, a.status, a.body, tt.status, tt.answer)
		}
	}
	if a := r.post("/run", `{"cmd":"print stdout x","timeout":1000000}`); a.status != 400 || !strings.Contains(a.body, "timeout") {
		t.Errorf("a timeout that the operator forbids: %d %q", a.status, a.body)
	}
	if a := r.get("/process_logs_streaming"); a.status != 400 || a.body != "Process ID is required\n" {
		t.Errorf("no id: %d %q", a.status, a.body)
	}
	if n := d.Counts().Started; n != 0 {
		t.Errorf("%d programs were started", n)
	}
}

// TestStartFailures tests the statuses of the platform's failures: 503, which the protocol's client
// retries, only if nothing was started.
func TestStartFailures(t *testing.T) {
	for _, tt := range []struct {
		code   sandbar.Code
		status int
	}{{sandbar.Exhausted, 503}, {sandbar.Unavailable, 503}, {sandbar.TooLarge, 413}, {sandbar.Denied, 500}, {sandbar.Internal, 500}} {
		r, _ := newFaulty(t, Options{}, func(d *faulty.Driver) {
			d.OnStart = faulty.FailFirst(-1, &sandbar.Error{Code: tt.code, Message: `it "failed"`})
		})
		if a := r.post("/run", `{"cmd":"exit 0"}`); a.status != tt.status || !strings.Contains(a.body, `it "failed"`) {
			t.Errorf("%s: /run: %d %q", tt.code, a.status, a.body)
		}
		a := r.post("/start_process", `{"cmd":"exit 0"}`)
		if a.status != tt.status || a.body != `{"id":"","pid":0,"status":"","error":"Failed to start process: it \"failed\""}`+"\n" {
			t.Errorf("%s: /start_process: %d %q", tt.code, a.status, a.body)
		}
		events := r.runStreaming("exit 0").all()
		if len(events) != 1 || events[0].name != "error" || events[0].data["error"] != `it "failed"` {
			t.Errorf("%s: /run_streaming: %v", tt.code, events)
		}
	}
}

func TestTooLargeBodies(t *testing.T) {
	r, _ := newFaulty(t, Options{MaxJSON: 1000})
	body := `{"cmd":"` + strings.Repeat("x", 2000) + `"}`
	for _, path := range jsonEndpoints {
		if a := r.post(path, body); a.status != 413 || a.body != "Request too large: at most 1000 bytes of a request, content aside, are accepted (executor.max_json)\n" {
			t.Errorf("%s: %d %q", path, a.status, a.body)
		}
	}
	// The content is not kept in memory.
	content := strings.Repeat("y", 5000)
	if a := r.post("/write_file", `{"path":"/tmp/a","content":"`+content+`"}`); a.body != "{\"success\":true}\n" {
		t.Errorf("path first: %d %q", a.status, a.body)
	}
	if a := r.post("/write_file", `{"content":"`+content+`","path":"/tmp/b"}`); a.body != "{\"success\":true}\n" {
		t.Errorf("content first: %d %q", a.status, a.body)
	}
}

// raw sends bytes over a new connection and returns it.
func (r *rig) raw(text string) net.Conn {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.http.Listener.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, text); err != nil {
		r.t.Fatal(err)
	}
	return conn
}

// half returns the start of a request that announces a longer body.
func half(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", path, secret, len(body)+1000, body)
}

// TestSlowSenders tests that an incomplete body is given up, and that others are served meanwhile.
func TestSlowSenders(t *testing.T) {
	r, d := newFaulty(t, Options{BodyTimeout: time.Second})
	conns := map[string]net.Conn{}
	for _, path := range jsonEndpoints {
		conns[path] = r.raw(half(path, `{"path":"/tmp/x","cmd":"print stdout x","content":"abc`))
	}
	r.run("print stdout y") // another client
	for path, conn := range conns {
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if resp.StatusCode != 408 || !resp.Close {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	if n := d.Counts().Started; n != 1 {
		t.Errorf("%d programs were started", n)
	}
	if got := r.call("/list_dir", m{"path": "/tmp"}); fmt.Sprint(got) != "map[entries:[]]" {
		t.Errorf("files were made: %v", got)
	}
}

// TestHalfSentBodies tests that a client that leaves within a body has no effect.
func TestHalfSentBodies(t *testing.T) {
	r, d := newFaulty(t, Options{})
	for _, path := range jsonEndpoints {
		conn := r.raw(half(path, `{"path":"/tmp/x","cmd":"print stdout x","content":"abc"}`))
		conn.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, conn)
		conn.Close()
	}
	q := r.request(http.MethodPut, "/files?path=/tmp/x", io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(errors.New("gone"))))
	if _, err := r.client.Do(q); err == nil {
		t.Error("an upload that breaks off is answered")
	}
	if n := d.Counts().Started; n != 0 {
		t.Errorf("%d programs were started", n)
	}
	if got := r.call("/list_dir", m{"path": "/tmp"}); fmt.Sprint(got) != "map[entries:[]]" {
		t.Errorf("files were made: %v", got)
	}
}

// TestClose tests that Close ends all requests at once, and not the sandbox.
func TestClose(t *testing.T) {
	r, d := newFaulty(t, Options{})
	id := r.start("block-until never")
	log := r.logs(id, "")
	stream := r.runStreaming("print stdout ready\nblock-until never")
	stream.event()
	stuck := r.raw(half("/run", `{`))
	running := make(chan answer, 1)
	go func() {
		resp, err := r.client.Do(r.request(http.MethodPost, "/run", strings.NewReader(`{"cmd":"block-until run"}`)))
		if err == nil {
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			running <- answer{status: resp.StatusCode, body: string(b)}
			return
		}
		running <- answer{body: err.Error()}
	}()
	<-d.Reached("run")
	l := listenTCP(t)
	served := make(chan error, 1)
	go func() { served <- r.server.ServeProxy(l) }()
	r.server.Close()
	if err := <-served; err != nil {
		t.Errorf("ServeProxy: %v", err)
	}
	for name, s := range map[string]*sseReader{"logs": log, "run_streaming": stream} {
		for {
			line, err := s.in.line()
			if strings.Contains(line, "complete") {
				t.Errorf("%s: %s", name, line)
			}
			if err != nil {
				break
			}
		}
	}
	io.Copy(io.Discard, stuck)
	if a := <-running; a.status == 200 {
		t.Errorf("/run: %d %q", a.status, a.body)
	}
	select {
	case <-r.sandbox.Done():
		t.Error("the sandbox has ended")
	default:
	}
	if n := r.sandbox.Info().Running; n != 1 {
		t.Errorf("%d programs run, want the background process", n)
	}
	if a := r.get("/list_processes"); a.status != 503 {
		t.Errorf("afterwards: %d", a.status)
	}
	if err := r.server.ServeProxy(listenTCP(t)); err != nil {
		t.Errorf("ServeProxy afterwards: %v", err)
	}
}
