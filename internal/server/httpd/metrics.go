package httpd

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/engine"
)

// Build has the labels of the metric sandbar_build_info.
type Build struct{ Version, GoVersion, Driver, Boundary string }

// Metrics counts the engine's events for Prometheus, in a registry of its own. Every label has a
// small set of values; no client or program can choose one. A nil Metrics counts nothing.
type Metrics struct {
	registry  *prometheus.Registry
	languages []string
	sources   atomic.Pointer[Sources]
	parties   parties

	executions *prometheus.CounterVec // by driver, language, outcome
	errors     *prometheus.CounterVec // by code
	kills      *prometheus.CounterVec // by reason
	refusals   *prometheus.CounterVec // by reason
	cpu        *prometheus.CounterVec // by driver
	queue      prometheus.Histogram
	setup      *prometheus.HistogramVec // by driver
	run        *prometheus.HistogramVec // by driver
	total      prometheus.Histogram

	clientExecutions *prometheus.CounterVec // by tenant, client, outcome
	clientCPU        *prometheus.CounterVec // by tenant, client
	clientRefusals   *prometheus.CounterVec // by tenant, client, code

	counts *prometheus.Registry // executions, errors, kills and refusals, for Counts
	recent *window              // of total
}

// Sources are functions that return the present state; they are called at each scrape.
type Sources struct {
	Load      func() engine.Stats
	Templates func() []engine.TemplateStats
	Clients   func(context.Context) []engine.ClientStats
	Drivers   func() []engine.DriverStats
}

// Label values for executions without a language of the catalogue, and for executions that the
// platform failed.
const (
	languageCommand = "command"
	languageOther   = "other"
	outcomeError    = "error"
)

// killReasons are the outcomes for which Sandbar or the kernel kills a program.
var killReasons = []sandbar.Outcome{sandbar.OutOfMemory, sandbar.OutputLimit, sandbar.TimedOut, sandbar.Cancelled}

// NewMetrics creates metrics for the given languages.
func NewMetrics(languages []string, b Build) *Metrics {
	m := &Metrics{
		registry:   prometheus.NewRegistry(),
		counts:     prometheus.NewRegistry(),
		recent:     newWindow(time.Now),
		languages:  languages,
		executions: counter("sandbar_executions_total", "Executions that ended.", "driver", "language", "outcome"),
		errors:     counter("sandbar_errors_total", "Executions that the platform refused or failed, by code.", "code"),
		kills:      counter("sandbar_kills_total", "Programs that were killed, by reason.", "reason"),
		refusals:   counter("sandbar_http_refused_total", "Requests that were refused before any protocol saw them, by reason.", "reason"),
		queue:      histogram("sandbar_queue_seconds", "Time an execution waited for a place."),
		cpu:        counter("sandbar_cpu_seconds_total", "Processor time of programs that ended.", "driver"),
		setup:      histogramVec("sandbar_setup_seconds", "Time to make the sandbox of an execution, or to start a program in one.", "driver"),
		run:        histogramVec("sandbar_run_seconds", "Wall clock of the programs themselves.", "driver"),
		total:      histogram("sandbar_execution_seconds", "Time from the request to the result."),

		clientExecutions: counter("sandbar_client_executions_total", "Executions of a client that ended.", "tenant", "client", "outcome"),
		clientCPU:        counter("sandbar_client_cpu_seconds_total", "Processor time of a client's programs that ended.", "tenant", "client"),
		clientRefusals:   counter("sandbar_client_refused_total", "Requests of a client that failed before they began work.", "tenant", "client", "code"),
	}
	m.registry.MustRegister(m.executions, m.errors, m.kills, m.refusals, m.cpu, m.queue, m.setup, m.run, m.total,
		m.clientExecutions, m.clientCPU, m.clientRefusals,
		collectors.NewGoCollector(), ownProcess{collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})})
	m.counts.MustRegister(m.executions, m.errors, m.kills, m.refusals)
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sandbar_build_info", Help: "Always 1; the labels describe the build and the driver."},
		[]string{"version", "goversion", "driver", "boundary"})
	info.WithLabelValues(b.Version, b.GoVersion, b.Driver, b.Boundary).Set(1)
	m.registry.MustRegister(info)
	m.gauge("sandbar_queue_depth", "Executions that wait for a slot.", func(s engine.Stats) int { return s.Queued })
	m.gauge("sandbar_executions_active", "Executions that run, or are being set up or torn down.", func(s engine.Stats) int { return s.Active })
	m.gauge("sandbar_sandboxes_live", "Sandboxes alive, those of single executions included.", func(s engine.Stats) int { return s.Active + s.Sandboxes })
	m.gauge("sandbar_sandboxes_ready", "Ready sandboxes: waiting for a job, being created, or being removed for a request.", func(s engine.Stats) int { return s.Ready })
	m.gauge("sandbar_sandboxes_removing", "Ended sandboxes whose removal failed repeatedly; each keeps its slot.", func(s engine.Stats) int { return s.Removing })
	m.gauge("sandbar_sandboxes_capacity", "Sandboxes that may be alive at once.", func(s engine.Stats) int { return s.Capacity })
	m.registry.MustRegister(templateCollector{m}, clientCollector{m}, driverCollector{m})
	m.appear()
	return m
}

