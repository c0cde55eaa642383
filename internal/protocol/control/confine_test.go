package control

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/protocol/ports"
)

// exchange sends one request below /r/ and returns every byte of the response.
func (r *rig) exchange(id, path string, headers ...string) string {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "GET /r/%s%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n%s\r\n", id, path, r.addr, token,
		strings.Join(append(headers, "Connection: close\r\n"), "\r\n"))
	all, err := io.ReadAll(c)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(all)
}

// everyDropped returns a header block with every header that clients must not receive.
func everyDropped() string {
	var b strings.Builder
	for _, name := range slices.Concat(ports.HostHeaders(), originHeaders) {
		fmt.Fprintf(&b, "%s: x-from-inside\r\n", name)
	}
	return b.String()
}

// TestWebConfines tests that whatever a program's server sends, the client receives one final
// response that is confined, or the daemon's own error.
func TestWebConfines(t *testing.T) {
	const early = "HTTP/1.1 103 Early Hints\r\nLink: </x.css>; rel=preload\r\nX-Early: x-from-inside\r\nContent-Security-Policy: x-from-inside\r\n\r\n"
	const final = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\npage"
	for name, tt := range map[string]struct {
		answer string
		status int
		body   string // of status 200
	}{
		"final only":      {final, 200, "page"},
		"100":             {"HTTP/1.1 100 Continue\r\n\r\n" + final, 200, "page"},
		"102":             {"HTTP/1.1 102 Processing\r\n\r\n" + final, 200, "page"},
		"103":             {early + final, 200, "page"},
		"several 103":     {strings.Repeat(early, 20) + final, 200, "page"},
		"103 without end": {strings.Repeat(early, 2000) + final, 502, ""},
		"103 only":        {early, 502, ""},
		"101 unasked":     {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n" + final, 502, ""},
		"HTTP/1.0":        {"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\npage", 200, "page"},
		"every header":    {"HTTP/1.1 200 OK\r\n" + everyDropped() + "Set-Cookie: a=b; Domain=example\r\nContent-Length: 4\r\n\r\npage", 200, "page"},
		"hop headers": {"HTTP/1.1 200 OK\r\nConnection: close, Content-Security-Policy, X-Content-Type-Options\r\nKeep-Alive: x-from-inside\r\n" +
			"Proxy-Authenticate: x-from-inside\r\nContent-Length: 4\r\n\r\npage", 200, "page"},
		"an own policy": {"HTTP/1.1 200 OK\r\nContent-Security-Policy: sandbox allow-same-origin\r\nContent-Length: 4\r\n\r\npage", 200, "page"},
		"trailers": {"HTTP/1.1 200 OK\r\nTrailer: Set-Cookie, X-Told\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npage\r\n0\r\n" +
			"Set-Cookie: x-from-inside=1; Domain=example\r\nX-Told: x-from-inside\r\nX-Untold: x-from-inside\r\n\r\n", 200, "page"},
		"both lengths":        {"HTTP/1.1 200 OK\r\nContent-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npage\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nX-Second: x-from-inside\r\n\r\n", 200, "page"},
		"two lengths":         {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\npage", 502, ""},
		"one after the other": {final + "HTTP/1.1 200 OK\r\nX-Second: x-from-inside\r\nContent-Length: 0\r\n\r\n", 200, "page"},
		"bare line feeds":     {"HTTP/1.1 200 OK\nContent-Length: 4\nX-A: b\n\npage", 200, "page"},
		"a folded header":     {"HTTP/1.1 200 OK\r\nX-A: b\r\n Content-Security-Policy: x\r\nContent-Length: 4\r\n\r\npage", 200, "page"},
		"a giant header":      {"HTTP/1.1 200 OK\r\nX-Giant: " + strings.Repeat("x", 2*64<<10) + "\r\n\r\n", 502, ""},
		"many headers":        {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Many: x\r\n", 64<<10/8) + "\r\n", 502, ""},
		"an error page":       {"HTTP/1.1 500 No\r\nContent-Length: 4\r\n\r\npage", 500, ""},
		"no modified one":     {early + "HTTP/1.1 304 Not Modified\r\n\r\n", 304, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, id := localRig(t)
			r.bind(id, listen(t, func(c net.Conn) {
				defer c.Close()
				in := bufio.NewReader(c)
				if _, err := http.ReadRequest(in); err != nil {
					return
				}
				io.WriteString(c, tt.answer)
			}))
			said := r.exchange(id, "/")
			if strings.Contains(said, "x-from-inside") {
				t.Errorf("what the program sent has passed:\n%.2000s", said)
			}
			in := bufio.NewReader(strings.NewReader(said))
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("%v: %.500s", err, said)
			}
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode != tt.status || err != nil || tt.body != "" && string(body) != tt.body {
				t.Fatalf("%s %q, %v", resp.Status, body, err)
			}
			if rest, _ := io.ReadAll(in); len(rest) > 0 {
				t.Errorf("after the answer: %.500q", rest)
			}
			policy := confinement
			if tt.status == 502 && name != "101 unasked" {
				policy = "default-src 'none'; frame-ancestors 'none'"
			}
			for name, want := range map[string]string{"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff",
				"Cross-Origin-Resource-Policy": "same-origin", "Referrer-Policy": "no-referrer"} {
				if v := resp.Header.Values(name); len(v) == 0 || v[0] != want {
					t.Errorf("%s: %q, want %q", name, v, want)
				}
			}
			if v := resp.Header.Get("Set-Cookie"); strings.Contains(strings.ToLower(v), "domain") {
				t.Errorf("Set-Cookie: %s", v)
			}
		})
	}
}

// TestWebConfinesUpgrades tests that the response to an upgrade is confined too.
func TestWebConfinesUpgrades(t *testing.T) {
	r, id := localRig(t)
	r.bind(id, listen(t, func(c net.Conn) {
		defer c.Close()
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nX-Early: x-from-inside\r\n\r\nHTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			everyDropped()+"Set-Cookie: a=b; Domain=example\r\nSec-WebSocket-Accept: yes\r\n\r\nhello")
	}))
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "GET /r/%s/ HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", id, r.addr, token)
	all, err := io.ReadAll(c)
	said := string(all)
	if err != nil || !strings.HasPrefix(said, "HTTP/1.1 101 ") || !strings.HasSuffix(said, "\r\n\r\nhello") || !strings.Contains(said, "\r\nSec-Websocket-Accept: yes\r\n") {
		t.Fatalf("%v: %s", err, said)
	}
	if strings.Contains(said, "x-from-inside") || strings.Contains(said, "Domain") || !strings.Contains(said, "\r\nContent-Security-Policy: "+confinement+"\r\n") {
		t.Errorf("not confined:\n%s", said)
	}
}

