package e2b

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/e2bservice"
)

// soon bounds operations that normally take much less, so that a hang fails the test.
const soon = 90 * time.Second

const startPath, inputPath, createPath, uploadPath = "/process.Process/Start", "/process.Process/SendInput", "/sandboxes", "/files"

// network is a network with faults between the driver and the tests' service.
type network struct {
	*httptest.Server
	service *e2bservice.Service

	mu    sync.Mutex
	fault func(w http.ResponseWriter, r *http.Request, n int, forward http.Handler) // nil: none
	count map[string]int                                                            // requests by method and path
	times map[string][]time.Time
	cuts  map[*http.Request]context.CancelFunc
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{service: shared.Service(t), count: map[string]int{}, times: map[string][]time.Time{}, cuts: map[*http.Request]context.CancelFunc{}}
	target, err := url.Parse(n.service.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	forward := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // see ports.Forward
		proxy.ServeHTTP(w, r)
	})
	n.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		name := r.Method + " " + r.URL.Path
		n.mu.Lock()
		n.count[name]++
		n.times[name] = append(n.times[name], time.Now())
		fault, number := n.fault, n.count[name]
		n.cuts[r] = cancel
		n.mu.Unlock()
		defer func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			delete(n.cuts, r)
		}()
		if out := r.WithContext(ctx); fault != nil {
			fault(w, out, number, forward)
		} else {
			forward(w, out)
		}
	}))
	n.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	n.Start()
	t.Cleanup(func() {
		n.cut()
		n.Close()
		transport.CloseIdleConnections()
		n.empty(t)
	})
	return n
}

// cut ends all connections in the middle.
func (n *network) cut() {
	n.mu.Lock()
	for _, cancel := range n.cuts {
		cancel()
	}
	n.mu.Unlock()
	n.CloseClientConnections()
}

func (n *network) inject(fault func(w http.ResponseWriter, r *http.Request, n int, forward http.Handler)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault, n.count, n.times = fault, map[string]int{}, map[string][]time.Time{}
}

func (n *network) requests(name string) []time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.times[name]
}

// empty waits until the service has no sandbox.
func (n *network) empty(t *testing.T) {
	t.Helper()
	eventually(t, "the service has no sandbox", func() bool {
		ids, err := n.service.Sandboxes()
		return err == nil && len(ids) == 0
	})
}

// eventually waits until cond returns true.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// answering answers with a status, and does not forward the request.
func answering(w http.ResponseWriter, status int, header ...string) {
	for i := 0; i < len(header); i += 2 {
		w.Header().Set(header[i], header[i+1])
	}
	w.WriteHeader(status)
	io.WriteString(w, `{"code":`+strconv.Itoa(status)+`,"message":"injected"}`)
}

// output is a writer for concurrent use.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// create creates a sandbox, which is destroyed at the test's end.
func create(t *testing.T, d *Driver) driver.Sandbox {
	t.Helper()
	b, err := d.Create(t.Context(), sandbar.NewID(), spec())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Destroy(context.Background()); err != nil {
			t.Errorf("Destroy: %v", err)
		}
	})
	return b
}

func start(t *testing.T, b driver.Sandbox, script string, out io.Writer) driver.Process {
	t.Helper()
	p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", script}}, driver.Stdio{Stdout: out})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// wait waits for the end of a program in bounded time.
func wait(t *testing.T, p driver.Process) (r sandbar.Result, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, err = p.Wait()
	}()
	select {
	case <-done:
	case <-time.After(soon):
		t.Fatal("a program does not end")
	}
	return r, err
}

// dead requires that a sandbox is reported dead, and that its calls fail.
func dead(t *testing.T, b driver.Sandbox) {
	t.Helper()
	w, _ := driver.As[driver.Watcher](b)
	select {
	case <-w.Dead():
	case <-time.After(soon):
		t.Fatal("the sandbox is not reported dead")
	}
	if _, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{}); sandbar.CodeOf(err) != sandbar.Gone {
		t.Errorf("Start in a dead sandbox: %v", err)
	}
	if _, err := b.FS().Stat(t.Context(), "/"); sandbar.CodeOf(err) != sandbar.Gone {
		t.Errorf("Stat in a dead sandbox: %v", err)
	}
}

// The network is cut in the middle of the streams. What was reported before stays; a program that
// runs is lost, and its output is a beginning of what it has written; the sandbox is dead.
func TestCutInTheMiddle(t *testing.T) {
	n := newNetwork(t)
	b := create(t, newDriver(t, n.URL))
	var whole, part output
	ended := start(t, b, "seq 1 20000; exit 7", &whole)
	if r, err := wait(t, ended); err != nil || r.ExitCode != 7 {
		t.Fatalf("%+v, %v", r, err)
	}
	running := start(t, b, "i=0; while :; do i=$((i+1)); echo $i; done", &part)
	eventually(t, "the program writes", func() bool { return len(part.String()) > 1<<20 })
	n.cut()
	if r, err := wait(t, running); err != nil || r.Outcome != sandbar.Lost {
		t.Errorf("a program in the middle of its output: %+v, %v", r, err)
	}
	if r, err := wait(t, ended); err != nil || r.ExitCode != 7 || len(strings.Fields(whole.String())) != 20000 {
		t.Errorf("a program that had ended: %+v, %v", r, err)
	}
	lines := strings.Split(part.String(), "\n")
	for i, line := range lines[:len(lines)-1] {
		if line != strconv.Itoa(i+1) {
			t.Fatalf("line %d of the output is %q", i+1, line)
		}
	}
	dead(t, b)
}