// ownProcess is the collector of this process, without its counters of the network namespace, which
// belong to all processes of the host.
type ownProcess struct{ prometheus.Collector }

// Collect implements prometheus.Collector.
func (c ownProcess) Collect(to chan<- prometheus.Metric) {
	all := make(chan prometheus.Metric)
	go func() {
		defer close(all)
		c.Collector.Collect(all)
	}()
	for m := range all {
		if !strings.Contains(m.Desc().String(), `"process_network_`) {
			to <- m
		}
	}
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histogram(name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(histogramOpts(name, help))
}

func histogramVec(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(histogramOpts(name, help), labels)
}

// histogramOpts has buckets from 0.5 ms to 9 minutes: a sandbox starts within milliseconds, and the
// longest timeout is five minutes by default.
func histogramOpts(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 2, 21)}
}

func (m *Metrics) gauge(name, help string, read func(engine.Stats) int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		s := m.sources.Load()
		if s == nil {
			return 0
		}
		return float64(read(s.Load()))
	}))
}

// appear creates all series with known labels at the start, so that the first event shows in a
// rate.
func (m *Metrics) appear() {
	for _, r := range killReasons {
		m.kills.WithLabelValues(r.String())
	}
	for _, c := range sandbar.Codes {
		m.errors.WithLabelValues(string(c))
	}
	for _, r := range refusalReasons {
		m.refusals.WithLabelValues(r)
	}
}

// Watch sets the sources. Before it, the load is 0 and there are no templates, clients and drivers.
func (m *Metrics) Watch(s Sources) { m.sources.Store(&s) }

// Observe counts one finished execution. It is meant for engine.Config.Observe.
func (m *Metrics) Observe(o engine.Observation) {
	outcome := o.Result.Outcome.String()
	tenant, client := m.parties.labels(o.Client.Tenant, o.Client.Name)
	if o.Err != nil {
		outcome = outcomeError
		m.errors.WithLabelValues(string(sandbar.CodeOf(o.Err))).Inc()
	} else {
		m.run.WithLabelValues(o.Driver).Observe(o.Result.Duration.Seconds())
		m.cpu.WithLabelValues(o.Driver).Add(o.Result.CPUTime.Seconds())
		m.clientCPU.WithLabelValues(tenant, client).Add(o.Result.CPUTime.Seconds())
		if slices.Contains(killReasons, o.Result.Outcome) {
			m.kills.WithLabelValues(outcome).Inc()
		}
	}
	m.executions.WithLabelValues(o.Driver, m.language(o.Language), outcome).Inc()
	m.clientExecutions.WithLabelValues(tenant, client, outcome).Inc()
	m.queue.Observe(o.Queued.Seconds())
	if o.Setup > 0 { // 0 for an execution that left the queue without a sandbox
		m.setup.WithLabelValues(o.Driver).Observe(o.Setup.Seconds())
	}
	m.total.Observe(o.Total.Seconds())
	if o.Err == nil {
		m.recent.add(o.Total)
	}
}

// Counts fills in what has been counted since the start, and the latencies of the last minutes.
func (m *Metrics) Counts(st *wire.Status) {
	x := &wire.Executions{ByLanguage: map[string]int64{}, ByOutcome: map[string]int64{}, WindowSeconds: int(Window / time.Second), Rate1m: m.recent.rate()}
	st.Executions, st.Errors, st.Refusals, st.Kills = x, map[string]int64{}, map[string]int64{}, map[string]int64{}
	all, err := m.counts.Gather()
	if err != nil {
		return // not possible: the collectors are counters of this package
	}
	for _, family := range all {
		for _, counted := range family.GetMetric() {
			n := int64(counted.GetCounter().GetValue())
			if n == 0 {
				continue
			}
			for _, l := range counted.GetLabel() {
				to := map[string]map[string]int64{"language": x.ByLanguage, "outcome": x.ByOutcome, "code": st.Errors}[l.GetName()]
				switch family.GetName() {
				case "sandbar_kills_total":
					to = st.Kills
				case "sandbar_http_refused_total":
					to = st.Refusals
				}
				if to == nil {
					continue // a driver
				}
				to[l.GetValue()] += n
				if l.GetName() == "outcome" {
					x.Total += n
				}
			}
		}
	}
	if q, ok := m.recent.quantiles(0.5, 0.95, 0.99); ok {
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		x.P50MS, x.P95MS, x.P99MS = ms(q[0]), ms(q[1]), ms(q[2])
	}
}

// ObserveRefusal counts one refused call. It is meant for engine.Config.ObserveRefusal.
func (m *Metrics) ObserveRefusal(r engine.Refusal) {
	tenant, client := m.parties.labels(r.Client.Tenant, r.Client.Name)
	m.clientRefusals.WithLabelValues(tenant, client, string(r.Code)).Inc()
}

// language returns the label of a language, from a fixed set.
func (m *Metrics) language(name string) string {
	switch {
	case name == "":
		return languageCommand
	case slices.Contains(m.languages, name):
		return name
	}
	return languageOther
}

func (m *Metrics) refused(reason string) {
	if m != nil {
		m.refusals.WithLabelValues(reason).Inc()
	}
}

func (m *Metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, DisableCompression: true})
}
