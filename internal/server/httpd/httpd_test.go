package httpd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "correct-horse"

// journal is a log that a test can read while the server writes it.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

// start runs a server to the end of the test and returns its address and log.
func start(t *testing.T, change func(*Options)) (*Server, *journal) {
	t.Helper()
	logs := new(journal)
	o := Options{
		Listen: "127.0.0.1:0", Token: token, Version: "v1.2.3",
		Logger:  slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Load:    func() engine.Stats { return engine.Stats{Active: 3, Queued: 2, Sandboxes: 1, Capacity: 64} },
		Metrics: NewMetrics([]string{"python"}, Build{Version: "v1.2.3"}),
		Routes: map[string]http.Handler{
			"GET /ws":    http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "route") }),
			"GET /panic": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { panic("boom") }),
		},
	}
	if change != nil {
		change(&o)
	}
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s, logs
}

// send writes a request unchanged and reads one response.
func send(t *testing.T, s *Server, request string) (*http.Response, string) {
	t.Helper()
	addr := s.listener.Addr()
	conn, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

const bearer = "Authorization: Bearer " + token + "\n"

func TestWhoGetsThrough(t *testing.T) {
	s, logs := start(t, func(o *Options) {
		o.AllowedHosts = []string{"Box.Example", "10.1.2.3"}
		o.AllowedOrigins = []string{"https://app.example"}
	})
	self := s.listener.Addr().String()
	for _, tc := range []struct {
		name    string
		target  string // method and path; default "GET /ws"
		host    string // default: the server's own
		headers string
		want    int
		says    string // part of the body
	}{
		{name: "token", headers: bearer, want: 200, says: "route"},
		{name: "no token", want: 401, says: `"code":"unauthenticated"`},
		{name: "wrong token", headers: "Authorization: Bearer correct-hors\n", want: 401},
		{name: "longer token", headers: "Authorization: Bearer correct-horse1\n", want: 401},
		{name: "token in capitals", headers: "Authorization: Bearer CORRECT-HORSE\n", want: 401},
		{name: "two spaces", headers: "Authorization: Bearer  correct-horse\n", want: 401},
		{name: "tab", headers: "Authorization: Bearer\tcorrect-horse\n", want: 401},
		{name: "no scheme", headers: "Authorization: correct-horse\n", want: 401},
		{name: "another scheme", headers: "Authorization: Basic correct-horse\n", want: 401},
		{name: "scheme in lower case", headers: "Authorization: bearer correct-horse\n", want: 401},
		{name: "empty token", headers: "Authorization: Bearer \n", want: 401},
		{name: "two headers, first right", headers: bearer + "Authorization: Bearer x\n", want: 401},
		{name: "the same header twice", headers: bearer + bearer, want: 401},
		{name: "token in the query", target: "GET /ws?token=" + token + "&access_token=" + token, want: 401},
		{name: "unknown path without token", target: "GET /admin", want: 401},
		{name: "unknown path with token", target: "GET /admin", headers: bearer, want: 404, says: `"code":"not_found"`},
		{name: "another case of the path", target: "GET /WS", headers: bearer, want: 404},
		{name: "another method", target: "DELETE /ws", headers: bearer, want: 405, says: "allowed: GET, HEAD"},
		{name: "profiles are not there", target: "GET /debug/pprof/", headers: bearer, want: 404},
		{name: "metrics without token", target: "GET /metrics", want: 401},
		{name: "metrics with token", target: "GET /metrics", headers: bearer, want: 200, says: "sandbar_build_info"},
		{name: "doubled slash is no way around", target: "GET //health/../ws", want: 401},

		{name: "localhost", host: "localhost:8080", headers: bearer, want: 200},
		{name: "localhost, forwarded port", host: "localhost:9", headers: bearer, want: 200},
		{name: "localhost in capitals with a dot", host: "LOCALHOST.", headers: bearer, want: 200},
		{name: "another loopback address", host: "127.9.9.9", headers: bearer, want: 200},
		{name: "IPv6 loopback", host: "[::1]:80", headers: bearer, want: 200},
		{name: "mapped loopback", host: "[::ffff:127.0.0.1]", headers: bearer, want: 200},
		{name: "allowed name", host: "box.example", headers: bearer, want: 200},
		{name: "allowed name with a port", host: "BOX.EXAMPLE:443", headers: bearer, want: 200},
		{name: "allowed address", host: "10.1.2.3", headers: bearer, want: 200},
		{name: "rebound name", host: "evil.example", headers: bearer, want: 421, says: `not called \"evil.example\"`},
		{name: "rebound name with a matching origin", host: "evil.example:8080", headers: bearer + "Origin: http://evil.example:8080\n", want: 421},
		{name: "name that begins like ours", host: "localhost.evil.example", headers: bearer, want: 421},
		{name: "name that ends like ours", host: "evil-box.example", headers: bearer, want: 421},
		{name: "below an allowed name", host: "x.box.example", headers: bearer, want: 421},
		{name: "another address", host: "10.1.2.4", headers: bearer, want: 421},
		{name: "address in decimal", host: "2130706433", headers: bearer, want: 421},
		{name: "short address", host: "127.1", headers: bearer, want: 421},
		{name: "all addresses", host: "0.0.0.0", headers: bearer, want: 421},
		{name: "port that is none", host: "localhost:http", headers: bearer, want: 421},
		{name: "rebound health", target: "GET /health", host: "evil.example", want: 421},

		{name: "own origin", headers: bearer + "Origin: http://" + self + "\n", want: 200},
		{name: "allowed origin", headers: bearer + "Origin: https://app.example\n", want: 200},
		{name: "allowed origin, cross-site", headers: bearer + "Origin: https://app.example\nSec-Fetch-Site: cross-site\n", want: 200},
		{name: "foreign origin", headers: bearer + "Origin: https://evil.example\n", want: 403, says: "allowed_origins"},
		{name: "null origin", headers: bearer + "Origin: null\n", want: 403},
		{name: "empty origin", headers: bearer + "Origin: \n", want: 403},
		{name: "origin of another port", headers: bearer + "Origin: http://127.0.0.1:1\n", want: 403},
		{name: "origin with a path", headers: bearer + "Origin: http://" + self + "/x\n", want: 403},
		{name: "origin of another scheme", headers: bearer + "Origin: ftp://" + self + "\n", want: 403},
		{name: "two origins", headers: bearer + "Origin: http://" + self + "\nOrigin: http://" + self + "\n", want: 403},
		{name: "foreign origin, health", target: "GET /health", headers: "Origin: https://evil.example\n", want: 403},
		{name: "cross-site image", headers: bearer + "Sec-Fetch-Site: cross-site\n", want: 403},
		{name: "same-site is another port", headers: bearer + "Sec-Fetch-Site: same-site\n", want: 403},
		{name: "same origin", headers: bearer + "Sec-Fetch-Site: same-origin\n", want: 200},
		{name: "typed by the user", headers: bearer + "Sec-Fetch-Site: none\n", want: 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			target, host := tc.target, tc.host
			if target == "" {
				target = "GET /ws"
			}
			if host == "" {
				host = self
			}
			resp, body := send(t, s, target+" HTTP/1.1\nHost: "+host+"\n"+tc.headers+"\n")
			if resp.StatusCode != tc.want || !strings.Contains(body, tc.says) {
				t.Errorf("status %d, body %s; want %d and %q", resp.StatusCode, body, tc.want, tc.says)
			}
			for _, h := range []string{"X-Content-Type-Options", "Content-Security-Policy", "Cache-Control"} {
				if resp.Header.Get(h) == "" {
					t.Errorf("no header %s", h)
				}
			}
			if resp.StatusCode >= 400 {
				var e wire.Problem
				if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error.Error.Message == "" {
					t.Errorf("the body %q is not an error in JSON", body)
				}
			}
			if got := resp.Header.Get("WWW-Authenticate"); (resp.StatusCode == 401) != (got == `Bearer realm="sandbar"`) {
				t.Errorf("WWW-Authenticate is %q", got)
			}
		})
	}
	if strings.Contains(logs.String(), token) {
		t.Error("the token is in the log")
	}
	_, metrics := send(t, s, "GET /metrics HTTP/1.1\nHost: localhost\n"+bearer+"\n")
	for _, reason := range refusalReasons {
		if reason == reasonRole { // TestTenants
			continue
		}
		if strings.Contains(metrics, `sandbar_http_refused_total{reason="`+reason+`"} 0`) {
			t.Errorf("refusals for %q were not counted", reason)
		}
	}
}

