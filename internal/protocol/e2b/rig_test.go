package e2b

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
	"github.com/sandbar-dev/sandbar/internal/server/httpd"
	"github.com/sandbar-dev/sandbar/internal/server/tenant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds failing tests. No test depends on a duration.
const patience = 30 * time.Second

const apiKey = "e2b_0123456789012345678901234567890123456789"

// rig is a server behind a real listener, over an engine and a faulty driver.
type rig struct {
	t      testing.TB
	driver *faulty.Driver
	engine *engine.Engine
	server *Server
	url    string
	key    string // of requests to the control plane
	tokens string // the file of tenants' tokens
}

func newRig(t testing.TB, o Options, prepare func(*faulty.Driver)) *rig {
	t.Helper()
	r := &rig{t: t, driver: faulty.New(), key: apiKey, tokens: filepath.Join(t.TempDir(), tenant.FileName)}
	if prepare != nil {
		prepare(r.driver)
	}
	var err error
	if r.engine, err = engine.New(engine.Config{Driver: r.driver, AllowDegraded: true, PausedDir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	r.server = New(r.engine, o)
	store := tenant.Open(r.tokens, nil)
	t.Cleanup(store.Close)
	listener, err := httpd.Listen(httpd.Options{Listen: "127.0.0.1:0", Token: apiKey, Tokens: store, Hosts: []httpd.HostHandler{r.server}, Overlay: r.server})
	if err != nil {
		t.Fatal(err)
	}
	r.url = listener.URL()
	served := make(chan error, 1)
	go func() { served <- listener.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		r.server.Close()
		if err := listener.Shutdown(ctx); err != nil {
			t.Errorf("the listener's shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := r.engine.Shutdown(ctx); err != nil {
			t.Errorf("the engine's shutdown: %v", err)
		}
		if err := r.driver.Leaks(); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return r
}

// send sends one request. Headers are names and values; a Host is a header, too.
func (r *rig) send(method, path, body string, headers ...string) *http.Response {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.t.Cleanup(cancel)
	q, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Add(headers[i], headers[i+1])
		if headers[i] == "Host" {
			q.Host = headers[i+1]
		}
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp
}

// ask sends one request and reads the response.
func (r *rig) ask(method, path, body string, headers ...string) (int, string) {
	r.t.Helper()
	resp := r.send(method, path, body, headers...)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// plane asks the control plane.
func (r *rig) plane(method, path, body string) (int, string) {
	r.t.Helper()
	return r.ask(method, path, body, keyHeader, r.key)
}

// create creates a sandbox.
func (r *rig) create(body string) created {
	r.t.Helper()
	status, text := r.plane("POST", "/v2/sandboxes", body)
	var c created
	if err := json.Unmarshal([]byte(text), &c); err != nil || status != http.StatusCreated {
		r.t.Fatalf("%d %s", status, text)
	}
	return c
}

// to returns the headers of a request to a port of a sandbox.
func (c created) to(port string) []string {
	return []string{sandboxHeader, c.SandboxID, portHeader, port, tokenHeader, c.AccessToken}
}

// call makes a unary call.
func (r *rig) call(c created, method, body string) (int, string) {
	r.t.Helper()
	return r.ask("POST", "/"+method, body, append(c.to("49983"), "Content-Type", "application/json")...)
}

// messages is a stream of messages.
type messages struct {
	t    testing.TB
	body io.ReadCloser
}

// stream makes a streaming call.
func (r *rig) stream(c created, method, body string, headers ...string) messages {
	r.t.Helper()
	return r.raw(c, method, string(appendEnvelope(nil, 0, []byte(body))), headers...)
}

func (r *rig) raw(c created, method, body string, headers ...string) messages {
	r.t.Helper()
	resp := r.send("POST", "/"+method, body, append(append(c.to("49983"), "Content-Type", "application/connect+json"), headers...)...)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/connect+json" {
		r.t.Fatalf("%s: %s", method, resp.Status)
	}
	r.t.Cleanup(func() { resp.Body.Close() })
	return messages{r.t, resp.Body}
}

// next returns the next message, and whether it is the end.
func (m messages) next() (text string, end bool) {
	m.t.Helper()
	var head [headLen]byte
	if _, err := io.ReadFull(m.body, head[:]); err != nil {
		m.t.Fatal(err)
	}
	size := int64(head[1])<<24 | int64(head[2])<<16 | int64(head[3])<<8 | int64(head[4])
	b, err := io.ReadAll(io.LimitReader(m.body, size))
	if err != nil || int64(len(b)) != size {
		m.t.Fatal(err)
	}
	return string(b), head[0] == flagEnd
}

// rest returns all messages up to the end.
func (m messages) rest() []string {
	m.t.Helper()
	var all []string
	for {
		text, end := m.next()
		all = append(all, text)
		if end {
			if n, _ := io.Copy(io.Discard, m.body); n > 0 {
				m.t.Errorf("%d bytes follow the end", n)
			}
			return all
		}
	}
}

// outputOf returns the standard output of messages, and the last two: the event of the end, and the
// end envelope.
func outputOf(t testing.TB, all []string) (stdout string, end []string) {
	t.Helper()
	var out bytes.Buffer
	for _, text := range all {
		var m processMessage
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		if m.Event.Data != nil {
			out.Write(m.Event.Data.Stdout)
		}
	}
	return out.String(), all[max(0, len(all)-2):]
}
