package trace

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	otlp "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// collector is a collector that answers with a status.
type collector struct {
	*httptest.Server
	status atomic.Int32
	posts  atomic.Int32

	mu      sync.Mutex
	spans   []*otlp.Span
	headers http.Header
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.status.Store(http.StatusOK)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := int(c.status.Load()) // before posts: TestRetry changes it after the first message
		c.posts.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil { // a tracer that closes without time breaks its message off
			return
		}
		var data otlp.TracesData
		if err := proto.Unmarshal(body, &data); err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%v, %v", r.Header, err)
		}
		if status == http.StatusOK {
			c.mu.Lock()
			c.headers = r.Header
			c.spans = append(c.spans, data.ResourceSpans[0].ScopeSpans[0].Spans...)
			c.mu.Unlock()
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(c.Close)
	return c
}

func newTracer(t *testing.T, o Options) *Tracer {
	tr := New(o)
	t.Cleanup(func() {
		select {
		case <-tr.closing:
		default:
			closeNow(tr)
		}
	})
	return tr
}

// closeNow closes a tracer without time for its last messages.
func closeNow(tr *Tracer) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	tr.Close(ctx)
}

// call makes a request with one call.
func call(tr *Tracer, parent string) (traceparent string) {
	c, end := tr.Begin(sandbar.Client{Name: "ci", Tenant: "team", Request: "req_1", Trace: "stale"}, "POST /x", parent)
	if c.Trace != "" {
		now := time.Now()
		tr.Record(engine.Trace{Client: c, Sandbox: "sb_1", Driver: "native", Language: "python", Outcome: "exited", Call: engine.Step{Name: "execute", Begin: now, End: now.Add(3),
			Steps: []engine.Step{{Name: engine.StepAdmission, Begin: now, End: now.Add(1)}, {Name: engine.StepRun, Begin: now.Add(1), End: now.Add(3)}}}})
	}
	end()
	return c.Trace
}

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// A request and its calls are one trace, below the span that the client has named. A request
// without a call is not sent.
func TestSpans(t *testing.T) {
	c := newCollector(t)
	tr := newTracer(t, Options{Endpoint: c.URL, Ratio: 1, Version: "v1", Headers: http.Header{"X-Key": {"k"}}})
	call(tr, parent)
	_, end := tr.Begin(sandbar.Client{}, "GET /health", "")
	end()
	tr.Close(t.Context())
	names := map[string]string{}
	ids := map[string]string{}
	for _, s := range c.spans {
		if string(s.TraceId) != string(c.spans[0].TraceId) {
			t.Errorf("%s is in another trace", s.Name)
		}
		ids[string(s.SpanId)] = s.Name
	}
	for _, s := range c.spans {
		names[s.Name] = ids[string(s.ParentSpanId)]
	}
	if want := map[string]string{"POST /x": "", "execute": "POST /x", "admission": "execute", "run": "execute"}; !cmp.Equal(want, names) {
		t.Error(cmp.Diff(want, names))
	}
	for _, s := range c.spans {
		if s.Name == "POST /x" && format(traceID(s.TraceId), spanID(s.ParentSpanId)) != parent {
			t.Errorf("the request's parent is %x of %x", s.ParentSpanId, s.TraceId)
		}
		attrs := map[string]string{}
		for _, a := range s.Attributes {
			attrs[a.Key] = a.Value.GetStringValue()
		}
		want := map[string]string{"sandbar.client": "ci", "sandbar.tenant": "team", "sandbar.request.id": "req_1", "sandbar.outcome": "exited"}
		if s.Name == "execute" {
			want["sandbar.sandbox.id"], want["sandbar.driver"], want["sandbar.language"] = "sb_1", "native", "python"
		}
		if (s.Name == "execute" || s.Name == "POST /x") && !cmp.Equal(want, attrs) {
			t.Errorf("%s: %s", s.Name, cmp.Diff(want, attrs))
		}
	}
	if c.headers.Get("X-Key") != "k" || len(tr.active) != 0 {
		t.Errorf("%v, %d", c.headers, len(tr.active))
	}
}

