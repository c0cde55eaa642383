package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// browser is a client with the console's session.
type browser struct {
	t      *testing.T
	d      *daemon
	cookie string
}

// logIn logs in at a daemon.
func logIn(t *testing.T, d *daemon, token string) *browser {
	t.Helper()
	b := &browser{t: t, d: d}
	resp, body := b.ask("POST", "/console/login", `{"token":"`+token+`"}`)
	cookies := resp.Cookies()
	if resp.StatusCode != http.StatusNoContent || len(cookies) != 1 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	b.cookie = cookies[0].Name + "=" + cookies[0].Value
	return b
}

// ask sends a request of the daemon's page.
func (b *browser) ask(method, path, body string) (*http.Response, string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, method, "http://"+b.d.addr+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	q.Header.Set("Sandbar-Console", "1")
	q.Header.Set("Origin", "http://"+b.d.addr)
	if b.cookie != "" {
		q.Header.Set("Cookie", b.cookie)
	}
	resp, err := http.DefaultTransport.RoundTrip(q)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp, string(text)
}

// terminal opens a terminal of a sandbox with the headers of a page of an origin. It returns the
// status of a refusal.
func (b *browser) terminal(id, origin string) (*terminal, int) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, "ws://"+b.d.addr+"/v1/sandboxes/"+id+"/exec", &websocket.DialOptions{Subprotocols: []string{wire.UpgradeExec},
		HTTPHeader: http.Header{"Cookie": {b.cookie}, "Origin": {origin}}})
	if err != nil {
		if resp == nil {
			b.t.Fatal(err)
		}
		return nil, resp.StatusCode
	}
	ws.SetReadLimit(2 * wire.MaxFrame)
	b.t.Cleanup(func() { ws.CloseNow() })
	return &terminal{t: b.t, ws: ws}, 0
}

// terminal is a program with a terminal over a WebSocket.
type terminal struct {
	t      *testing.T
	ws     *websocket.Conn
	shown  bytes.Buffer
	result *wire.Result
}

func (m *terminal) send(frame []byte) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	if err := m.ws.Write(ctx, websocket.MessageBinary, frame); err != nil {
		m.t.Fatal(err)
	}
}

// until reads until the terminal shows a text, or until the end for "".
func (m *terminal) until(text string) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	for text == "" || !strings.Contains(m.shown.String(), text) {
		_, message, err := m.ws.Read(ctx)
		if err != nil {
			if text != "" || m.result == nil {
				m.t.Fatalf("the terminal ended: %v; it has shown %q", err, m.shown.String())
			}
			return
		}
		for in := wire.NewReader(bytes.NewReader(message)); ; {
			k, data, err := in.Next()
			if err == io.EOF {
				break
			}
			switch {
			case err != nil:
				m.t.Fatal(err)
			case k == wire.Stdout:
				m.shown.Write(data)
			case k == wire.Ended:
				if err := json.Unmarshal(data, &m.result); err != nil {
					m.t.Fatal(err)
				}
			case k == wire.Failed:
				m.t.Fatalf("%s", data)
			}
		}
	}
}

// A browser logs in, makes a sandbox, and uses a terminal in it: what it types is shown, the
// program learns of a new size, and a cancel ends it. Pages of other origins and tokens of other
// rights get no terminal.
func TestConsoleTerminal(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Freezer)
	dir := t.TempDir()
	tokens, others := tokensOf(t, dir, "a"), tokensOf(t, dir, "b")
	d := newDaemon(t, dir)
	own := "http://" + d.addr
	b := logIn(t, d, tokens["user"])
	resp, body := b.ask("POST", "/v1/sandboxes", "{}")
	var box struct{ ID string }
	if err := json.Unmarshal([]byte(body), &box); err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	m, status := b.terminal(box.ID, own)
	if m == nil {
		t.Fatal(status)
	}
	x, err := json.Marshal(wire.Exec{Args: []string{"sh", "-c", `trap 'stty size' WINCH; stty size; read line; echo "got $line"; while :; do sleep 0.05; done`},
		Stdin: true, Terminal: &wire.TerminalSize{Rows: 24, Cols: 80}})
	if err != nil {
		t.Fatal(err)
	}
	m.send(wire.Append(nil, wire.Request, x))
	m.until("24 80")
	m.send(wire.Append(nil, wire.Stdin, []byte("hello\r")))
	m.until("got hello")
	if !strings.Contains(m.shown.String(), "hello\r\ngot hello") {
		t.Errorf("what was typed is not shown: %q", m.shown.String())
	}
	m.send(wire.AppendResize(nil, wire.TerminalSize{Rows: 30, Cols: 100}))
	m.until("30 100")
	m.send(wire.Append(nil, wire.Cancel, nil))
	if m.until(""); m.result.Outcome != "cancelled" {
		t.Errorf("%+v", m.result)
	}
	for _, tc := range []struct {
		name, token, origin string
		want                int
	}{
		{"a foreign page", tokens["user"], "https://evil.example", 403},
		{"a preview's page", tokens["user"], "http://8000-" + box.ID[3:] + ".localhost", 403},
		{"a role that may only read", tokens["read-only"], own, 403},
		{"a user of another tenant", others["user"], own, 404},
		{"an admin of another tenant", others["admin"], own, 404},
	} {
		if m, status := logIn(t, d, tc.token).terminal(box.ID, tc.origin); m != nil || status != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, status, tc.want)
		}
	}
	if resp, text := b.ask("DELETE", "/v1/sandboxes/"+box.ID, ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	d.endClean(t)
}

// With console: false there are no paths of the console, and its cookie counts for nothing.
func TestConsoleOff(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	dir := t.TempDir()
	d := newDaemon(t, dir)
	b := logIn(t, d, token)
	if resp, text := b.ask("GET", "/v1/sandboxes", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	d.endClean(t)
	b.d = newDaemon(t, dir, "SANDBAR_CONSOLE=false")
	for _, path := range []string{"/v1/sandboxes", "/console/session", "/"} {
		if resp, text := b.ask("GET", path, ""); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", path, resp.StatusCode, text)
		}
	}
	if resp, text := b.ask("POST", "/console/login", `{"token":"`+token+`"}`); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	b.d.endClean(t)
}
