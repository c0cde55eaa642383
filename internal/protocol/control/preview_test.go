package control

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/protocol/ports"
)

// browser is an HTTP client that reaches all host names at the rig's address.
func (r *rig) browser() *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, r.addr)
	}}
	r.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Jar: jar, Transport: transport}
}

// get requests a URL and returns the status, the body and the header.
func get(t *testing.T, c *http.Client, method, address string, headers ...string) (int, string, http.Header) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Header
}

// preview asks for a preview.
func (r *rig) preview(id string, port int, public bool) string {
	r.t.Helper()
	status, text := r.ask(token, "POST", "/sandboxes/"+id+"/previews", fmt.Sprintf(`{"port": %d, "public": %v}`, port, public))
	var p wire.Preview
	if decodeInto(text, &p); status != 200 || p.Port != port || p.Public != public {
		r.t.Fatalf("%d %s", status, text)
	}
	return p.URL
}

// show starts a program that answers with what it has received.
func show(t *testing.T) (port int) {
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		for name, values := range q.URL.Query() {
			for _, v := range values {
				w.Header().Add(name, v)
			}
		}
		fmt.Fprintf(w, "%s %s host=%s cookie=%q authorization=%q", q.Method, q.URL.Path, q.Host, q.Header.Get("Cookie"), q.Header.Get("Authorization"))
	}))
	t.Cleanup(program.Close)
	return program.Listener.Addr().(*net.TCPAddr).Port
}

