package peers

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// A browser's session reaches the other daemon, which opens it, and so does whether the browser
// came over TLS, because the cookie's name depends on it.
func TestSessionIsForwarded(t *testing.T) {
	const session = "Cookie: c=d; Origin: https://balancer; Sec-Fetch-Site: same-origin; X-Forwarded-Proto: https"
	var got []string
	b := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Cookie") == "" {
			return // the question whether it has the sandbox
		}
		line := []string{}
		for _, name := range []string{"Cookie", "Origin", "Sec-Fetch-Site", "X-Forwarded-Proto"} {
			line = append(line, name+": "+strings.Join(r.Header.Values(name), ","))
		}
		got = append(got, strings.Join(line, "; "))
	}))
	defer b.Close()
	p := newTest(t, b.URL)
	for _, https := range []bool{true, false} {
		r := httptest.NewRequest("GET", "http://balancer/v1/sandboxes/one", nil)
		r.Header.Set("Cookie", "c=d")
		r.Header.Set("Origin", "https://balancer")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		if https {
			r.TLS = &tls.ConnectionState{}
		} else {
			r.Header.Set("X-Forwarded-Proto", "https") // of a proxy in front
		}
		p.Handler(func(*http.Request) (string, bool) { return "one", false })(r).ServeHTTP(httptest.NewRecorder(), r)
		if _, _, err := p.List(r); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(got, []string{session, session, session, session}) {
		t.Errorf("the other daemon got %q", got)
	}
}

// box answers like a daemon with one sandbox, and counts the questions for it.
type box struct {
	*httptest.Server
	id    atomic.Value
	asked atomic.Int32
	token string
}

func newBox(t *testing.T, id string) *box {
	b := &box{token: "t"}
	b.id.Store(id)
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(Header) == "" {
			t.Errorf("%s %s without the header %s", r.Method, r.URL, Header)
		}
		switch r.URL.Path {
		case "/v1/sandboxes":
			io.WriteString(w, b.id.Load().(string))
		case "/v1/sandboxes/" + b.id.Load().(string):
			if r.Header.Get("Authorization") != "Bearer "+b.token {
				http.Error(w, "no", http.StatusUnauthorized)
				return
			}
			b.asked.Add(1)
			io.WriteString(w, r.Host+" "+r.Method)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(b.Close)
	return b
}

func ask(p *Peers, method, key string, headers ...string) (served bool, w *httptest.ResponseRecorder) {
	h := p.Handler(func(r *http.Request) (string, bool) {
		key := strings.TrimPrefix(r.URL.Path, "/v1/sandboxes/")
		return key, key == "own"
	})
	r := httptest.NewRequest(method, "http://balancer/v1/sandboxes/"+key, nil)
	r.Header.Set("Authorization", "Bearer t")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w = httptest.NewRecorder()
	to := h(r)
	if to != nil {
		to.ServeHTTP(w, r)
	}
	return to != nil, w
}

func newTest(t *testing.T, urls ...string) *Peers {
	t.Helper()
	p, err := New(Options{Addresses: urls, Token: "t", Fail: func(w http.ResponseWriter, status int, e *sandbar.Error) { http.Error(w, e.Message, status) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// A request is forwarded unchanged to the daemon that has its sandbox, which is asked once; what
// nobody has, and what the daemon itself has, is not forwarded.
func TestForward(t *testing.T) {
	a, b := newBox(t, "one"), newBox(t, "two")
	p := newTest(t, a.URL, b.URL)
	for range 3 {
		if served, w := ask(p, "DELETE", "two"); !served || w.Body.String() != "balancer DELETE" {
			t.Errorf("%v %q", served, w.Body)
		}
	}
	if n := b.asked.Load(); n != 4 { // one question, three requests
		t.Errorf("%d requests for the sandbox", n)
	}
	for _, key := range []string{"own", "three", ".", ".."} {
		if served, w := ask(p, "GET", key); served {
			t.Errorf("%s is forwarded: %d", key, w.Code)
		}
	}
	if served, _ := ask(p, "GET", "two", Header, "1"); served {
		t.Error("a forwarded request is forwarded again")
	}
	p.SetToken("other")
	if served, w := ask(p, "GET", "one"); !served || w.Code != http.StatusServiceUnavailable {
		t.Errorf("a daemon that refuses the question: %v, %d", served, w.Code)
	}
}

// The other daemon can answer before it has the whole request.
func TestDuplex(t *testing.T) {
	b := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "POST" {
			return // the question whether it has the sandbox
		}
		http.NewResponseController(w).EnableFullDuplex()
		if r.ContentLength > 0 {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		for in := bufio.NewScanner(r.Body); in.Scan(); http.NewResponseController(w).Flush() {
			fmt.Fprintln(w, "got", in.Text())
		}
	}))
	defer b.Close()
	p := newTest(t, b.URL)
	forward := p.Handler(func(*http.Request) (string, bool) { return "one", false })
	a := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { forward(r).ServeHTTP(w, r) }))
	defer a.Close()
	c, err := net.Dial("tcp", a.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(c, "POST /v1/sandboxes/one HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	first, err := in.ReadString('\n')
	if err != nil || first != "got one\n" {
		t.Fatalf("%q, %v", first, err)
	}
	io.WriteString(c, "4\r\ntwo\n\r\n0\r\n\r\n")
	if rest, err := io.ReadAll(in); err != nil || string(rest) != "got two\n" {
		t.Errorf("%q, %v", rest, err)
	}

	// A client that waits for leave to send the rest learns that nobody reads it.
	if c, err = net.Dial("tcp", a.Listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(c, "POST /v1/sandboxes/one HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
	in = bufio.NewReader(c)
	for resp.StatusCode = http.StatusContinue; resp.StatusCode == http.StatusContinue; {
		if resp, err = http.ReadResponse(in, nil); err != nil {
			t.Fatal(err)
		}
	}
	if resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
		t.Errorf("%+v", resp)
	}
}

// A sandbox that has ended or moved is looked for again.
func TestMoved(t *testing.T) {
	a, b := newBox(t, "one"), newBox(t, "two")
	p := newTest(t, a.URL, b.URL)
	ask(p, "GET", "one")
	a.id.Store("moved")
	b.id.Store("one")
	if _, w := ask(p, "GET", "one"); w.Code != http.StatusNotFound {
		t.Errorf("%d from the daemon that had it", w.Code)
	}
	if _, w := ask(p, "GET", "one"); w.Code != http.StatusOK {
		t.Errorf("%d from the daemon that has it now", w.Code)
	}
	b.Close()
	if _, w := ask(p, "GET", "one"); w.Code != http.StatusBadGateway {
		t.Errorf("%d for a daemon that has ended", w.Code)
	}
}

// A list has the answers of all that live; it fails if one is there and does not answer.
func TestList(t *testing.T) {
	a, b := newBox(t, "one"), newBox(t, "two")
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "", http.StatusInternalServerError) }))
	defer broken.Close()
	ended := httptest.NewServer(http.NotFoundHandler())
	ended.Close()
	r := httptest.NewRequest("GET", "http://balancer/v1/sandboxes", nil)
	_, bodies, err := newTest(t, a.URL, b.URL, ended.URL).List(r)
	var got []string
	for _, text := range bodies {
		got = append(got, string(text))
	}
	if slices.Sort(got); err != nil || !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("%q, %v", got, err)
	}
	if _, _, err := newTest(t, a.URL, broken.URL).List(r); sandbar.CodeOf(err) != sandbar.Unavailable {
		t.Errorf("with a broken daemon: %v", err)
	}
	r.Header.Set(Header, "1")
	if _, bodies, err := newTest(t, a.URL).List(r); len(bodies) > 0 || err != nil {
		t.Errorf("a forwarded list: %q, %v", bodies, err)
	}
}