func TestHealth(t *testing.T) {
	s, _ := start(t, nil)
	for headers, want := range map[string]string{
		"":                              `{"status":"ok","version":"v1.2.3"}` + "\n",
		"Authorization: Bearer wrong\n": `{"status":"ok","version":"v1.2.3"}` + "\n",
		bearer:                          `{"status":"ok","version":"v1.2.3","load":{"active":3,"queued":2,"sandboxes":1,"capacity":64,"removing":0}}` + "\n",
	} {
		resp, body := send(t, s, "GET /health HTTP/1.1\nHost: localhost\n"+headers+"\n")
		if resp.StatusCode != 200 || body != want || resp.Header.Get("Content-Type") != "application/json; charset=utf-8" {
			t.Errorf("with %q: %d %s", headers, resp.StatusCode, body)
		}
	}
}

func TestOpenMetrics(t *testing.T) {
	s, _ := start(t, func(o *Options) { o.MetricsOpen = true })
	if resp, _ := send(t, s, "GET /metrics HTTP/1.1\nHost: localhost\n\n"); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if resp, _ := send(t, s, "GET /ws HTTP/1.1\nHost: localhost\n\n"); resp.StatusCode != 401 {
		t.Errorf("open metrics opened another path: status %d", resp.StatusCode)
	}
}

