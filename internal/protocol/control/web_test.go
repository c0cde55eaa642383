package control

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/local"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// localRig is a rig over the driver without a network of its own: a server on this machine's
// loopback acts as a program in the sandbox.
func localRig(t *testing.T) (r *rig, id string) {
	testenv.Need(t, testenv.Linux)
	d, err := local.Factory().New(driver.Host{RuntimeDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	r = newRig(t, Options{}, d)
	return r, string(r.create(`{"secret":"` + secret + `"}`).ID)
}

// bind makes /r/ lead to the port of an address.
func (r *rig) bind(id, address string) {
	r.t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		r.t.Fatal(err)
	}
	if status, text := r.ask(token, "POST", "/sandboxes/"+id+"/executor/bind/"+port, ""); status != 200 {
		r.t.Fatalf("%d %s", status, text)
	}
}

func TestWeb(t *testing.T) {
	r, id := localRig(t)
	got := make(chan *http.Request, 1)
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		got <- q
		h := w.Header()
		h.Set("X-Program", "yes")
		h.Set("Strict-Transport-Security", "max-age=1")
		h.Set("Clear-Site-Data", `"*"`)
		h.Set("Content-Security-Policy", "default-src *")
		h.Set("Cache-Control", "max-age=5")
		h.Add("Set-Cookie", "a=b; Domain=localhost")
		h.Add("Set-Cookie", "c=d; Path=/x; HttpOnly")
		h.Set("Location", q.URL.Query().Get("to"))
		w.WriteHeader(http.StatusTeapot)
		w.Write(body)
	}))
	defer program.Close()
	r.bind(id, program.Listener.Addr().String())
	host := "localhost:" + strconv.Itoa(program.Listener.Addr().(*net.TCPAddr).Port)
	prefix := "/r/" + id

	for _, bearer := range []string{token, secret} {
		status, body, h := r.askAll(bearer, "PUT", prefix+"/a%2Fb/c?d=e&f", "the body", "X-Mine", "1", "Connection", "X-Hop", "X-Hop", "1", "Cookie", "sandbar_console=a; k=v; __Host-sandbar_console=b",
			"Proxy-Authorization", "Basic x", routingKey, id)
		if status != http.StatusTeapot || body != "the body" {
			t.Fatalf("%d %q", status, body)
		}
		q := <-got
		if q.Method != "PUT" || q.URL.EscapedPath() != "/a%2Fb/c" || q.URL.RawQuery != "d=e&f" || q.Host != host || q.Header.Get("X-Mine") != "1" ||
			q.Header.Get("Cookie") != "k=v" || q.Header.Get("X-Forwarded-Prefix") != prefix || q.Header.Get("X-Forwarded-For") != "127.0.0.1" {
			t.Errorf("the program saw %s %s %s %v", q.Method, q.URL, q.Host, q.Header)
		}
		for _, name := range []string{"Authorization", "Proxy-Authorization", "X-Hop", routingKey} {
			if v := q.Header.Get(name); v != "" {
				t.Errorf("the program saw %s: %s", name, v)
			}
		}
		for name, want := range map[string]string{"X-Program": "yes", "Strict-Transport-Security": "", "Clear-Site-Data": "", "Cache-Control": "max-age=5",
			"Content-Security-Policy": confinement + "|default-src *", "X-Content-Type-Options": "nosniff",
			"Set-Cookie": "a=b; Path=" + prefix + "/|c=d; Path=" + prefix + "/x; HttpOnly"} {
			if v := strings.Join(h.Values(name), "|"); v != want {
				t.Errorf("%s: %s, want %s", name, v, want)
			}
		}
	}
	for to, want := range map[string]string{"/x?y=z": prefix + "/x?y=z", "x": prefix + "/x", "http://" + host + "/x": prefix + "/x", "http://" + host: prefix + "/",
		"https://example.com/x": "https://example.com/x", "//example.com/x": "//example.com/x", "mailto:a@b": "mailto:a@b", "/x%2Fy#z": prefix + "/x%2Fy#z"} {
		_, _, h := r.askAll(token, "GET", prefix+"/?to="+strings.NewReplacer("/", "%2F", "?", "%3F", "#", "%23", "%", "%25").Replace(to), "")
		<-got
		if v := h.Get("Location"); v != want {
			t.Errorf("a redirection to %s leads to %s, want %s", to, v, want)
		}
	}
}

