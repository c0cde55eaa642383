package escapesuite

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// listenerCases are cases 67 to 72, 76 and 79: access to the daemon's listener, and misuse of
// connections.
func listenerCases() []Case {
	return []Case{
		daemonCase("67-foreign-page", "a page of another origin posts to the daemon", foreignPage),
		daemonCase("68-rebinding", "DNS rebinding: a foreign host name for the daemon's address", rebinding),
		daemonCase("69-foreign-socket", "a page of another origin opens a WebSocket", foreignSocket),
		daemonCase("70-frames", "giant, endless, unmasked and very many frames", frames),
		daemonCase("71-slow", "headers and bodies that never end", slow),
		daemonCase("72-stalled-reader", "a client that stops reading", stalledReader),
		daemonCase("76-tokens", "wrong, empty, doubled and misplaced tokens", tokens),
		daemonCase("79-debugging", "metrics without a token, and debugging endpoints", debugging),
	}
}

const evil = "https://evil.example"

func foreignPage(ctx context.Context, _ *Suite, d *daemon) error {
	for _, token := range []bool{false, true} { // a browser may have stored the token
		change := func(r *http.Request) {
			r.Header.Set("Origin", evil)
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Content-Type", "text/plain")
			if !token {
				r.Header.Del("Authorization")
			}
		}
		if err := d.refused(ctx, "POST of a foreign page", "POST", "/sandboxes", "{}", change, 401, 403); err != nil {
			return err
		}
	}
	ids, err := d.live(ctx)
	if err == nil && len(ids) > 0 {
		err = escaped("a foreign page has created a sandbox")
	}
	return err
}

func rebinding(ctx context.Context, _ *Suite, d *daemon) error {
	for _, host := range []string{"evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "2130706433.", "evil.example@127.0.0.1"} {
		change := func(r *http.Request) {
			r.Host = host
			r.Header.Set("Origin", "http://"+host)
		}
		if err := d.refused(ctx, "Host "+host, "GET", "/sandboxes", nil, change, 400, 403, 421); err != nil {
			return err
		}
	}
	return nil
}

func foreignSocket(ctx context.Context, _ *Suite, d *daemon) error {
	for _, h := range []http.Header{
		{"Origin": {evil}, "Authorization": {"Bearer " + d.token}}, {"Origin": {"null"}, "Authorization": {"Bearer " + d.token}},
		{"Origin": {d.base}}, {}, {"Authorization": {"Bearer x"}}, {"Cookie": {"token=" + d.token}},
	} {
		ws, resp, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(d.base, "http")+"/ws", &websocket.DialOptions{HTTPHeader: h})
		if err == nil {
			ws.CloseNow()
			return escaped("a WebSocket was opened with Origin %q and the token %v", h.Get("Origin"), h.Get("Authorization") != "")
		}
		if resp == nil || (resp.StatusCode != 401 && resp.StatusCode != 403) {
			return fmt.Errorf("the upgrade: %w", err)
		}
	}
	return nil
}

// upgrade opens a WebSocket without a library, so that the caller can send malformed frames.
func (d *daemon) upgrade(ctx context.Context) (net.Conn, error) {
	c, err := d.raw(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(c, "GET /ws HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", d.address(), d.token)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		c.Close()
		return nil, fmt.Errorf("the upgrade was refused: %v", err)
	}
	return c, nil
}

// closeTimeout is the time within which the daemon must close the connection of a misbehaving
// client.
const closeTimeout = 70 * time.Second

// expectClose writes until the daemon closes the connection. After most bytes it only waits for
// that.
func expectClose(c net.Conn, most int64, write func(io.Writer) (int, error)) error {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(closeTimeout))
	closed := make(chan error, 1)
	go func() { // reads all data, so that the daemon's writes do not block
		_, err := io.Copy(io.Discard, c)
		closed <- err
	}()
	for sent := int64(0); sent < most; {
		n, err := write(c)
		if sent += int64(n); err != nil {
			break
		}
	}
	if err := <-closed; isTimeout(err) {
		return escaped("the daemon has not closed the connection after %v", closeTimeout)
	}
	return nil
}

// header returns the header of a masked frame of a client (RFC 6455).
func header(first byte, size int) []byte {
	return append([]byte{first, 0x80 | 127, 0, 0, 0, 0, byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}, 0, 0, 0, 0)
}