func TestPreviewAccess(t *testing.T) {
	r, id := localRig(t)
	port := show(t)
	host := strconv.Itoa(port) + "-" + strings.TrimPrefix(id, "sb_") + ".localhost"
	_, daemonPort, _ := net.SplitHostPort(r.addr)
	origin := "http://" + host + ":" + daemonPort
	page := func(path, cookie, authorization string) string {
		return fmt.Sprintf("GET %s host=%s:%s cookie=%q authorization=%q", path, host, daemonPort, cookie, authorization)
	}
	c := r.browser()
	expect := func(what string, wantStatus int, wantBody, path string, headers ...string) {
		t.Helper()
		status, text, _ := get(t, c, "GET", origin+path, headers...)
		if status != wantStatus || status == 200 && text != wantBody || status != 200 && errorOf(t, text).Code != sandbar.Unauthenticated {
			t.Errorf("%s: %d %s, want %d %s", what, status, text, wantStatus, wantBody)
		}
	}
	expect("without a token", 401, "", "/a")
	expect("with a wrong token", 401, "", "/a", "Authorization", "Bearer wrong")
	expect("with the daemon's token", 200, page("/a", "", ""), "/a", "Authorization", "Bearer "+token)
	expect("with the sandbox's secret", 200, page("/a", "", ""), "/a", "Authorization", "Bearer "+secret)
	expect("a path of the daemon", 200, page("/sandboxes", "", ""), "/sandboxes", "Authorization", "Bearer "+token)

	address := r.preview(id, port, false)
	if address != r.preview(id, port, false) || !strings.HasPrefix(address, origin+"/?sandbar_preview=") {
		t.Fatalf("%s, want %s", address, origin)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	key := u.Query().Get(previewToken)
	expect("without the token of the preview", 401, "", "/a")
	expect("with another token", 401, "", "/a?sandbar_preview="+strings.Repeat("A", len(key)))
	expect("with an empty token", 401, "", "/a?sandbar_preview=")
	expect("with the token once", 200, page("/a/b", "", ""), "/a/b?sandbar_preview="+key)
	expect("with the cookie", 200, page("/a", "", "Bearer own"), "/a", "Authorization", "Bearer own")
	expect("with the cookie and another", 200, page("/", "own=1", ""), "/", "Cookie", "own=1")
	expect("with a session of the console", 200, page("/", "own=1", ""), "/", "Cookie", "__Host-sandbar_console=x; own=1; sandbar_console=y")
	for site, status := range map[string]int{"same-origin": 200, "none": 200, "same-site": 401, "cross-site": 401} {
		expect(site, status, page("/x", "", ""), "/x", "Sec-Fetch-Site", site)
	}
	expect("an image of another page", 401, "", "/x", "Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image")
	expect("a link", 200, page("/x", "", ""), "/x", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document")
	expect("a frame", 401, "", "/x", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe")
	expect("another origin", 401, "", "/x", "Origin", "http://evil.localhost")
	expect("its own origin", 200, page("/x", "", ""), "/x", "Origin", origin)
	if status, _, _ := get(t, c, "POST", origin+"/x", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"); status != 401 {
		t.Errorf("a form of another page: %d", status)
	}

	// The token opens neither another port nor another sandbox.
	other := string(r.create("{}").ID)
	r.preview(other, port, false)
	for _, h := range []string{strconv.Itoa(show(t)) + host[strings.Index(host, "-"):], host[:strings.Index(host, "-")+1] + strings.TrimPrefix(other, "sb_") + ".localhost"} {
		if status, _, _ := get(t, c, "GET", "http://"+h+":"+daemonPort+"/?sandbar_preview="+key); status != 401 {
			t.Errorf("the token opens %s: %d", h, status)
		}
	}
	unknown := sandbar.NewID()
	if status, text, _ := get(t, c, "GET", "http://"+r.server.names.Host(unknown, 80)+":"+daemonPort+"/"); status != 401 {
		t.Errorf("a sandbox that does not exist: %d %s", status, text)
	}
	if status, _, _ := get(t, c, "GET", "http://"+r.server.names.Host(unknown, 80)+":"+daemonPort+"/", "Authorization", "Bearer "+token); status != 404 {
		t.Errorf("a sandbox that does not exist, with the token: %d", status)
	}

	fresh := r.browser()
	r.preview(id, port, true)
	if status, text, _ := get(t, fresh, "GET", origin+"/p", "Sec-Fetch-Site", "cross-site", "Authorization", "Bearer own"); status != 200 || text != page("/p", "", "Bearer own") {
		t.Errorf("public: %d %s", status, text)
	}
	if status, _ := r.ask(secret, "DELETE", "/sandboxes/"+id+"/previews/"+strconv.Itoa(port), ""); status != 204 {
		t.Error(status)
	}
	expect("with the cookie of a removed preview", 401, "", "/x")
	if r.preview(id, port, false) == address {
		t.Error("a removed preview has the same token again")
	}
}

// A frame of the console shows a private preview: its cookie opens navigations of such frames and
// what their pages load, and nothing else.
func TestPreviewFrame(t *testing.T) {
	r, id := localRig(t)
	port := show(t)
	address := r.preview(id, port, false)
	frame := []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}
	c := &http.Client{Transport: r.browser().Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	cookieOf := func(referer string) string {
		t.Helper()
		status, text, h := get(t, c, "GET", address, append(frame, "Referer", referer)...)
		if status != http.StatusSeeOther || h.Get("Location") != "/" {
			t.Fatal(status, text, h)
		}
		for _, line := range h["Set-Cookie"] {
			if x, err := http.ParseSetCookie(line); err != nil {
				t.Fatal(err)
			} else if x.Name == frameToken {
				if !x.HttpOnly || !x.Secure || !x.Partitioned || x.SameSite != http.SameSiteNoneMode {
					t.Error(line)
				}
				return x.Name + "=" + x.Value
			}
		}
		return ""
	}
	for _, referer := range []string{"", "ftp://x/", "http://a;b/", "about:blank"} {
		if got := cookieOf(referer); got != "" {
			t.Errorf("a frame in %q: %s", referer, got)
		}
	}
	cookie := cookieOf("http://localhost:8080/")
	forged := strings.Replace(cookie, "=", "=A", 1)
	host := strings.SplitAfter(address, "/?")[0]
	for _, tc := range []struct {
		name, cookie string
		status       int
		headers      []string
	}{
		{"the frame", cookie, 200, frame},
		{"a page in the frame", cookie, 200, []string{"Sec-Fetch-Site", "same-origin"}},
		{"a forged token", forged, 401, frame},
		{"no origin", strings.SplitAfter(cookie, ".")[0], 401, frame},
		{"an image of another page", cookie, 401, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}},
		{"another sandbox's page", cookie, 401, []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors"}},
		{"no browser", cookie, 401, nil},
	} {
		status, text, h := get(t, c, "GET", host, append(tc.headers, "Cookie", cookie+"x; own=1; "+tc.cookie)...)
		policy := h.Get("Content-Security-Policy")
		if status != tc.status || status == 200 && (policy != "frame-ancestors 'self' http://localhost:8080" || !strings.Contains(text, `cookie="own=1"`)) {
			t.Errorf("%s: %d %s %s", tc.name, status, text, policy)
		}
	}
}

func TestPreviewPages(t *testing.T) {
	r, id := localRig(t)
	port := show(t)
	c := r.browser()
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	u, err := url.Parse(r.preview(id, port, true))
	if err != nil {
		t.Fatal(err)
	}
	answered := func(name, value string) string {
		t.Helper()
		u.RawQuery = url.Values{name: {value}}.Encode()
		status, _, h := get(t, c, "GET", u.String())
		if status != 200 {
			t.Errorf("%d", status)
		}
		return strings.Join(h.Values(name), "|")
	}
	for _, name := range ports.HostHeaders() {
		if v := answered(name, "x"); v != "" {
			t.Errorf("%s: %s is passed on", name, v)
		}
	}
	for name, value := range map[string]string{"Access-Control-Allow-Origin": "*", "Service-Worker-Allowed": "/", "Content-Security-Policy": "default-src 'self'",
		"Cache-Control": "max-age=5", "X-Own": "x"} {
		if v := answered(name, value); v != value {
			t.Errorf("%s: %q, want %q", name, v, value)
		}
	}
	inside := ":" + strconv.Itoa(port)
	for to, want := range map[string]string{"/x?y#z": "/x?y#z", "x": "x", "http://localhost" + inside + "/a%2Fb?c": "/a%2Fb?c", "http://127.0.0.1" + inside: "/",
		"https://example.com/": "https://example.com/", "http://localhost:1/": "http://localhost:1/", u.Scheme + "://" + u.Host + "/x": u.Scheme + "://" + u.Host + "/x",
		"http://" + u.Hostname() + ":1/": "", "//" + u.Hostname() + ":1/": ""} {
		if v := answered("Location", to); v != want {
			t.Errorf("a redirection to %s leads to %q, want %q", to, v, want)
		}
	}
	for cookie, want := range map[string]string{"a=b; Domain=localhost; Path=/x": "a=b; Path=/x", "sandbar_preview=x": "", "c=d; HttpOnly": "c=d; HttpOnly"} {
		if v := answered("Set-Cookie", cookie); v != want {
			t.Errorf("cookie %s becomes %q, want %q", cookie, v, want)
		}
	}
	// The listener's headers for its own answers are not those of a program's page.
	if v := answered("X-Content-Type-Options", ""); v != "" {
		t.Errorf("X-Content-Type-Options: %s", v)
	}
	if status, text, _ := get(t, c, "GET", "http://"+r.server.names.Host(sandbar.ID(id), 1)+"/", "Authorization", "Bearer "+token); status != http.StatusBadGateway {
		t.Errorf("a port where nothing listens: %d %s", status, text)
	}
}

// A preview passes WebSockets, with the token in the URL or as a cookie.
func TestPreviewUpgrade(t *testing.T) {
	r, id := localRig(t)
	l := listen(t, func(c net.Conn) {
		defer c.Close()
		in := bufio.NewReader(c)
		q, err := http.ReadRequest(in)
		if err != nil || q.Header.Get("Upgrade") != "websocket" || strings.Contains(q.URL.String()+q.Header.Get("Cookie"), previewToken) {
			t.Errorf("the program got %+v, %v", q, err)
		}
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		io.Copy(c, in)
	})
	_, port, _ := net.SplitHostPort(l)
	number, _ := strconv.Atoi(port)
	u, err := url.Parse(r.preview(id, number, false))
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range []string{"GET /?" + u.RawQuery + " HTTP/1.1\r\n", "GET / HTTP/1.1\r\nCookie: " + u.RawQuery + "\r\n"} {
		conn, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(conn, "%sHost: %s\r\nOrigin: http://%s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", request, u.Host, u.Host)
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != 101 {
			t.Fatal(resp, err)
		}
		fmt.Fprint(conn, "hello")
		got := make([]byte, 5)
		if _, err := io.ReadFull(in, got); err != nil || string(got) != "hello" {
			t.Errorf("%q, %v", got, err)
		}
		conn.Close()
	}
}

func TestPreviewRequests(t *testing.T) {
	r, id := localRig(t)
	path := "/sandboxes/" + id + "/previews"
	for body, code := range map[string]sandbar.Code{"": sandbar.Invalid, "{}": sandbar.Invalid, `{"port":0}`: sandbar.Invalid, `{"port":65536}`: sandbar.Invalid,
		`{"port":"80"}`: sandbar.Invalid, `{"port":80,"token":"x"}`: sandbar.Invalid, `{"port":80,"public":1}`: sandbar.Invalid} {
		if status, text := r.ask(token, "POST", path, body); status != 400 || errorOf(t, text).Code != code {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	for port, want := range map[string]int{"80": 404, "x": 400, "080": 400} {
		if status, text := r.ask(token, "DELETE", path+"/"+port, ""); status != want {
			t.Errorf("%s: %d %s", port, status, text)
		}
	}
	if status, _ := r.ask(token, "PUT", path, ""); status != 405 {
		t.Error(status)
	}
	if status, _ := r.ask(token, "GET", path+"/80", ""); status != 405 {
		t.Error(status)
	}
	for port := 1; port <= maxPreviews; port++ {
		r.preview(id, port, port%2 == 0)
	}
	if status, text := r.ask(token, "POST", path, `{"port":1000}`); status != 503 || errorOf(t, text).Code != sandbar.Exhausted {
		t.Errorf("%d %s", status, text)
	}
	status, text := r.ask(secret, "GET", path, "")
	var all wire.Previews
	if decodeInto(text, &all); status != 200 || len(all.Previews) != maxPreviews || all.Previews[1].Port != 2 || !all.Previews[1].Public {
		t.Errorf("%d %.300s", status, text)
	}
	for _, host := range []string{"localhost", "80.localhost", "80-x.localhost", "0-" + id[3:] + ".localhost", "80-" + id[3:], "80-" + id[3:] + ".localhost.example.com",
		"080-" + id[3:] + ".localhost", "80-" + id[3:] + ".x.localhost"} {
		if r.server.Serves(host) {
			t.Errorf("%s is a preview", host)
		}
	}
}
