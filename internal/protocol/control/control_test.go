package control

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
	"github.com/sandbar-dev/sandbar/internal/protocol/wiretest"
)

// TestTables compares the response to every outcome and every error of the platform with a golden
// file.
func TestTables(t *testing.T) {
	wiretest.Tables(t, "testdata/tables.golden",
		func(r sandbar.Result) string {
			b, err := json.Marshal(wire.ResultOf(r))
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		},
		func(e *sandbar.Error) string {
			w := httptest.NewRecorder()
			fail(w, e)
			var body wire.Error
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body.Error.Code != e.Code || body.Error.Field != e.Field {
				t.Errorf("%s: %s (%v)", e.Code, w.Body, err)
			}
			return fmt.Sprintf("%d retry=%q", w.Code, w.Header().Get("Retry-After"))
		})
}

func TestRoute(t *testing.T) {
	for path, want := range map[string]string{
		"/sandboxes":                       "0",
		"/sandboxes/":                      "0",
		"/sandboxes/x":                     "1 x",
		"/sandboxes/x/dir":                 "2 x",
		"/sandboxes/x/exec":                "3 x",
		"/sandboxes/x/ports/80":            "4 x 80",
		"/sandboxes/x/ports/80/90":         "4 x 80/90",
		"/sandboxes/x/executor":            "5 x /",
		"/sandboxes/x/executor/":           "5 x /",
		"/sandboxes/x/executor/run":        "5 x /run",
		"/sandboxes/x/executor/a/b":        "5 x /a/b",
		"/sandboxes/x/executor/a%2Fb":      "5 x /a/b /a%2Fb",
		"/sandboxes/a%20b":                 "1 a b",
		"/koyeb-sandbox":                   "5 key /",
		"/koyeb-sandbox/run":               "5 key /run",
		"/r/x":                             "6 x /",
		"/r/x/":                            "6 x /",
		"/r/x/a/b":                         "6 x /a/b",
		"/r/x/a%2Fb":                       "6 x /a/b /a%2Fb",
		"/r/x%2Fa/b":                       "",
		"/sandboxes/x%2Fexecutor/run":      "",
		"/sandboxes/x/ports":               "",
		"/sandboxes/x/none":                "",
		"/sandboxes/x/pause":               "7 x",
		"/sandboxes/x/resume":              "8 x",
		"/sandboxes/x/fork":                "9 x",
		"/sandboxes/x/watch":               "10 x",
		"/sandboxes/x/watch/y":             "",
		"/sandboxes/x/metrics":             "15 x",
		"/sandboxes/x/renew":               "16 x",
		"/sandboxes/x/renew/y":             "",
		"/v1/events":                       "17",
		"/v1/events/":                      "",
		"/sandboxes/x/previews":            "11 x",
		"/sandboxes/x/previews/80":         "11 x 80",
		"/sandboxes/x/previews/":           "",
		"/sandboxes/x/pause/y":             "",
		"/sandboxes/x/exec/y":              "",
		"/sandboxes/x/dir/":                "",
		"/sandboxes/x/":                    "",
		"/":                                "",
		"/sandboxesx":                      "",
		"/koyeb-sandboxx":                  "",
		"/r":                               "",
		"/sandboxes/x/executor/../../y/ab": "5 x /../../y/ab",
	} {
		u, err := url.Parse(path)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if x, ok := route(&http.Request{URL: u, Header: http.Header{routingKey: {"key"}}}); ok {
			got = strings.TrimRight(fmt.Sprintf("%d %s %s %s", x.kind, x.key, x.rest, x.raw), " ")
		}
		if got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestLifecycle(t *testing.T) {
	r := newRig(t, Options{}, nil)
	a := r.create(`{"name":"first","image":"host","env":{"A":"1"},"labels":{"who":"me"},"limits":{"memory":67108864,"cpus":0.5,"timeout":1.5},"idle_timeout":60}`)
	if a.Name != "first" || a.Image != "host" || a.Labels["who"] != "me" || a.Limits.Memory != 64<<20 || a.Limits.CPUs != 0.5 || a.Limits.Timeout != 1.5 ||
		a.IdleTimeout != 60 || a.Limits.PIDs == 0 || a.Created.IsZero() || a.Enforced.Memory == "" {
		t.Errorf("made %+v", a)
	}
	if spec := r.driver.Specs()[0]; spec.Env["A"] != "1" || spec.Limits.Timeout != 1500*time.Millisecond {
		t.Errorf("the driver was asked for %+v", spec)
	}
	b := r.create("")
	_, _, most := r.engine.Limits()
	if b.Limits.Timeout.Duration() != most.Timeout || int64(b.Limits.Output) != most.Output || b.IdleTimeout != 600 {
		t.Errorf("with nothing asked for: %+v", b)
	}

	status, text := r.ask(token, "GET", "/sandboxes", "")
	var all wire.List
	if err := json.Unmarshal([]byte(text), &all); status != 200 || err != nil || len(all.Sandboxes) != 2 || all.Sandboxes[0].ID != a.ID || all.Sandboxes[0].Name != "first" {
		t.Errorf("%d %s (%v)", status, text, err)
	}
	for _, key := range []sandbar.ID{a.ID, "first"} {
		if status, text := r.ask(token, "GET", "/sandboxes/"+string(key), ""); status != 200 || !strings.Contains(text, string(a.ID)) || strings.Contains(text, `"A"`) {
			t.Errorf("%d %s", status, text)
		}
	}
	r.create(`{"name":"first"}`)
	if status, text := r.ask(token, "GET", "/sandboxes/first", ""); status != 409 || errorOf(t, text).Code != sandbar.Conflict {
		t.Errorf("a name that two have: %d %s", status, text)
	}

	r.running(a.ID, "block-until", "never")
	if status, text := r.ask(token, "DELETE", "/sandboxes/"+string(a.ID), ""); status != 204 || text != "" {
		t.Errorf("%d %s", status, text)
	}
	if n := r.driver.Counts(); n.Sandboxes != 2 || n.Processes != 0 {
		t.Errorf("when it had been removed there was %+v", n)
	}
	for _, method := range []string{"GET", "DELETE"} {
		if status, text := r.ask(token, method, "/sandboxes/"+string(a.ID), ""); status != 404 || errorOf(t, text).Code != sandbar.NotFound {
			t.Errorf("%s: %d %s", method, status, text)
		}
	}
	await(t, "the other is the first now", func() bool {
		status, _ := r.ask(token, "DELETE", "/sandboxes/first", "")
		return status == 204
	})
}

func TestBadRequests(t *testing.T) {
	r := newRig(t, Options{}, nil)
	id := string(r.create("{}").ID)
	for _, tc := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/sandboxes", `{"nmae":"x"}`, 400, `did you mean name?`},
		{"POST", "/sandboxes", `{"banana":1}`, 400, `known are image, name,`},
		{"POST", "/sandboxes", `{"limits":{"memroy":1}}`, 400, `did you mean limits.memory?`},
		{"POST", "/sandboxes", `{"name":"a","name":"b"}`, 400, `\"name\" is given twice`},
		{"POST", "/sandboxes", `{"env":{"A":"1","A":"2"}}`, 400, `env.\"A\" is given twice`},
		{"POST", "/sandboxes", `{"limits":{"pids":5,"pids":6}}`, 400, `\"limits.pids\" is given twice`},
		{"POST", "/sandboxes", `{"env":{"A":1}}`, 400, `env.\"A\" must be a string`},
		{"POST", "/sandboxes", `{"env":[]}`, 400, `env must be an object of strings`},
		{"POST", "/sandboxes", `{"env":{"A=B":""}}`, 400, `no \"=\"`},
		{"POST", "/sandboxes", `{"name":7}`, 400, `name must be a string`},
		{"POST", "/sandboxes", `{"name":"a/b"}`, 400, `no \"/\"`},
		{"POST", "/sandboxes", `{"name":"a\u001bb"}`, 400, `visible characters`},
		{"POST", "/sandboxes", `{"name":"` + id + `"}`, 400, `not the form of an id`},
		{"POST", "/sandboxes", `{"limits":{"memory":"1GiB"}}`, 400, `limits.memory must be a whole number of bytes, or \"unlimited\"`},
		{"POST", "/sandboxes", `{"limits":{"memory":1.5}}`, 400, `whole number`},
		{"POST", "/sandboxes", `{"limits":{"memory":-1}}`, 400, `whole number`},
		{"POST", "/sandboxes", `{"limits":{"memory":1}}`, 400, `memory`},
		{"POST", "/sandboxes", `{"limits":{"timeout":"unlimited"}}`, 400, `timeout`},
		{"POST", "/sandboxes", `{"limits":[]}`, 400, `limits is not a JSON object`},
		{"POST", "/sandboxes", `{"idle_timeout":601}`, 400, `from 1s to 10m0s`},
		{"POST", "/sandboxes", `{"idle_timeout":0.5}`, 400, `from 1s to 10m0s`},
		{"POST", "/sandboxes", `{"idle_timeout":"unlimited"}`, 400, `from 1s to 10m0s`},
		{"POST", "/sandboxes", `{"allow_degraded":"yes"}`, 400, `true or false`},
		{"POST", "/sandboxes", `{"cold":"yes"}`, 400, `true or false`},
		{"POST", "/sandboxes", `{"secret":"short-secret"}`, 400, `16 to 4096 visible ASCII characters`},
		{"POST", "/sandboxes", `{"secret":"0123456789 abcdef"}`, 400, `visible ASCII`},
		{"POST", "/sandboxes", `[]`, 400, `not a JSON object`},
		{"POST", "/sandboxes", `{`, 400, `not a JSON object`},
		{"POST", "/sandboxes", `{"name":}`, 400, `not valid JSON at byte`},
		{"POST", "/sandboxes", `{} {}`, 400, `something after`},
		{"POST", "/sandboxes", "\xef\xbb\xbf{}", 400, `not valid JSON`},
		{"POST", "/sandboxes", "{\"name\":\"\xff\"}", 400, `not valid UTF-8`},
		{"POST", "/sandboxes", `{"labels":` + strings.Repeat(`{"a":`, 20000), 400, ``},
		{"POST", "/sandboxes", strings.Repeat(" ", maxBody+1), 413, `larger than`},
		{"PUT", "/sandboxes", ``, 405, `allowed: GET, POST`},
		{"POST", "/sandboxes/" + id, ``, 405, `allowed: DELETE, GET`},
		{"POST", "/sandboxes/" + id + "/exec", ``, 405, `allowed: GET`},
		{"GET", "/sandboxes/" + id + "/exec", ``, 426, `Upgrade: sandbar-exec`},
		{"GET", "/sandboxes/" + id + "/ports/80", ``, 426, `Upgrade: tcp`},
		{"GET", "/sandboxes/" + id + "/ports/0", ``, 400, `1 to 65535`},
		{"GET", "/sandboxes/" + id + "/ports/65536", ``, 400, `1 to 65535`},
		{"GET", "/sandboxes/" + id + "/ports/+80", ``, 400, `1 to 65535`},
		{"GET", "/sandboxes/" + id + "/ports/080", ``, 400, `1 to 65535`},
		{"GET", "/sandboxes/" + id + "/none", ``, 404, `nothing at`},
		{"GET", "/sandboxes/nobody", ``, 404, `there is no sandbox`},
		{"GET", "/sandboxes/" + string(sandbar.NewID()), ``, 404, `there is no sandbox`},
		{"GET", "/sandboxes/" + id + "/dir?path=/none", ``, 404, ``},
		{"GET", "/sandboxes/" + id + "/dir?path=", ``, 400, ``},
		{"GET", "/sandboxes/" + id + "/dir?path=/&path=/", ``, 400, `given twice`},
		{"GET", "/sandboxes/" + id + "/dir?pth=/", ``, 400, `known are path and after`},
		{"GET", "/koyeb-sandbox/health", ``, 400, `X-Routing-Key`},
		{"GET", "/r/" + id + "/", ``, 404, `is bound`},
	} {
		status, text := r.ask(token, tc.method, tc.path, tc.body)
		if status != tc.status || !strings.Contains(text, tc.says) {
			t.Errorf("%s %s %.60s: %d %s, want %d and %q", tc.method, tc.path, tc.body, status, text, tc.status, tc.says)
		}
		if e := errorOf(t, text); strings.Contains(e.Message+e.Fix, "short-secret") {
			t.Errorf("the secret is in %s", text)
		}
	}
	if n := len(r.engine.List(context.Background())); n != 1 {
		t.Errorf("bad requests made %d sandboxes", n-1)
	}
}

// deadlines is a ResponseWriter that records its read deadlines.
type deadlines struct {
	http.ResponseWriter
	read []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error { d.read = append(d.read, t); return nil }

// TestBodyDeadline tests that the deadline applies to the body only: a sandbox may wait for its
// slot longer than a body may take. If a body was not read to its end, the server reads the rest,
// so the deadline stays.
func TestBodyDeadline(t *testing.T) {
	for body, lifted := range map[string]bool{"{}": true, strings.Repeat(" ", maxBody+1): false} {
		d := &deadlines{ResponseWriter: httptest.NewRecorder()}
		readBody(d, httptest.NewRequest("POST", "/sandboxes", strings.NewReader(body)))
		if len(d.read) == 0 || d.read[0].IsZero() || d.read[len(d.read)-1].IsZero() != lifted {
			t.Errorf("a body of %d bytes: deadlines %v", len(body), d.read)
		}
	}
}

// requestID is the part of an error that differs between two requests.
var requestID = regexp.MustCompile(`,"request":"req_[a-z0-9]+"`)

// TestTokens tests authorization: a row for each path, a column for each client.
func TestTokens(t *testing.T) {
	r := newRig(t, Options{}, nil)
	own := string(r.create(`{"secret":"` + secret + `","name":"own"}`).ID)
	other := string(r.create(`{"secret":"another-sandboxes-secret"}`).ID)
	open := string(r.create(`{}`).ID)
	none := string(sandbar.NewID())
	refused := ""
	for _, tc := range []struct {
		method, path       string
		daemon, own, other int // with the daemon's token, with own's secret, with other's
	}{
		{"GET", "/sandboxes", 200, 401, 401},
		{"POST", "/sandboxes", 201, 401, 401},
		{"GET", "/sandboxes/" + own, 200, 401, 401},
		{"GET", "/sandboxes/" + own + "/dir?path=/", 200, 401, 401},
		{"GET", "/sandboxes/" + own + "/executor/x", 200, 200, 401},
		{"POST", "/sandboxes/" + own + "/executor/x", 200, 200, 401},
		{"GET", "/sandboxes/own/executor/x", 200, 401, 401},
		{"GET", "/sandboxes/" + other + "/executor/x", 200, 401, 200},
		{"GET", "/sandboxes/" + open + "/executor/x", 200, 401, 401},
		{"GET", "/sandboxes/" + none + "/executor/x", 404, 401, 401},
		{"GET", "/sandboxes/" + own + "/exec", 426, 426, 401},
		{"GET", "/sandboxes/" + own + "/ports/80", 426, 426, 401},
		{"GET", "/r/" + own + "/", 404, 404, 401},
		{"GET", "/r/" + other + "/", 404, 401, 404},
		{"GET", "/r/" + none + "/", 404, 401, 401},
		{"CONNECT", "/sandboxes/" + own + "/executor/../../" + other + "/executor/x", 200, 200, 401}, // all of these belong to own
		{"DELETE", "/sandboxes/" + own, 0, 401, 401},
	} {
		for who, x := range map[string]struct {
			bearer string
			want   int
		}{"daemon": {token, tc.daemon}, "own": {secret, tc.own}, "other": {"another-sandboxes-secret", tc.other}, "nobody": {"", 401}, "guess": {"wrong", 401}} {
			if x.want == 0 {
				continue
			}
			status, text := r.ask(x.bearer, tc.method, tc.path, "")
			if status != x.want {
				t.Errorf("%s %s by %s: %d %s, want %d", tc.method, tc.path, who, status, text, x.want)
			}
			if status == 401 {
				text = requestID.ReplaceAllString(text, "")
				if refused == "" {
					refused = text
				}
				if text != refused {
					t.Errorf("%s %s by %s: %s differs from %s", tc.method, tc.path, who, text, refused)
				}
			}
		}
	}
	for _, tc := range []struct {
		bearer, key string
		want        int
	}{{secret, own, 200}, {token, own, 200}, {token, "own", 200}, {secret, other, 401}, {secret, "own", 401}, {secret, "", 401}, {secret, none, 401}, {token, none, 404}} {
		status, text := r.ask(tc.bearer, "GET", "/koyeb-sandbox/run", "", routingKey, tc.key)
		if status != tc.want || status == 200 && text != own+" GET /run? " {
			t.Errorf("routed to %q: %d %s, want %d", tc.key, status, text, tc.want)
		}
	}
	if status, _ := r.ask(secret, "GET", "/koyeb-sandbox/run", "", routingKey, own, routingKey, other); status != 401 {
		t.Errorf("with two routing keys: %d", status)
	}
	if status, _ := r.ask(secret, "GET", "/sandboxes/"+own+"/executor/x", "", "Origin", "https://evil.example"); status != 403 {
		t.Errorf("a page elsewhere, with the secret: %d", status)
	}
}

func TestExecutorIsMadeOnceAndClosed(t *testing.T) {
	r := newRig(t, Options{}, nil)
	id := string(r.create("{}").ID)
	if n := len(r.made()); n != 0 {
		t.Errorf("%d executors before anybody asked", n)
	}
	for path, want := range map[string]string{"/a/b?c=d": "/a/b?c=d", "/a%2Fb": "/a%2Fb?", "/": "/?", "": "/?", "/ü": "/%C3%BC?"} {
		if status, text := r.ask(token, "POST", "/sandboxes/"+id+"/executor"+path, "body"); status != 200 || text != id+" POST "+want+" body" {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if n := len(r.made()); n != 1 {
		t.Errorf("%d executors of one sandbox", n)
	}
	if status, _ := r.ask(token, "DELETE", "/sandboxes/"+id, ""); status != 204 {
		t.Errorf("%d", status)
	}
	await(t, "the executor is closed", func() bool { return r.made()[0].isClosed() })

	// A sandbox that another protocol created has an entry too, also if it dies.
	s, err := r.engine.Create(context.Background(), sandbar.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if status, text := r.ask(token, "GET", "/sandboxes/"+string(s.ID())+"/executor/x", ""); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	r.driver.Die(s.ID())
	await(t, "the executor is closed", func() bool { return r.made()[1].isClosed() })
}

// TestIdle tests that a sandbox's own idle timeout counts from the last request and the last work.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		e, err := engine.New(engine.Config{Driver: d})
		if err != nil {
			t.Fatal(err)
		}
		s := New(e, Options{NewExecutor: func(s *engine.Sandbox) Executor { return &fakeExecutor{sandbox: s} }})
		ask := func(method, path, body string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
			return w
		}
		var made wire.Sandbox
		if err := json.Unmarshal(ask("POST", "/sandboxes", `{"idle_timeout":60}`).Body.Bytes(), &made); err != nil {
			t.Fatal(err)
		}
		alive := func() bool { return len(e.List(context.Background())) == 1 }
		expect := func(what string, want bool) {
			t.Helper()
			synctest.Wait()
			if alive() != want {
				t.Errorf("%s: alive is %v", what, alive())
			}
		}
		path := "/sandboxes/" + string(made.ID)
		time.Sleep(59 * time.Second)
		expect("before its time", true)
		ask("GET", path+"/executor/x", "")
		time.Sleep(59 * time.Second)
		expect("a request is use", true)
		sb, err := e.Get(context.Background(), made.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sb.Start(context.Background(), sandbar.Cmd{Args: []string{"sleep", "5m"}}, nil, sandbar.Limits{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5*time.Minute + 59*time.Second)
		expect("a program is use", true)
		ctx, hangUp := context.WithCancel(context.Background())
		following := make(chan struct{})
		go func() {
			defer close(following)
			s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path+"/executor/process_logs_streaming", nil).WithContext(ctx))
		}()
		time.Sleep(5 * time.Minute)
		expect("to follow is use", true)
		hangUp()
		<-following
		time.Sleep(59 * time.Second)
		ask("GET", path, "")
		expect("just before the end", true)
		time.Sleep(2 * time.Second)
		expect("to look at it is no use", false)
		if w := ask("GET", path+"/executor/x", ""); w.Code != 404 {
			t.Errorf("afterwards: %d %s", w.Code, w.Body)
		}
		s.Close()
		if err := e.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestShutdown tests that requests that end by themselves may finish, and that the others are cut.
func TestShutdown(t *testing.T) {
	r := newRig(t, Options{}, nil)
	id := string(r.create("{}").ID)
	follower, cmd := make(chan int, 1), startExec(r, token, id, wire.Exec{Args: []string{"block-until", "go"}})
	go func() {
		status, _ := r.ask(token, "GET", "/sandboxes/"+id+"/executor/process_logs_streaming", "")
		follower <- status
	}()
	<-r.driver.Reached("go")
	await(t, "both are under way", func() bool { return r.server.known(sandbar.ID(id)) != nil && len(r.made()) == 1 })
	down := make(chan error, 1)
	go func() { down <- r.server.Shutdown(context.Background()) }()
	if status := <-follower; status != 200 {
		t.Errorf("the follower saw %d", status)
	}
	if status, text := r.ask(token, "GET", "/sandboxes", ""); status != 503 || errorOf(t, text).Code != sandbar.Unavailable {
		t.Errorf("during the shutdown: %d %s", status, text)
	}
	r.driver.Open("go")
	if out := cmd.wait(); out.result == nil || *out.result.ExitCode != 0 {
		t.Errorf("the command ended with %+v", out)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

// TestShutdownInTime tests that the end of its context cancels commands.
func TestShutdownInTime(t *testing.T) {
	r := newRig(t, Options{}, nil)
	id := string(r.create("{}").ID)
	cmd := startExec(r, token, id, wire.Exec{Args: []string{"block-until", "never"}})
	<-r.driver.Reached("never")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	down := make(chan error, 1)
	go func() { down <- r.server.Shutdown(ctx) }()
	out := cmd.wait()
	if err := <-down; err != context.Canceled {
		t.Error(err)
	}
	if out.result == nil || out.result.Outcome != "cancelled" {
		t.Errorf("the command ended with %+v", out)
	}
}

// TestRateOfClient tests that a client beyond its rate is refused, with the time after which to
// retry.
func TestRateOfClient(t *testing.T) {
	r := newRig(t, Options{}, nil)
	create := func(token string) *http.Response {
		t.Helper()
		req, err := http.NewRequest("POST", "http://"+r.addr+"/sandboxes", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		http.DefaultClient.CloseIdleConnections()
		return resp
	}
	if got := create(hastyToken).StatusCode; got != http.StatusCreated {
		t.Fatalf("the first: status %d", got)
	}
	resp := create(hastyToken)
	if after, err := strconv.Atoi(resp.Header.Get("Retry-After")); resp.StatusCode != http.StatusTooManyRequests || err != nil || after < 2 || after > 1000 {
		t.Errorf("the second: status %d, Retry-After %q; want 429 and nearly 1000", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	if got := create(token).StatusCode; got != http.StatusCreated {
		t.Errorf("another client: status %d", got)
	}
}