func frames(ctx context.Context, _ *Suite, d *daemon) error {
	before := d.memory()
	block := bytes.Repeat([]byte(" "), 64<<10)
	for _, attack := range []struct {
		what  string
		most  int64
		first []byte
		each  []byte
	}{
		{"a frame of 2 GB", 256 << 20, header(0x81, 1<<31-1), block},
		{"endless fragments", 256 << 20, append(header(0x01, len(block)), block...), append(header(0x00, len(block)), block...)},
		{"an unmasked frame", 64 << 20, []byte{0x81, 2, '{', '}'}, block},
		{"an unknown opcode", 64 << 20, header(0x87, 1), block},
		{"a control frame that is too long", 64 << 20, header(0x89, 1<<20), block},
	} {
		c, err := d.upgrade(ctx)
		if err != nil {
			return err
		}
		first := attack.first
		err = expectClose(c, attack.most, func(w io.Writer) (int, error) {
			if first != nil {
				_, err := w.Write(first)
				first = nil
				return 0, err
			}
			return w.Write(attack.each)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", attack.what, err)
		}
	}
	if err := pings(ctx, d); err != nil {
		return err
	}
	if grown := d.memory() - before; grown > maxGrowth {
		return escaped("the daemon grew by %d MiB", grown>>20)
	}
	return nil
}

// pings sends many pings and reads no pong.
func pings(ctx context.Context, d *daemon) error {
	c, err := d.upgrade(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	flood := bytes.Repeat([]byte{0x89, 0x80, 0, 0, 0, 0}, 10_000)
	for range 100 {
		if _, err := c.Write(flood); err != nil {
			break // the write blocks or the connection is closed: both are contained
		}
	}
	return d.healthy(ctx)
}

// slowClients is the number of connections of a slow attacker.
const slowClients = 64

func slow(ctx context.Context, _ *Suite, d *daemon) error {
	id, err := d.create(ctx, "{}")
	if err != nil {
		return err
	}
	post := "Host: " + d.address() + "\r\nAuthorization: Bearer " + d.token + "\r\nContent-Length: 1000\r\n\r\n{"
	begins := []string{
		"GET /health HTT",
		"GET /health HTTP/1.1\r\nHost: " + d.address() + "\r\nX-A: b\r\n",
		"POST /sandboxes HTTP/1.1\r\n" + post,
		"POST /sandboxes/" + id + "/executor/run HTTP/1.1\r\n" + post,
	}
	var wait sync.WaitGroup
	late := make(chan string, slowClients)
	for i := range slowClients {
		c, err := d.raw(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		begin := begins[i%len(begins)]
		wait.Go(func() {
			_, _ = io.WriteString(c, begin)
			_ = c.SetReadDeadline(time.Now().Add(closeTimeout))
			if _, err := io.Copy(io.Discard, c); isTimeout(err) {
				late <- begin
			}
		})
	}
	// The daemon serves other clients meanwhile.
	if err := d.healthy(ctx); err != nil {
		return err
	}
	wait.Wait()
	select {
	case begin := <-late:
		return escaped("a client that sent only %q still has its connection", strings.ReplaceAll(begin, d.token, "…"))
	default:
		return nil
	}
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

func stalledReader(ctx context.Context, _ *Suite, d *daemon) error {
	before := d.memory()
	for range 4 {
		c, err := d.dial(ctx)
		if err != nil {
			return err
		}
		defer c.ws.CloseNow()
		if err := c.send(ctx, execution{ID: "e", Language: "shell", Code: "exec yes", Timeout: 30 * time.Second, Output: outputCap}.text()); err != nil {
			return err
		}
	}
	// The daemon serves another client meanwhile.
	o, err := d.shell(ctx, execution{Code: "echo here"})
	switch {
	case err != nil:
		return err
	case o.output.String() != "here\n":
		return escaped("a client that does not read affected another: status %q, error %q", o.status, o.code)
	case d.memory()-before > maxGrowth:
		return escaped("the daemon grew by %d MiB", (d.memory()-before)>>20)
	}
	return nil
}

func tokens(ctx context.Context, _ *Suite, d *daemon) error {
	for what, change := range map[string]func(*http.Request){
		"no token":              func(r *http.Request) { r.Header.Del("Authorization") },
		"an empty token":        func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") },
		"spaces for a token":    func(r *http.Request) { r.Header.Set("Authorization", "Bearer    ") },
		"half of the token":     func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+d.token[:len(d.token)/2]) },
		"more than the token":   func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+d.token+"x") },
		"another scheme":        func(r *http.Request) { r.Header.Set("Authorization", "Basic "+d.token) },
		"two tokens":            func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer x", "Bearer " + d.token} },
		"the token in a cookie": func(r *http.Request) { r.Header.Del("Authorization"); r.Header.Set("Cookie", "token="+d.token) },
		"the token in the URL": func(r *http.Request) {
			r.Header.Del("Authorization")
			r.URL.RawQuery = "token=" + d.token + "&access_token=" + d.token
		},
		"another case of the path": func(r *http.Request) { r.Header.Del("Authorization"); r.URL.Path = "/SANDBOXES" },
	} {
		if err := d.refused(ctx, what, "GET", "/sandboxes", nil, change, 400, 401, 404); err != nil {
			return err
		}
	}
	text, _ := d.log.look()
	if strings.Contains(text, d.token) {
		return escaped("the daemon's log contains the token")
	}
	return nil
}

func debugging(ctx context.Context, _ *Suite, d *daemon) error {
	anonymous := func(r *http.Request) { r.Header.Del("Authorization") }
	if err := d.refused(ctx, "metrics without the token", "GET", "/metrics", nil, anonymous, 401); err != nil {
		return err
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/vars", "/console", "/admin", "/.env", "/..%2f..%2fetc/passwd"} {
		if err := d.refused(ctx, path, "GET", path, nil, nil, 400, 401, 404, 405); err != nil {
			return err
		}
	}
	// Names that a client chooses must not become labels.
	name := "x" + strings.ToLower(rand.Text())
	if _, err := d.shell(ctx, execution{Language: name, ID: name, Code: name}); err != nil {
		return err
	}
	a, err := d.request(ctx, "GET", "/metrics", nil)
	if err == nil && bytes.Contains(a.body, []byte(name)) {
		err = escaped("the metrics contain a name that a client chose")
	}
	return err
}