// The network is cut at each step of a creation: the error is typed and nothing is left.
func TestCutInACreation(t *testing.T) {
	n := newNetwork(t)
	for _, path := range []string{createPath, uploadPath, startPath, inputPath} {
		t.Run(strings.Trim(path, "/"), func(t *testing.T) {
			d := newDriver(t, n.URL)
			n.inject(func(w http.ResponseWriter, r *http.Request, _ int, forward http.Handler) {
				if r.URL.Path == path && r.Method == http.MethodPost {
					forward.ServeHTTP(httptest.NewRecorder(), r.WithContext(withTimeout(t, r.Context(), 3*time.Second))) // it is served, and the answer is lost
					panic(http.ErrAbortHandler)
				}
				forward.ServeHTTP(w, r)
			})
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			b, err := d.Create(ctx, sandbar.NewID(), spec())
			if err == nil && path == inputPath { // the agent's answers arrived before the cut
				dead(t, b)
				if err := b.Destroy(ctx); err != nil {
					t.Errorf("Destroy: %v", err)
				}
			} else if code := sandbar.CodeOf(err); code != sandbar.Unavailable {
				t.Errorf("%v (%s)", err, code)
			}
			if got := len(n.requests("POST " + createPath)); got != 1 {
				t.Errorf("%d creations were asked for", got)
			}
			n.inject(nil)
			n.empty(t)
		})
	}
}

func withTimeout(t *testing.T, ctx context.Context, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(ctx, d)
	t.Cleanup(cancel)
	return ctx
}

// A service that limits the rate is asked again after the time that it names, and each request is
// served once.
func TestRateLimits(t *testing.T) {
	n := newNetwork(t)
	d := newDriver(t, n.URL)
	n.inject(func(w http.ResponseWriter, r *http.Request, number int, forward http.Handler) {
		if number == 1 && r.URL.Path != startPath || number%4 == 2 && r.URL.Path == inputPath {
			answering(w, http.StatusTooManyRequests, "Retry-After", "1")
			return
		}
		forward.ServeHTTP(w, r)
	})
	b := create(t, d)
	var out output
	if r, err := wait(t, start(t, b, "echo once >> ran; cat ran", &out)); err != nil || r.Outcome != sandbar.Exited || out.String() != "once\n" {
		t.Errorf("%+v, %v: %q", r, err, out.String())
	}
	for _, name := range []string{"POST " + createPath, "POST " + uploadPath} {
		if at := n.requests(name); len(at) != 2 || at[1].Sub(at[0]) < time.Second {
			t.Errorf("%s at %v", name, at)
		}
	}
	n.inject(func(w http.ResponseWriter, r *http.Request, _ int, forward http.Handler) {
		if r.URL.Path == createPath {
			answering(w, http.StatusTooManyRequests, "Retry-After", "3600")
			return
		}
		forward.ServeHTTP(w, r)
	})
	_, err := d.Create(t.Context(), sandbar.NewID(), spec())
	if e := sandbar.AsError(err); e == nil || e.Code != sandbar.Exhausted || e.RetryAfter != time.Hour || len(n.requests("POST "+createPath)) != 1 {
		t.Errorf("%#v", e)
	}
}

// A gateway answers 502. Requests that change nothing more are repeated, others are not.
func TestBadGateway(t *testing.T) {
	n := newNetwork(t)
	d := newDriver(t, n.URL)
	n.inject(func(w http.ResponseWriter, r *http.Request, number int, forward http.Handler) {
		if number <= 2 && (r.URL.Path == uploadPath || r.Method == http.MethodDelete) {
			answering(w, http.StatusBadGateway)
			return
		}
		forward.ServeHTTP(w, r)
	})
	b, err := d.Create(t.Context(), sandbar.NewID(), spec())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.inject(func(w http.ResponseWriter, r *http.Request, _ int, forward http.Handler) {
		if r.URL.Path == createPath {
			forward.ServeHTTP(httptest.NewRecorder(), r) // the sandbox exists
			answering(w, http.StatusBadGateway)
			return
		}
		forward.ServeHTTP(w, r)
	})
	if _, err := d.Create(t.Context(), sandbar.NewID(), spec()); sandbar.CodeOf(err) != sandbar.Unavailable || len(n.requests("POST "+createPath)) != 1 {
		t.Errorf("%v", err)
	}
	n.inject(nil)
	n.empty(t)
	b = create(t, d)
	var out output
	p := start(t, b, "sleep 100", &out)
	n.inject(func(w http.ResponseWriter, r *http.Request, _ int, forward http.Handler) {
		if r.URL.Path == inputPath {
			answering(w, http.StatusBadGateway)
			return
		}
		forward.ServeHTTP(w, r)
	})
	if err := p.Signal(9); err != nil && sandbar.CodeOf(err) != sandbar.Gone {
		t.Error(err)
	}
	if r, err := wait(t, p); err != nil || r.Outcome != sandbar.Lost {
		t.Errorf("%+v, %v", r, err)
	}
	dead(t, b)
}

