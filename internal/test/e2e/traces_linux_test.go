package e2e

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// collector receives traces by OTLP over HTTP.
type collector struct {
	*httptest.Server
	mu     sync.Mutex
	raw    bytes.Buffer
	traces map[string][]*otlp.Span // by trace id
}

func newCollector(t *testing.T) *collector {
	c := &collector{traces: map[string][]*otlp.Span{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var data otlp.TracesData // has the encoding of an ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &data)
		}
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" || r.Header.Get("X-Collector") != "secret" {
			t.Errorf("%s %v: %v", r.URL, r.Header, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw.Write(body)
		for _, resource := range data.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				for _, s := range scope.Spans {
					id := hex.EncodeToString(s.TraceId)
					c.traces[id] = append(c.traces[id], s)
				}
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// traceWith returns the id of the only trace that has a span of a name.
func (c *collector) traceWith(t *testing.T, name string) string {
	t.Helper()
	var ids []string
	for id, spans := range c.traces {
		if slices.ContainsFunc(spans, func(s *otlp.Span) bool { return s.Name == name }) {
			ids = append(ids, id)
		}
	}
	if len(ids) != 1 {
		t.Fatalf("%d traces have a span %s", len(ids), name)
	}
	return ids[0]
}

func attribute(s *otlp.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// check checks the tree of a trace: the names of its spans with those of their parents, that each
// span is within its parent, except a removal, which follows the result, and that the steps of the
// call add up to it.
func (c *collector) check(t *testing.T, id, call string, want map[string]string) (root *otlp.Span) {
	t.Helper()
	byID := map[string]*otlp.Span{}
	for _, s := range c.traces[id] {
		byID[string(s.SpanId)] = s
	}
	got := map[string]string{}
	var whole, sum uint64
	for _, s := range c.traces[id] {
		parent := byID[string(s.ParentSpanId)]
		if parent == nil {
			if root != nil {
				t.Errorf("the trace has the roots %s and %s", root.Name, s.Name)
			}
			root = s
			got[s.Name] = ""
			continue
		}
		got[s.Name] = parent.Name
		if s.Name != "removal" && (s.StartTimeUnixNano < parent.StartTimeUnixNano || s.EndTimeUnixNano > parent.EndTimeUnixNano) {
			t.Errorf("%s is not within %s", s.Name, parent.Name)
		}
		if parent.Name == call {
			sum += s.EndTimeUnixNano - s.StartTimeUnixNano
		}
		if s.Name == call {
			whole = s.EndTimeUnixNano - s.StartTimeUnixNano
		}
	}
	if !cmp.Equal(want, got) {
		t.Errorf("%s: %s", call, cmp.Diff(want, got))
	}
	if sum != whole || whole == 0 {
		t.Errorf("the steps of %s take %d ns, and all of it %d ns", call, sum, whole)
	}
	return root
}

// A collector receives one trace of one execution, whose spans nest and add up, from each front
// end, below the span that the client names. No span has code, arguments, environment, output or
// paths.
func TestTraces(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	for _, driver := range []string{"native", "local"} {
		t.Run(driver, func(t *testing.T) {
			if driver == "native" {
				testenv.Need(t, testenv.UserNS)
			}
			c := newCollector(t)
			dir := t.TempDir()
			headers := filepath.Join(dir, "headers")
			if err := os.WriteFile(headers, []byte("X-Collector: secret\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			d, engine := iiiDaemon(t, dir, "SANDBAR_DRIVER="+driver, "SANDBAR_TEMPLATES=off", "SANDBAR_TRACES_ENDPOINT="+c.URL, "SANDBAR_TRACES_HEADERS_FILE="+headers,
				"SANDBAR_III_IMAGE_ALLOWLIST=python", "SANDBAR_III_OPEN=true")

			ws := d.dial(t)
			const fathom, iii, run = "0af7651916cd43dd8448eb211c803191", "0af7651916cd43dd8448eb211c803192", "0af7651916cd43dd8448eb211c803193"
			m, err := json.Marshal(object{"v": 1, "type": "execute", "id": "a", "ts": "2026-01-01T00:00:00.000Z", "language": "shell", "code": "echo zq-output; sleep 0.05; exit 3",
				"env": object{"ZQ_NAME": "zq-env"}, "limits": object{"timeout_ms": 30_000, "memory_mb": 64}, "traceparent": "00-" + fathom + "-b7ad6b7169203331-01"})
			if err != nil {
				t.Fatal(err)
			}
			if err := ws.Write(t.Context(), websocket.MessageText, m); err != nil {
				t.Fatal(err)
			}
			for f := (frame{}); f.Type != "result"; {
				_, b, err := ws.Read(within(t, time.Minute))
				if err == nil {
					err = json.Unmarshal(b, &f)
				}
				if err != nil || f.Type == "error" {
					t.Fatalf("%s %v", b, err)
				}
			}
			id := strings.TrimSpace(d.cli(t, "create"))
			if out := d.cli(t, "exec", id, "--", "sh", "-c", "echo zq-output"); out != "zq-output\n" {
				t.Errorf("%q", out)
			}
			r, err := http.NewRequestWithContext(within(t, time.Minute), "POST", "http://"+d.addr+"/sandboxes/"+id+"/executor/run", strings.NewReader(`{"cmd":"echo zq-output; touch zq-path"}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Traceparent", "00-"+run+"-b7ad6b7169203331-01")
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			d.must(t, "GET", "/sandboxes", nil, nil) // no call, so no trace
			d.cli(t, "stop", id)

			w := dialIII(t, engine)
			call, err := json.Marshal(object{"type": "invokefunction", "invocation_id": "1", "function_id": "sandbox::create", "data": object{"image": "python"},
				"traceparent": "00-" + iii + "-b7ad6b7169203331-01"})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.ws.Write(w.ctx, websocket.MessageText, call); err != nil {
				t.Fatal(err)
			}
			if a := w.receive(); a.Error != nil {
				t.Errorf("%+v", a.Error)
			}
			d.endClean(t) // it has sent what it had

			execution := map[string]string{"fathom execute": "", "execute": "fathom execute", "admission": "execute", "create": "execute", "run": "execute",
				"first_output": "run", "output": "run", "finish": "execute", "removal": "fathom execute"}
			together := driver == "native" && !slices.ContainsFunc(c.traces[fathom], func(s *otlp.Span) bool { return s.Name == "start" })
			if !together { // native makes the sandbox of a single program together with it, if it can
				execution["start"] = "execute"
			}
			root := c.check(t, fathom, "execute", execution)
			if hex.EncodeToString(root.ParentSpanId) != "b7ad6b7169203331" {
				t.Errorf("the parent of the execution is %x", root.ParentSpanId)
			}
			for _, s := range c.traces[fathom] {
				if s.Name != "execute" {
					continue
				}
				if attribute(s, "sandbar.driver") != driver || attribute(s, "sandbar.language") != "shell" || attribute(s, "sandbar.outcome") != "exited" ||
					attribute(s, "sandbar.tenant") != "default" || !strings.HasPrefix(attribute(s, "sandbar.sandbox.id"), "sb_") || !strings.HasPrefix(attribute(s, "sandbar.request.id"), "req_") {
					t.Errorf("%v", s.Attributes)
				}
			}
			program := func(request string) map[string]string {
				return map[string]string{request: "", "program.run": request, "admission": "program.run", "start": "program.run", "run": "program.run",
					"first_output": "run", "output": "run", "finish": "program.run"}
			}
			c.check(t, run, "program.run", program("POST /sandboxes/"))
			delete(c.traces, run)
			c.check(t, c.traceWith(t, "program.run"), "program.run", program("GET /sandboxes/"))
			c.check(t, iii, "sandbox.create", map[string]string{"iii sandbox::create": "", "sandbox.create": "iii sandbox::create", "admission": "sandbox.create", "create": "sandbox.create"})
			delete(c.traces, iii)
			c.check(t, c.traceWith(t, "sandbox.create"), "sandbox.create",
				map[string]string{"POST /sandboxes": "", "sandbox.create": "POST /sandboxes", "admission": "sandbox.create", "create": "sandbox.create"})
			c.check(t, c.traceWith(t, "sandbox.stop"), "sandbox.stop", map[string]string{"DELETE /sandboxes/": "", "sandbox.stop": "DELETE /sandboxes/", "removal": "sandbox.stop"})
			if len(c.traces) != 4 { // the first, and those of the command line
				t.Errorf("%d traces", len(c.traces))
			}
			if in := found(c.raw.Bytes(), "zq-output", "zq-env", "zq-path", "ZQ_NAME"); len(in) > 0 {
				t.Errorf("the traces hold code, environment, arguments, output or paths: %v", in)
			}
		})
	}
}
