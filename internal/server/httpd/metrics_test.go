package httpd

import (
	"context"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// scrape returns the response of GET /metrics, without comments.
func scrape(m *Metrics) string {
	w := httptest.NewRecorder()
	m.handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func TestMetricsCount(t *testing.T) {
	m := NewMetrics([]string{"python", "shell"}, Build{Version: "v1", GoVersion: "go1", Driver: "native", Boundary: "namespaces"})
	before := scrape(m)
	if !strings.Contains(before, "sandbar_queue_depth 0\n") {
		t.Error("a gauge without an engine is not 0")
	}
	m.Watch(Sources{
		Load: func() engine.Stats {
			return engine.Stats{Active: 3, Queued: 7, Sandboxes: 2, Capacity: 64, Ready: 4, Removing: 1}
		},
		Templates: func() []engine.TemplateStats {
			return []engine.TemplateStats{{Name: "python", Ready: 1, Target: 2, Hits: 3, Misses: 4, Forks: 5, Failed: 6, Lost: 7, Refill: 8 * time.Second}, {Name: "plain"}}
		},
		Clients: func(context.Context) []engine.ClientStats {
			return []engine.ClientStats{{Name: "ci", Sandboxes: 1, Queued: 2, Memory: 3}, {Tenant: "team", Sandboxes: 4}}
		},
		Drivers: func() []engine.DriverStats { return []engine.DriverStats{{Name: "native", Sandboxes: 5, Ready: 6}} },
	})
	ci, team := sandbar.Client{Name: "ci"}, sandbar.Client{Name: "token", Tenant: "team"}
	for _, o := range sandbar.Outcomes {
		m.Observe(engine.Observation{Client: ci, Driver: "native", Language: "python", Result: sandbar.Result{Outcome: o, Duration: time.Second, CPUTime: time.Second / 2}, Setup: time.Millisecond, Total: 2 * time.Second})
	}
	m.Observe(engine.Observation{Client: team, Driver: "native", Err: sandbar.Errorf(sandbar.Exhausted, "full")})
	m.ObserveRefusal(engine.Refusal{Client: team, Verb: engine.DidExecute, Code: sandbar.Exhausted})
	m.Observe(engine.Observation{Driver: "native", Language: "cobol", Result: sandbar.Result{Outcome: sandbar.Exited}})
	after := scrape(m)
	for _, want := range []string{
		`sandbar_build_info{boundary="namespaces",driver="native",goversion="go1",version="v1"} 1`,
		`sandbar_executions_total{driver="native",language="python",outcome="exited"} 1`,
		`sandbar_executions_total{driver="native",language="python",outcome="timeout"} 1`,
		`sandbar_executions_total{driver="native",language="python",outcome="oom"} 1`,
		`sandbar_executions_total{driver="native",language="command",outcome="error"} 1`,
		`sandbar_executions_total{driver="native",language="other",outcome="exited"} 1`,
		`sandbar_client_executions_total{client="ci",outcome="oom",tenant="default"} 1`,
		`sandbar_client_executions_total{client="",outcome="error",tenant="team"} 1`,
		`sandbar_client_executions_total{client="",outcome="exited",tenant="default"} 1`,
		`sandbar_client_cpu_seconds_total{client="ci",tenant="default"} 3.5`,
		`sandbar_cpu_seconds_total{driver="native"} 3.5`,
		`sandbar_client_refused_total{client="",code="exhausted",tenant="team"} 1`,
		`sandbar_client_sandboxes{client="ci",tenant="default"} 1`,
		`sandbar_client_queue_depth{client="ci",tenant="default"} 2`,
		`sandbar_client_memory_limit_bytes{client="ci",tenant="default"} 3`,
		`sandbar_client_sandboxes{client="",tenant="team"} 4`,
		`sandbar_driver_sandboxes{driver="native"} 5`,
		`sandbar_driver_ready{driver="native"} 6`,
		`sandbar_errors_total{code="exhausted"} 1`,
		`sandbar_errors_total{code="internal"} 0`,
		`sandbar_kills_total{reason="oom"} 1`,
		`sandbar_kills_total{reason="output_limit"} 1`,
		`sandbar_kills_total{reason="timeout"} 1`,
		`sandbar_kills_total{reason="cancelled"} 1`,
		`sandbar_queue_depth 7`,
		`sandbar_executions_active 3`,
		`sandbar_sandboxes_live 5`,
		`sandbar_sandboxes_capacity 64`,
		`sandbar_sandboxes_removing 1`,
		`sandbar_sandboxes_ready 4`,
		`sandbar_template_ready{template="python"} 1`,
		`sandbar_template_wanted{template="python"} 2`,
		`sandbar_template_hits_total{template="python"} 3`,
		`sandbar_template_misses_total{template="python"} 4`,
		`sandbar_template_forks_total{template="python"} 5`,
		`sandbar_template_failures_total{template="python"} 6`,
		`sandbar_template_lost_total{template="python"} 7`,
		`sandbar_template_refill_seconds_total{template="python"} 8`,
		`sandbar_template_hits_total{template="plain"} 0`,
		`sandbar_execution_seconds_count 9`,
		`sandbar_setup_seconds_count{driver="native"} 7`,
		`sandbar_run_seconds_count{driver="native"} 8`,
		`sandbar_queue_seconds_count 9`,
		`go_goroutines `,
	} {
		if !strings.Contains(after, want) {
			t.Errorf("no line %s", want)
		}
	}
}

// The number of time series does not depend on the languages that clients send, and clients and
// tenants beyond a fixed number are counted together, also those that have a load only.
func TestMetricsAreBounded(t *testing.T) {
	m := NewMetrics([]string{"python"}, Build{})
	var many []engine.ClientStats
	m.Watch(Sources{Load: func() engine.Stats { return engine.Stats{} }, Templates: func() []engine.TemplateStats { return nil },
		Drivers: func() []engine.DriverStats { return nil }, Clients: func(context.Context) []engine.ClientStats { return many }})
	series := func() int { return strings.Count(scrape(m), "\nsandbar_") }
	m.Observe(engine.Observation{Language: "a", Result: sandbar.Result{Outcome: sandbar.Exited}})
	before := series()
	for i := range 1000 {
		m.Observe(engine.Observation{Language: strconv.Itoa(i), Result: sandbar.Result{Outcome: sandbar.Exited}})
	}
	if after := series(); after != before {
		t.Errorf("%d series became %d", before, after)
	}
	add := func(from, to int) int {
		for i := from; i < to; i++ {
			name := strconv.Itoa(i)
			m.Observe(engine.Observation{Client: sandbar.Client{Name: name}, Result: sandbar.Result{Outcome: sandbar.Exited}})
			m.ObserveRefusal(engine.Refusal{Client: sandbar.Client{Tenant: name}, Code: sandbar.Exhausted})
			many = append(many, engine.ClientStats{Name: "load" + name, Sandboxes: 1}, engine.ClientStats{Tenant: name, Sandboxes: 1})
		}
		return series()
	}
	if full, more := add(0, maxParties), add(maxParties, 2*maxParties); full != more {
		t.Errorf("%d series became %d", full, more)
	}
	text := scrape(m)
	for _, want := range []string{
		`sandbar_client_sandboxes{client="other",tenant="other"} `,
		`sandbar_client_executions_total{client="other",outcome="exited",tenant="other"} `,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no line %s", want)
		}
	}
}

func TestNoMetrics(t *testing.T) {
	s, _ := start(t, func(o *Options) { o.Metrics = nil })
	if resp, _ := send(t, s, "GET /metrics HTTP/1.1\nHost: localhost\n"+bearer+"\n"); resp.StatusCode != 404 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if resp, _ := send(t, s, "GET /x HTTP/1.1\nHost: localhost\n\n"); resp.StatusCode != 401 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// The host's values are not reported as the daemon's.
func TestMetricsAreOfThisProcess(t *testing.T) {
	text := scrape(NewMetrics(nil, Build{}))
	if strings.Contains(text, "process_network_") {
		t.Error("bytes of the network namespace are among the metrics")
	}
	if !strings.Contains(text, "go_goroutines") || runtime.GOOS == "linux" && !strings.Contains(text, "process_resident_memory_bytes") {
		t.Error("metrics of the process are missing")
	}
}