// A daemon that listens on all addresses accepts the address at which it was reached as Host.
func TestAllAddresses(t *testing.T) {
	s, logs := start(t, func(o *Options) { o.Listen, o.TokenChosen, o.MetricsOpen = "0.0.0.0:0", true, true })
	_, port, _ := net.SplitHostPort(s.listener.Addr().String())
	for host, want := range map[string]int{"127.0.0.1": 200, "localhost": 200, "evil.example": 421, "0.0.0.0": 200, "192.0.2.1": 421} {
		if resp, _ := send(t, s, "GET /ws HTTP/1.1\nHost: "+host+":"+port+"\n"+bearer+"\n"); resp.StatusCode != want {
			t.Errorf("%s: status %d, want %d", host, resp.StatusCode, want)
		}
	}
	if resp, _ := send(t, s, "GET /metrics HTTP/1.1\nHost: localhost\n\n"); resp.StatusCode != 401 {
		t.Errorf("open metrics beyond loopback: status %d", resp.StatusCode)
	}
	if !strings.Contains(logs.String(), "without TLS") {
		t.Error("no warning about a token in the clear")
	}
}

func TestMalformedRequests(t *testing.T) {
	s, _ := start(t, nil)
	for name, tc := range map[string]struct {
		request string
		want    int
	}{
		"user in the host": {"GET /ws HTTP/1.1\nHost: localhost@evil.example\n" + bearer + "\n", 400},
		"no host":          {"GET /ws HTTP/1.1\n" + bearer + "\n", 400},
		"two hosts":        {"GET /ws HTTP/1.1\nHost: localhost\nHost: evil\n" + bearer + "\n", 400},
		"HTTP/1.0":         {"GET /ws HTTP/1.0\n" + bearer + "\n", 421},
		"not HTTP":         {"EHLO sandbar\n\n", 400},
		"large header":     {"GET /ws HTTP/1.1\nHost: localhost\nX: " + strings.Repeat("x", 64<<10) + "\n\n", 431},
		"HTTP/2 preface":   {"PRI * HTTP/2.0\n\nSM\n\n", 421},
		"two lengths":      {"GET /ws HTTP/1.1\nHost: localhost\nContent-Length: 1\nContent-Length: 2\n\nxx", 400},
		"panic in a route": {"GET /panic HTTP/1.1\nHost: localhost\n" + bearer + "\n", 500},
	} {
		t.Run(name, func(t *testing.T) {
			if resp, _ := send(t, s, tc.request); resp.StatusCode != tc.want {
				t.Errorf("status %d, want %d", resp.StatusCode, tc.want)
			}
			if resp, _ := send(t, s, "GET /health HTTP/1.1\nHost: localhost\n\n"); resp.StatusCode != 200 {
				t.Errorf("afterwards health is %d", resp.StatusCode)
			}
		})
	}
}