// TestWebLocations tests that no redirection leads a client, which sends its token with it, to
// another part of the daemon, to another port of its host or to a subdomain.
func TestWebLocations(t *testing.T) {
	p := page{prefix: "/r/sb_a", host: "localhost:8000", daemon: "Sandboxes.example:7300"}
	at, err := url.Parse("http://127.0.0.1:8000/dir/page?q=1")
	if err != nil {
		t.Fatal(err)
	}
	for to, want := range map[string]string{
		"":                                    "",
		"/x":                                  "/r/sb_a/x",
		"x":                                   "/r/sb_a/dir/x",
		"?a=b#c":                              "/r/sb_a/dir/page?a=b#c",
		"../x":                                "/r/sb_a/x",
		"../../../sandboxes/sb_b":             "/r/sb_a/sandboxes/sb_b",
		"/../../sandboxes":                    "/r/sb_a/sandboxes",
		"/r/sb_a/../sb_b/":                    "/r/sb_a/r/sb_b/",
		"/r/sb_a/x":                           "/r/sb_a/x",
		"/r/sb_ab/x":                          "/r/sb_a/r/sb_ab/x",
		"/r%2Fsb_a/x":                         "/r/sb_a/r%2Fsb_a/x",
		"/%2e%2e/%2E%2e/sandboxes":            "",
		"/r/sb_a/%2e%2e/sb_b/":                "",
		`/\evil.example/`:                     "/r/sb_a/%5Cevil.example/",
		"///evil.example/x":                   "/r/sb_a///evil.example/x",
		"http://localhost:8000/x":             "/r/sb_a/x",
		"http://127.0.0.1:8000/x":             "/r/sb_a/x",
		"http://sandboxes.example:7300/x":     "/r/sb_a/x",
		"https://SANDBOXES.example.:7300/x":   "/r/sb_a/x",
		"//sandboxes.example:7300/sandboxes":  "/r/sb_a/sandboxes",
		"http://a@sandboxes.example:7300/r/x": "/r/sb_a/r/x",
		"http://sandboxes.example:18000/":     "",
		"http://sandboxes.example/":           "",
		"http://x.sandboxes.example:9/":       "",
		"http:/sandboxes":                     "",
		"http:sandboxes":                      "",
		"https:///sandboxes":                  "",
		"http://ｓandboxes.example:9/":         "",
		"http://sandb%6fxes.example:9/":       "",
		"http://[::1/":                        "",
		"/x\ty":                               "",
		"https://example.com/x?y":             "https://example.com/x?y",
		"//example.com/x":                     "//example.com/x",
		"mailto:a@b":                          "mailto:a@b",
	} {
		got, ok := p.location(to, at)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%q leads to %q, %v; want %q", to, got, ok, want)
		}
	}
}