func TestOptions(t *testing.T) {
	if p := newTest(t); p.Handler(nil) != nil {
		t.Error("a handler without other daemons")
	}
	for _, bad := range [][]string{{"a"}, {"ftp://a"}, {"http://"}, {"http://a/path"}, {"http://u@a"}, {"http://a?q"}, {"dns+a"}, {"dns+http://a", "http://b"},
		slices.Repeat([]string{"http://a"}, maxPeers+1)} {
		if _, err := New(Options{Addresses: bad}); sandbar.CodeOf(err) != sandbar.Invalid {
			t.Errorf("%v: %v", bad[0], err)
		}
	}
	if _, err := New(Options{Addresses: []string{"https://a"}, CA: "/nonexistent"}); sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("no certificates: %v", err)
	}
	// the addresses of a name, without this host's own
	p := newTest(t, "dns+http://localhost:1")
	if got, err := p.others(t.Context()); len(got) != 0 || err != nil {
		t.Errorf("others: %v, %v", got, err)
	}
}

// A name that cannot be resolved is no proof that there are no other daemons.
func TestUnknownName(t *testing.T) {
	p := newTest(t, "dns+http://daemons.invalid:1")
	_, err := p.Ask(t.Context(), "/v1/usage", nil)
	if e := sandbar.AsError(err); err == nil || e.Code != sandbar.Unavailable || e.Fix == "" {
		t.Errorf("a question to all: %v", err)
	}
	if served, w := ask(p, "GET", "one"); !served || w.Code != http.StatusServiceUnavailable {
		t.Errorf("a request for a sandbox: %v, %d", served, w.Code)
	}
}

// A daemon whose own address is among those of the others asks itself, and leaves itself out.
func TestOwnAddress(t *testing.T) {
	other := newBox(t, "one")
	var p *Peers
	var own atomic.Int32
	self := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own.Add(1)
		if h := p.Handler(func(*http.Request) (string, bool) { return "", false })(r); h != nil {
			h.ServeHTTP(w, r)
			return
		}
		io.WriteString(w, "this daemon")
	}))
	defer self.Close()
	p = newTest(t, self.URL, other.URL)
	bodies, err := p.Ask(t.Context(), "/v1/sandboxes", url.Values{"limit": {"1"}})
	if err != nil || len(bodies) != 1 || string(bodies[0]) != "one" {
		t.Errorf("%q, %v", bodies, err)
	}
	if served, _ := ask(p, "GET", "nobody"); served || own.Load() != 2 {
		t.Errorf("an unknown sandbox: %v, after %d questions", served, own.Load())
	}
}
