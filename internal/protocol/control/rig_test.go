package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
	"github.com/sandbar-dev/sandbar/internal/server/httpd"
	"github.com/sandbar-dev/sandbar/internal/server/tenant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds failing tests. No test depends on a duration.
const patience = 30 * time.Second

const (
	token  = "the-daemons-own-token"
	secret = "the-secret-of-one-sandbox"
)

// hasty is a client with a rate that one request exhausts.
const hasty, hastyToken = "hasty", "hasty-token"

// The tokens of two tenants: one that may only read, in the default tenant, and a user of another.
const readerToken, strangerToken = "of-reader", "of-stranger"

// allowedOrigin is the origin of a page that may call the daemon.
const allowedOrigin = "https://app.example"

// openTokens returns the tokens of tenants.
func openTokens(t testing.TB) *tenant.Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), tenant.FileName)
	for _, x := range []tenant.Token{{Name: "reader", Tenant: sandbar.DefaultTenant, Role: sandbar.RoleReadOnly, Hash: tenant.HashOf(readerToken)},
		{Name: "stranger", Tenant: "other", Role: sandbar.RoleUser, Hash: tenant.HashOf(strangerToken)}} {
		if err := tenant.Create(path, x); err != nil {
			t.Fatal(err)
		}
	}
	store := tenant.Open(path, nil)
	t.Cleanup(store.Close)
	return store
}

// rig is a server behind a real listener, over an engine and a driver.
type rig struct {
	t      testing.TB
	driver *faulty.Driver // nil over another driver
	engine *engine.Engine
	server *Server
	addr   string
	paused string // the directory of paused sandboxes

	mu        sync.Mutex
	executors []*fakeExecutor
}

func newRig(t testing.TB, o Options, d driver.Driver) *rig {
	t.Helper()
	r := &rig{t: t, paused: t.TempDir()}
	if d == nil {
		r.driver = faulty.New()
		d = r.driver
	}
	var err error
	c := engine.Config{Driver: d, AllowDegraded: true, PausedDir: r.paused, Clients: map[string]engine.ClientLimits{hasty: {Rate: 0.001, Burst: 1}}}
	if r.engine, err = engine.New(c); err != nil {
		t.Fatal(err)
	}
	o.NewExecutor = r.newExecutor
	r.server = New(r.engine, o)
	listener, err := httpd.Listen(httpd.Options{Listen: "127.0.0.1:0", Token: token, Tokens: openTokens(t), AllowedOrigins: []string{allowedOrigin}, Clients: map[string]string{hasty: hastyToken}, Routes: map[string]http.Handler{
		"/sandboxes": r.server, "/sandboxes/": r.server, "/koyeb-sandbox/": r.server, "/r/": r.server, "/v1/": r.server, "/openapi.json": r.server}, Hosts: []httpd.HostHandler{r.server}})
	if err != nil {
		t.Fatal(err)
	}
	r.addr = strings.TrimPrefix(listener.URL(), "http://")
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
		if r.driver != nil {
			if err := r.driver.Leaks(); err != nil {
				t.Error(err)
			}
		}
		for _, x := range r.executors {
			if !x.isClosed() {
				t.Error("an executor was not closed")
			}
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return r
}

// fakeExecutor records its requests, and has a bound port.
type fakeExecutor struct {
	sandbox *engine.Sandbox
	mu      sync.Mutex
	port    int
	closed  bool
}

func (r *rig) newExecutor(s *engine.Sandbox) Executor {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := &fakeExecutor{sandbox: s}
	r.executors = append(r.executors, x)
	return x
}

func (r *rig) made() []*fakeExecutor {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.executors)
}

func (x *fakeExecutor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/process_logs_streaming") {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	if port, ok := strings.CutPrefix(r.URL.Path, "/bind/"); ok {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.port, _ = strconv.Atoi(port)
		return
	}
	body, _ := io.ReadAll(r.Body)
	io.WriteString(w, string(x.sandbox.ID())+" "+r.Method+" "+r.URL.EscapedPath()+"?"+r.URL.RawQuery+" "+string(body))
}

func (x *fakeExecutor) Bound() (int, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.port, x.port != 0
}

func (x *fakeExecutor) Close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
}

func (x *fakeExecutor) isClosed() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.closed
}

// ask sends a request and returns the status and the body. headers are pairs.
func (r *rig) ask(bearer, method, path, body string, headers ...string) (int, string) {
	r.t.Helper()
	status, text, _ := r.askAll(bearer, method, path, body, headers...)
	return status, text
}

func (r *rig) askAll(bearer, method, path, body string, headers ...string) (int, string, http.Header) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, method, "http://"+r.addr+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if bearer != "" {
		q.Header.Set("Authorization", "Bearer "+bearer)
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Add(headers[i], headers[i+1])
	}
	resp, err := new(http.Transport{DisableKeepAlives: true}).RoundTrip(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

// create makes a sandbox.
func (r *rig) create(body string) wire.Sandbox {
	r.t.Helper()
	status, text := r.ask(token, "POST", "/sandboxes", body)
	var s wire.Sandbox
	if err := json.Unmarshal([]byte(text), &s); status != http.StatusCreated || err != nil {
		r.t.Fatalf("%d %s (%v)", status, text, err)
	}
	return s
}

// errorOf reads an error body.
func errorOf(t testing.TB, body string) wire.ErrorDetail {
	t.Helper()
	var e wire.Error
	if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error.Code == "" || e.Error.Message == "" {
		t.Errorf("%q is not an error (%v)", body, err)
	}
	return e.Error
}

// upgradeTo opens an upgraded connection; conn is nil if it was refused.
func (r *rig) upgradeTo(bearer, path, protocol string) (status int, body string, conn *upgraded) {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	var b bytes.Buffer
	b.WriteString("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: " + protocol + "\r\nAuthorization: Bearer " + bearer + "\r\n\r\n")
	if _, err := c.Write(b.Bytes()); err != nil {
		r.t.Fatal(err)
	}
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text), nil
	}
	return resp.StatusCode, "", &upgraded{c, in}
}

// await polls until ok.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so: %s", what)
		}
	}
}

// running runs a program that waits in the sandbox until the sandbox ends.
func (r *rig) running(id sandbar.ID, args ...string) {
	r.t.Helper()
	s, err := r.engine.Get(context.Background(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := s.Start(context.Background(), sandbar.Cmd{Args: args}, nil, sandbar.Limits{}); err != nil {
		r.t.Fatal(err)
	}
}

// nopSink discards output.
type nopSink struct{}

func (nopSink) Started()                   {}
func (nopSink) Output(sandbar.Chunk) error { return nil }

// decodeInto decodes JSON; on an error v is unchanged.
func decodeInto(text string, v any) { json.Unmarshal([]byte(text), v) }