func TestLogsCannotBeForged(t *testing.T) {
	s, logs := start(t, nil)
	send(t, s, "GET /%0Alevel=ERROR%20msg=forged%1b[31m HTTP/1.1\nHost: localhost\n\n")
	lines := strings.Split(strings.TrimSpace(logs.String()), "\n")
	if len(lines) != 1 || strings.Contains(lines[0], "\x1b") || !strings.Contains(lines[0], `\nlevel=ERROR`) {
		t.Errorf("the log is %q", lines)
	}
}

func TestListenRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir()
	socket, err := net.Listen("unix", filepath.Join(dir, "live"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	write(t, filepath.Join(dir, "file"), "precious")
	for name, tc := range map[string]struct {
		o    Options
		code sandbar.Code
		says string
	}{
		"no token":             {Options{Listen: "127.0.0.1:0"}, sandbar.Invalid, "there is no token"},
		"all addresses":        {Options{Listen: "0.0.0.0:0", Token: token}, sandbar.Denied, "set SANDBAR_TOKEN or token_file, or listen on 127.0.0.1"},
		"all addresses, short": {Options{Listen: ":0", Token: token}, sandbar.Denied, "can be reached from other machines"},
		"all addresses, IPv6":  {Options{Listen: "[::]:0", Token: token}, sandbar.Denied, "can be reached from other machines"},
		"address in use":       {Options{Listen: taken.Addr().String(), Token: token}, sandbar.Unavailable, "end what listens there"},
		"foreign address":      {Options{Listen: "192.0.2.1:1", Token: token}, sandbar.Unavailable, "choose an address of this machine"},
		"socket in use":        {Options{Listen: "unix:" + filepath.Join(dir, "live"), Token: token}, sandbar.Exists, "another process listens there"},
		"file for a socket":    {Options{Listen: "unix:" + filepath.Join(dir, "file"), Token: token}, sandbar.Exists, "the path exists and is not a socket"},
		"socket nowhere":       {Options{Listen: "unix:" + filepath.Join(dir, "no", "s"), Token: token}, sandbar.Unavailable, "cannot listen on"},
		"no certificate":       {Options{Listen: "127.0.0.1:0", Token: token, Certificate: "/none", Key: "/none"}, sandbar.Invalid, "name two files that this user can read"},
		"not a certificate": {Options{Listen: "127.0.0.1:0", Token: token, Certificate: filepath.Join(dir, "file"), Key: filepath.Join(dir, "file")},
			sandbar.Invalid, "tls.cert must hold a PEM certificate chain"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Listen(tc.o)
			if err == nil {
				s.listener.Close()
				t.Fatal("it listens")
			}
			if sandbar.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), token) {
				t.Errorf("%s: %v", sandbar.CodeOf(err), err)
			}
		})
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close() // leaves its socket, as a killed daemon does
	s, _ := start(t, func(o *Options) { o.Listen = "unix:" + path })
	if s.URL() != "unix:"+path {
		t.Errorf("URL is %s", s.URL())
	}
	if resp, _ := send(t, s, "GET /ws HTTP/1.1\nHost: localhost\n"+bearer+"\n"); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if resp, _ := send(t, s, "GET /ws HTTP/1.1\nHost: localhost\n\n"); resp.StatusCode != 401 {
		t.Errorf("without token: status %d", resp.StatusCode)
	}
}

func TestShutdownWaitsForAnswers(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	s, err := Listen(Options{Listen: "127.0.0.1:0", Token: token, Routes: map[string]http.Handler{
		"GET /slow": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(started)
			<-finish
			io.WriteString(w, "done")
		})}})
	if err != nil {
		t.Fatal(err)
	}
	served, answered := make(chan error, 1), make(chan string, 1)
	go func() { served <- s.Serve() }()
	go func() {
		_, body := send(t, s, "GET /slow HTTP/1.1\nHost: localhost\n"+bearer+"\n")
		answered <- body
	}()
	<-started
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(context.Background()) }()
	if err := <-served; err != nil { // returns when the listener is closed
		t.Error(err)
	}
	if _, err := net.Dial("tcp", s.listener.Addr().String()); err == nil {
		t.Error("it still accepts")
	}
	close(finish)
	if body := <-answered; body != "done" {
		t.Errorf("the answer under way was %q", body)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}
