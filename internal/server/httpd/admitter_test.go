package httpd

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// guarded is a route with a token of its own for one path.
type guarded struct{ asked chan string }

func (k guarded) Admits(r *http.Request) (sandbar.Client, bool) {
	k.asked <- r.URL.Path
	return sandbar.Client{Role: sandbar.RoleUser}, r.URL.Path == "/own/a" && r.Header.Get("Authorization") == "Bearer of-a"
}

func (k guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, "own "+r.URL.Path)
}

// A route may accept other tokens; all other requests are checked as before.
func TestAdmitter(t *testing.T) {
	k := guarded{make(chan string, 100)}
	s, _ := start(t, func(o *Options) { o.Routes["/own/"] = k })
	const own = "Authorization: Bearer of-a\n"
	for _, tc := range []struct {
		name, target, host, headers string
		want                        int
	}{
		{"its own token", "GET /own/a", "", own, 200},
		{"the daemon's token", "GET /own/b", "", bearer, 200},
		{"its own token elsewhere in the route", "GET /own/b", "", own, 401},
		{"its own token at another route", "GET /ws", "", own, 401},
		{"its own token for metrics", "GET /metrics", "", own, 401},
		{"its own token where nothing is", "GET /none", "", own, 401},
		{"no token", "GET /own/a", "", "", 401},
		{"a path to be cleaned leads to no more", "GET /own/a/../../ws", "", own, 401},
		{"foreign host", "GET /own/a", "evil.example", own, 421},
		{"foreign origin", "GET /own/a", "", own + "Origin: https://evil.example\n", 403},
		{"another site", "GET /own/a", "", own + "Sec-Fetch-Site: cross-site\n", 403},
	} {
		t.Run(tc.name, func(t *testing.T) {
			host := tc.host
			if host == "" {
				host = "localhost"
			}
			resp, body := send(t, s, tc.target+" HTTP/1.1\nHost: "+host+"\n"+tc.headers+"\n")
			if resp.StatusCode != tc.want {
				t.Errorf("status %d, body %s; want %d", resp.StatusCode, body, tc.want)
			}
		})
	}
	close(k.asked)
	for path := range k.asked {
		if !strings.HasPrefix(path, "/own/") {
			t.Errorf("the route was asked about %s", path)
		}
	}
}

// deadlines is a ResponseWriter that records the deadlines that are set on it.
type deadlines struct {
	http.ResponseWriter
	read, write *time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error  { d.read = &t; return nil }
func (d *deadlines) SetWriteDeadline(t time.Time) error { d.write = &t; return nil }

// A route's request body and response have no deadline; those of a refused request have.
func TestRouteHasNoDeadlines(t *testing.T) {
	d := &deadlines{}
	withoutDeadlines(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if d.read == nil || !d.read.IsZero() || d.write == nil || !d.write.IsZero() {
			t.Errorf("the route begins with the deadlines %v and %v", d.read, d.write)
		}
	})).ServeHTTP(d, nil)
}

func TestUnguarded(t *testing.T) {
	ln, err := Bind("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Unguarded(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic("boom")
		}
		io.WriteString(w, "host "+r.Host)
	}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	resp, body := send(t, s, "GET / HTTP/1.1\nHost: sandbox.example\nOrigin: https://sandbox.example\n\n")
	if resp.StatusCode != 200 || body != "host sandbox.example" || resp.Header.Get("X-Content-Type-Options") != "nosniff" ||
		resp.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%d %q %v", resp.StatusCode, body, resp.Header)
	}
	if resp, body := send(t, s, "GET /panic HTTP/1.1\nHost: x\n\n"); resp.StatusCode != 500 || !strings.Contains(body, `"code":"internal"`) {
		t.Errorf("after a panic: %d %q", resp.StatusCode, body)
	}
	if resp, _ := send(t, s, "GET / HTTP/1.1\nHost: x\nX: "+strings.Repeat("x", 64<<10)+"\n\n"); resp.StatusCode != 431 {
		t.Errorf("large header: %d", resp.StatusCode)
	}
	if _, err := Bind(ln.Addr().String()); err == nil {
		t.Error("two servers listen on one port")
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