// TestWebFails tests that the daemon reports a missing server and one that does not speak HTTP.
func TestWebFails(t *testing.T) {
	r, id := localRig(t)
	for name, answer := range map[string]string{"not HTTP": "SSH-2.0-x\r\n", "nothing": "", "a header without end": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 128<<10)} {
		l := listen(t, func(c net.Conn) {
			bufio.NewReader(c).ReadString('\n')
			io.WriteString(c, answer)
			c.Close()
		})
		r.bind(id, l)
		if status, text := r.ask(token, "POST", "/r/"+id+"/", ""); status != http.StatusBadGateway || errorOf(t, text).Code != sandbar.Unavailable {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	r.bind(id, testenv.FreeAddress(t))
	if status, text := r.ask(token, "GET", "/r/"+id+"/", ""); status != http.StatusBadGateway || errorOf(t, text).Code != sandbar.Unavailable {
		t.Errorf("closed: %d %s", status, text)
	}
}

// listen serves connections on loopback until the test ends.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// TestWebUpgrade tests that an upgrade passes, as WebSockets need it.
func TestWebUpgrade(t *testing.T) {
	r, id := localRig(t)
	r.bind(id, listen(t, func(c net.Conn) {
		defer c.Close()
		in := bufio.NewReader(c)
		if _, err := http.ReadRequest(in); err != nil {
			return
		}
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello ")
		io.Copy(c, in)
	}))
	_, body, conn := r.upgradeTo(secret, "/r/"+id+"/ws", "websocket")
	if conn == nil {
		t.Fatal(body)
	}
	fmt.Fprint(conn, "world")
	b := make([]byte, len("hello world"))
	if _, err := io.ReadFull(conn.in, b); err != nil || string(b) != "hello world" {
		t.Errorf("%q, %v", b, err)
	}
	// A shutdown does not wait for the connection.
	down := make(chan error, 1)
	go func() { down <- r.server.Shutdown(context.Background()) }()
	if _, err := conn.in.ReadByte(); err == nil {
		t.Error("the connection goes on")
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

// TestWebDuplex tests that a program can answer before it has the whole request.
func TestWebDuplex(t *testing.T) {
	r, id := localRig(t)
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		if q.ContentLength > 0 {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		for in := bufio.NewScanner(q.Body); in.Scan(); http.NewResponseController(w).Flush() {
			fmt.Fprintln(w, "got", in.Text())
		}
	}))
	defer program.Close()
	r.bind(id, program.Listener.Addr().String())
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "POST /r/%s/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nTransfer-Encoding: chunked\r\n\r\n", id, token)
	io.WriteString(c, "4\r\none\n\r\n")
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

	// A client learns that its connection ends because the server does not read the rest.
	if c, err = net.Dial("tcp", r.addr); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "POST /r/%s/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 1000000\r\n\r\n", id, token)
	if resp, err = http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
		t.Errorf("%+v, %v", resp, err)
	}
}

// TestTunnel tests that a tunnel is exact in both directions, and that one direction can end before
// the other.
func TestTunnel(t *testing.T) {
	r, id := localRig(t)
	const size = 3 << 20
	address := listen(t, func(c net.Conn) {
		defer c.Close()
		n, _ := io.Copy(io.Discard, c) // to the end of the client's data
		fmt.Fprintf(c, "%d bytes", n)
	})
	_, port, _ := net.SplitHostPort(address)
	_, body, conn := r.upgradeTo(secret, "/sandboxes/"+id+"/ports/"+port, wire.UpgradeTCP)
	if conn == nil {
		t.Fatal(body)
	}
	if _, err := conn.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := conn.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn.in); err != nil || string(b) != strconv.Itoa(size)+" bytes" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestTunnelEnds(t *testing.T) {
	r, id := localRig(t)
	closed := make(chan struct{}, 2)
	address := listen(t, func(c net.Conn) {
		defer c.Close()
		io.WriteString(c, "x")
		c.SetReadDeadline(time.Now().Add(patience))
		io.Copy(io.Discard, c)
		closed <- struct{}{}
	})
	_, port, _ := net.SplitHostPort(address)
	open := func() *upgraded {
		_, body, conn := r.upgradeTo(token, "/sandboxes/"+id+"/ports/"+port, wire.UpgradeTCP)
		if conn == nil {
			t.Fatal(body)
		}
		if b, err := conn.in.ReadByte(); err != nil || b != 'x' {
			t.Fatalf("%q, %v", b, err)
		}
		return conn
	}
	open().Close() // by the client
	<-closed
	c := open()
	if status, text := r.ask(token, "DELETE", "/sandboxes/"+id, ""); status != 204 {
		t.Errorf("%d %s", status, text)
	}
	<-closed // by the sandbox's end
	if _, err := c.in.ReadByte(); err == nil {
		t.Error("the client's side goes on")
	}

	id = string(r.create("{}").ID)
	_, port, _ = net.SplitHostPort(testenv.FreeAddress(t))
	if status, body, _ := r.upgradeTo(token, "/sandboxes/"+id+"/ports/"+port, wire.UpgradeTCP); status != 503 || errorOf(t, body).Code != sandbar.Unavailable {
		t.Errorf("a port where nothing listens: %d %s", status, body)
	}
}

