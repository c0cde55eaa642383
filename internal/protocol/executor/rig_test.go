package executor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/backend"
)

// backends creates the real drivers.
var backends backend.Pool

func TestMain(m *testing.M) { os.Exit(backends.Main(m)) }

// patience bounds failing tests. No test depends on a duration.
const patience = 60 * time.Second

const secret = "the-secret"

// rig is a server over a sandbox of an engine, with a client's address.
type rig struct {
	t       testing.TB
	engine  *engine.Engine
	sandbox *engine.Sandbox
	server  *Server
	http    *httptest.Server
	client  *http.Client
}

// newRig starts a server for a sandbox of a driver. At the end of the test it closes the server and
// checks for leaks.
func newRig(t testing.TB, d driver.Driver, c engine.Config, o Options) *rig {
	t.Helper()
	r := &rig{t: t}
	c.Driver = d
	var err error
	if r.engine, err = engine.New(c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if r.sandbox, err = r.engine.Create(ctx, sandbar.Spec{}); err != nil {
		t.Fatal(err)
	}
	if o.Authorize == nil {
		o.Authorize = Static(secret)
	}
	r.server = New(r.sandbox, o)
	r.http = httptest.NewServer(r.server)
	r.client = &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 200}}
	t.Cleanup(r.close)
	return r
}

func (r *rig) close() {
	r.server.Close()
	r.http.CloseClientConnections()
	r.http.Close()
	r.client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.engine.Shutdown(ctx); err != nil {
		r.t.Errorf("the engine's shutdown: %v", err)
	}
}

// newFaulty is newRig over the faulty driver. A command is a script for its "sh".
func newFaulty(t testing.TB, o Options, prepare ...func(*faulty.Driver)) (*rig, *faulty.Driver) {
	t.Helper()
	d := faulty.New()
	for _, f := range prepare {
		f(d)
	}
	r := newRig(t, d, engine.Config{}, o)
	t.Cleanup(func() {
		r.close()
		if err := d.Leaks(); err != nil {
			t.Error(err)
		}
	})
	return r, d
}

// request returns an authorized request.
func (r *rig) request(method, path string, body io.Reader) *http.Request {
	r.t.Helper()
	q, err := http.NewRequestWithContext(r.t.Context(), method, r.http.URL+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+secret)
	return q
}

func (r *rig) do(q *http.Request) *http.Response {
	r.t.Helper()
	resp, err := r.client.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp
}

// answer is a complete response.
type answer struct {
	status int
	header http.Header
	body   string
}

func (r *rig) send(q *http.Request) answer {
	r.t.Helper()
	resp := r.do(q)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("%s %s: %v", q.Method, q.URL, err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

// post sends a body unchanged.
func (r *rig) post(path, body string) answer {
	r.t.Helper()
	return r.send(r.request(http.MethodPost, path, strings.NewReader(body)))
}

func (r *rig) get(path string) answer {
	r.t.Helper()
	return r.send(r.request(http.MethodGet, path, nil))
}

// m is a JSON object.
type m = map[string]any

// call posts a JSON object and returns the response's.
func (r *rig) call(path string, body m) m {
	r.t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	a := r.post(path, string(b))
	var got m
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.header.Get("Content-Type") != "application/json" {
		r.t.Fatalf("%s: %d %q: %v", path, a.status, a.body, err)
	}
	return got
}

// run runs a command and returns the response.
func (r *rig) run(cmd string) m { r.t.Helper(); return r.call("/run", m{"cmd": cmd}) }

// start starts a background process.
func (r *rig) start(cmd string) (id string) {
	r.t.Helper()
	got := r.call("/start_process", m{"cmd": cmd})
	id, _ = got["id"].(string)
	if id == "" || got["status"] != "running" {
		r.t.Fatalf("start_process: %v", got)
	}
	return id
}

// listed returns the entry of a process in the list, nil if there is none.
func (r *rig) listed(id string) m {
	r.t.Helper()
	var all struct{ Processes []m }
	if err := json.Unmarshal([]byte(r.get("/list_processes").body), &all); err != nil {
		r.t.Fatal(err)
	}
	for _, p := range all.Processes {
		if p["id"] == id {
			return p
		}
	}
	return nil
}

// await waits for a state that no message reports.
func (r *rig) await(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// sse is one event.
type sse struct {
	id, name string
	data     m
	raw      string // the data unchanged
	comment  string
}

// sseReader reads events strictly: a block of lines, of which each begins with
// a known field, and an empty line.
type sseReader struct {
	t    testing.TB
	resp *http.Response
	in   *lineReader
}

func (r *rig) stream(q *http.Request) *sseReader {
	r.t.Helper()
	resp := r.do(q)
	r.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		b, _ := io.ReadAll(resp.Body)
		r.t.Fatalf("%s: %s %s", q.URL, resp.Status, b)
	}
	return &sseReader{r.t, resp, newLineReader(resp.Body)}
}

func (r *rig) runStreaming(cmd string) *sseReader {
	r.t.Helper()
	b, _ := json.Marshal(m{"cmd": cmd})
	return r.stream(r.request(http.MethodPost, "/run_streaming", bytes.NewReader(b)))
}

func (r *rig) logs(id, last string) *sseReader {
	r.t.Helper()
	q := r.request(http.MethodGet, "/process_logs_streaming?id="+id, nil)
	if last != "" {
		q.Header.Set("Last-Event-ID", last)
	}
	return r.stream(q)
}

// next returns the next event or comment; false at the end.
func (s *sseReader) next() (e sse, ok bool) {
	s.t.Helper()
	for first := true; ; first = false {
		line, err := s.in.line()
		if err == io.EOF && first {
			return e, false
		}
		if err != nil {
			s.t.Fatalf("the stream broke off within an event: %v", err)
		}
		if line == "" {
			if first {
				s.t.Fatal("an event without a line")
			}
			return e, true
		}
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "":
			e.comment = value
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			e.raw = value
			if err := json.Unmarshal([]byte(value), &e.data); err != nil {
				s.t.Fatalf("bad data %.200q: %v", value, err)
			}
		default:
			s.t.Fatalf("a line that belongs to no event: %.200q", line)
		}
	}
}

// event is next without comments; the stream must not end.
func (s *sseReader) event() sse {
	s.t.Helper()
	for {
		e, ok := s.next()
		if !ok {
			s.t.Fatal("the stream has ended")
		}
		if e.name != "" {
			return e
		}
	}
}

// all reads the stream to its end.
func (s *sseReader) all() (all []sse) {
	s.t.Helper()
	for {
		e, ok := s.next()
		if !ok {
			return all
		}
		if e.name != "" {
			all = append(all, e)
		}
	}
}

// lineReader reads lines of any length that end with a line feed.
type lineReader struct{ in *bufio.Reader }

func newLineReader(r io.Reader) *lineReader { return &lineReader{bufio.NewReader(r)} }

func (l *lineReader) line() (string, error) {
	line, err := l.in.ReadString('\n')
	if err == io.EOF && line != "" {
		err = io.ErrUnexpectedEOF
	}
	return strings.TrimSuffix(line, "\n"), err
}

// texts returns the lines of a stream among events, in order.
func texts(events []sse, stream string) (lines []string) {
	for _, e := range events {
		if e.data["stream"] == stream {
			lines = append(lines, e.data["data"].(string))
		}
	}
	return lines
}

// listenTCP returns a listener on loopback.
func listenTCP(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// zeros is an endless file.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