// A slow service: a creation ends with its caller's context, and what the service creates later is
// removed. A silent stream ends the sandbox.
func TestSlow(t *testing.T) {
	n := newNetwork(t)
	d := newDriver(t, n.URL)
	n.inject(func(w http.ResponseWriter, r *http.Request, _ int, forward http.Handler) {
		if r.URL.Path == createPath {
			select {
			case <-time.After(4 * time.Second):
			case <-r.Context().Done():
			}
		}
		forward.ServeHTTP(w, r)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := d.Create(ctx, sandbar.NewID(), spec()); sandbar.CodeOf(err) != sandbar.Timeout || time.Since(began) > 3500*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	eventually(t, "the sweeper is done", func() bool { return !d.sweeper.Owes() })
	n.inject(nil)
	n.empty(t)

	d.service.silence = 7 * time.Second // the service sends nothing for ten seconds
	b := create(t, d)
	p := start(t, b, "sleep 100", io.Discard)
	if r, err := wait(t, p); err != nil || r.Outcome != sandbar.Lost {
		t.Errorf("%+v, %v", r, err)
	}
	dead(t, b)
}

// An idle connection stays alive: the service breaks the silence.
func TestIdle(t *testing.T) {
	n := newNetwork(t)
	d := newDriver(t, n.URL)
	d.service.silence = (keepalive + 3) * time.Second
	b := create(t, d)
	time.Sleep((keepalive + 5) * time.Second)
	if r, err := wait(t, start(t, b, "exit 3", io.Discard)); err != nil || r.ExitCode != 3 {
		t.Errorf("%+v, %v", r, err)
	}
}

// The time of a sandbox is extended while it lives. The service removes it if that does not happen.
func TestTimeout(t *testing.T) {
	n := newNetwork(t)
	d := newDriver(t, n.URL)
	d.service.timeout = 6 * time.Second
	b := create(t, d)
	time.Sleep(9 * time.Second)
	p := start(t, b, "sleep 100", io.Discard)
	n.inject(func(w http.ResponseWriter, r *http.Request, _ int, forward http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/timeout") {
			answering(w, http.StatusServiceUnavailable)
			return
		}
		forward.ServeHTTP(w, r)
	})
	if r, err := wait(t, p); err != nil || r.Outcome != sandbar.Lost {
		t.Errorf("%+v, %v", r, err)
	}
	dead(t, b)
}

// Without a usable service New fails soon with a typed error, which does not have the key; nor have
// redirects.
func TestNoService(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the redirect was followed to %s", r.URL) }))
	defer elsewhere.Close()
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	serve := func(h http.HandlerFunc) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.URL
	}
	echo := func(status int) string {
		return serve(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, `{"code":1,"message":"the key is `+r.Header.Get("X-Api-Key")+`"}`)
		})
	}
	for name, c := range map[string]struct{ url, says string }{
		"closed port":           {closed.URL, "cannot be reached"},
		"unknown authority":     {untrusted.URL, "check the certificate"},
		"no TLS":                {strings.Replace(plain.URL, "http:", "https:", 1), "no secure connection"},
		"wrong key":             {echo(http.StatusUnauthorized), "check E2B_API_KEY"},
		"no service":            {echo(http.StatusNotFound), "404"},
		"not ready":             {echo(http.StatusServiceUnavailable), "503"},
		"no JSON":               {serve(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }), "not that of an E2B service"},
		"redirect":              {serve(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }), "redirects are not followed"},
		"connection is cut":     {serve(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), "cannot be reached"},
		"answer without an end": {serve(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, endless{}) }), "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			var logged output
			_, err := New(driver.Host{Options: serviceOptions(c.url), Logger: slog.New(slog.NewTextHandler(&logged, nil))}, []byte("agent"))
			if e := sandbar.AsError(err); e == nil || e.Code != sandbar.Unsupported || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
			for e := err; e != nil; e = errors.Unwrap(e) {
				if strings.Contains(e.Error(), e2bservice.Key) {
					t.Errorf("the error has the key: %v", e)
				}
			}
			if strings.Contains(logged.String(), e2bservice.Key) || time.Since(began) > soon {
				t.Errorf("after %v it logged %s", time.Since(began), logged.String())
			}
		})
	}
}

// endless is a stream of spaces.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}