// TestDir tests that a directory is listed in pages, sorted by name, with the types of the entries.
func TestDir(t *testing.T) {
	r, id := localRig(t)
	s, err := r.engine.Get(context.Background(), sandbar.ID(id))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Exec(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c",
		"mkdir d d/sub; cd d; i=0; while [ $i -lt 1100 ]; do : >$(printf f%04d $i); i=$((i+1)); done; ln -s /etc link; mkfifo pipe; chmod 640 f0000; echo hi >f0001"}},
		nil, sandbar.Limits{}, nopSink{}); err != nil {
		t.Fatal(err)
	}
	var all []wire.Entry
	for more := true; more; {
		after := ""
		if len(all) > 0 {
			after = all[len(all)-1].Name
		}
		status, text := r.ask(token, "GET", "/sandboxes/"+id+"/dir?path=d&after="+after, "")
		var d wire.Dir
		if decodeInto(text, &d); status != 200 || len(d.Entries) == 0 || len(d.Entries) > maxPage {
			t.Fatalf("%d %.200s", status, text)
		}
		all, more = append(all, d.Entries...), d.More
	}
	if len(all) != 1103 {
		t.Fatalf("%d entries", len(all))
	}
	types := map[string]string{}
	for _, e := range all {
		types[e.Name] = e.Type
	}
	if all[0].Mode != "0640" || all[1].Size != 3 || types["sub"] != wire.TypeDir || types["link"] != wire.TypeLink || types["pipe"] != wire.TypeOther || types["f0000"] != wire.TypeFile {
		t.Errorf("%+v, %v", all[:2], types)
	}
}

// A watch streams events until its directory is gone, and ends with the sandbox.
func TestWatch(t *testing.T) {
	r, id := localRig(t)
	s, err := r.engine.Get(context.Background(), sandbar.ID(id))
	if err != nil {
		t.Fatal(err)
	}
	sh := func(script string) {
		t.Helper()
		if _, err := s.Exec(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", script}}, nil, sandbar.Limits{}, nopSink{}); err != nil {
			t.Fatal(err)
		}
	}
	sh("mkdir d kept")
	watch := func(query string) (*bufio.Reader, io.Closer) {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+r.addr+"/sandboxes/"+id+"/watch?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(q)
		if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/x-ndjson" {
			t.Fatal(resp, err)
		}
		return bufio.NewReader(resp.Body), resp.Body
	}
	expect := func(in *bufio.Reader, want string) {
		t.Helper()
		if line, err := in.ReadString('\n'); line != want || want == "" && err != io.EOF {
			t.Errorf("%q, %v; want %q", line, err, want)
		}
	}
	events, body := watch("path=d&recursive=true")
	sh(`mkdir 'd/a"b'; : >'d/a"b/f'`)
	expect(events, `{"op":"create","path":"a\"b"}`+"\n")
	expect(events, `{"op":"create","path":"a\"b/f"}`+"\n")
	sh("rm -r d")
	for line := ""; line != `{"op":"remove","path":""}`+"\n"; { // a poll may see some entries gone before the directory
		if line, err = events.ReadString('\n'); err != nil || !strings.HasPrefix(line, `{"op":"remove","path":"`) {
			t.Fatalf("%q, %v; want removals until the directory's", line, err)
		}
	}
	expect(events, "")
	body.Close()
	for query, code := range map[string]sandbar.Code{
		"path=none": sandbar.NotFound, "path=": sandbar.Invalid, "path=d&path=d": sandbar.Invalid, "depth=1": sandbar.Invalid, "recursive=2": sandbar.Invalid,
	} {
		if _, text := r.ask(token, "GET", "/sandboxes/"+id+"/watch?"+query, ""); errorOf(t, text).Code != code {
			t.Errorf("%s: %s", query, text)
		}
	}
	// A daemon that ends is not the end of the directory.
	other, _ := localRig(t)
	unfinished, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+other.addr+"/sandboxes/"+string(other.create("{}").ID)+"/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	unfinished.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(unfinished)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	other.server.Close()
	if b, err := io.ReadAll(resp.Body); err != io.ErrUnexpectedEOF {
		t.Errorf("after the server's end: %q, %v", b, err)
	}
	events, body = watch("path=kept")
	defer body.Close()
	if status, _ := r.ask(token, "DELETE", "/sandboxes/"+id, ""); status != 204 {
		t.Error(status)
	}
	if line, err := events.ReadString('\n'); err == nil && !strings.Contains(line, `"code":"gone"`) && !strings.Contains(line, `"op":"remove"`) {
		t.Errorf("after the sandbox's end: %q, %v", line, err)
	}
}