// The flag of a valid traceparent decides, otherwise the ratio. What a client sends as a
// traceparent never fails a request.
func TestSampling(t *testing.T) {
	never := newTracer(t, Options{Endpoint: "http://127.0.0.1:1", Ratio: 0})
	always := newTracer(t, Options{Endpoint: "http://127.0.0.1:1", Ratio: 1})
	for _, x := range []struct {
		parent string
		valid  bool
	}{
		{parent, true}, {parent + "-future", false}, {"cc" + parent[2:] + "-future", true}, {"cc" + parent[2:] + "x", false}, {"ff" + parent[2:], false},
		{"", false}, {"00-x", false}, {strings.ToUpper(parent), false}, {strings.Repeat("00-", 40), false},
		{"00-00000000000000000000000000000000-b7ad6b7169203331-01", false}, {"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", false},
	} {
		if got := call(never, x.parent); (got != "") != x.valid || x.valid && got[3:35] != parent[3:35] {
			t.Errorf("%q is traced as %q", x.parent, got)
		}
		if got := call(always, x.parent); got == "" {
			t.Errorf("%q is not traced", x.parent)
		}
	}
	if got := call(always, parent[:53]+"00"); got != "" {
		t.Errorf("a request that its client does not sample is traced as %q", got)
	}
	half, n := newTracer(t, Options{Endpoint: "http://127.0.0.1:1", Ratio: 0.5}), 0
	for range 4000 {
		if call(half, "") != "" {
			n++
		}
	}
	if n < 1600 || n > 2400 { // 12 standard deviations
		t.Errorf("%d of 4000 requests are traced", n)
	}
}

// With a collector that is not there, that does not answer, or that refuses, no caller waits, no
// more than the queue is kept, and one line is logged.
func TestCollectorFails(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	slow := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	slow.Start()
	defer slow.CloseClientConnections()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	refusing := newCollector(t)
	for name, x := range map[string]struct {
		url    string
		status int
	}{"not there": {"http://" + closed.Addr().String(), 0}, "slow": {slow.URL, 0}, "429": {refusing.URL, 429}, "500": {refusing.URL, 500}} {
		t.Run(name, func(t *testing.T) {
			refusing.status.Store(int32(x.status))
			var said bytes.Buffer
			tr := New(Options{Endpoint: x.url, Ratio: 1, Logger: slog.New(slog.NewTextHandler(&said, nil))})
			for range 10 * queueLen {
				call(tr, "")
			}
			if n := len(tr.queue); n > queueLen {
				t.Errorf("%d items are queued", n)
			}
			if x.status != 500 && tr.dropped.Load() == 0 { // a collector that refuses at once may take all
				t.Error("nothing was dropped")
			}
			closeNow(tr)
			if lines := strings.Count(said.String(), "\n"); lines != 1 || !strings.Contains(said.String(), "traces are lost") {
				t.Errorf("%d lines:\n%s", lines, said.String())
			}
			if len(tr.active) != 0 {
				t.Errorf("%d requests are active", len(tr.active))
			}
		})
	}
}

// A message that the collector asks to send again is sent again.
func TestRetry(t *testing.T) {
	c := newCollector(t)
	c.status.Store(http.StatusServiceUnavailable)
	tr := newTracer(t, Options{Endpoint: c.URL, Ratio: 1})
	call(tr, "")
	done := make(chan struct{})
	go func() { tr.Close(context.Background()); close(done) }()
	for c.posts.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	c.status.Store(http.StatusOK)
	<-done
	if len(c.spans) != 4 || c.posts.Load() != 2 {
		t.Errorf("%d spans in %d messages", len(c.spans), c.posts.Load())
	}
}

// No more requests are recorded at once than the bound.
func TestManyRequests(t *testing.T) {
	tr := newTracer(t, Options{Endpoint: "http://127.0.0.1:1", Ratio: 1})
	for range maxRequests {
		tr.Begin(sandbar.Client{}, "x", "")
	}
	c, end := tr.Begin(sandbar.Client{}, "x", "")
	end()
	if c.Trace != "" || len(tr.active) != maxRequests {
		t.Errorf("%q, %d", c.Trace, len(tr.active))
	}
}

func FuzzParse(f *testing.F) {
	f.Add(parent)
	f.Fuzz(func(t *testing.T, s string) {
		if trace, id, sampled, ok := parse(s); ok && len(s) == traceparentLen && s[:2] == "00" && sampled && s[53:] == "01" && format(trace, id) != s {
			t.Errorf("%q became %q", s, format(trace, id))
		}
	})
}
