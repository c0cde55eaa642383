package httpd

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sandbar-dev/sandbar/engine"
)

// templateCollector reads the templates' state on each scrape. Their names, the only label, come
// from the operator.
type templateCollector struct{ m *Metrics }

// templateMetric is one metric of a template.
type templateMetric struct {
	name, help string
	kind       prometheus.ValueType
	read       func(engine.TemplateStats) float64
}

func templateMetrics() []templateMetric {
	gauge, count := prometheus.GaugeValue, prometheus.CounterValue
	return []templateMetric{
		{"sandbar_template_ready", "Sandboxes of a template that wait for a job.", gauge, func(s engine.TemplateStats) float64 { return float64(s.Ready) }},
		{"sandbar_template_wanted", "Sandboxes of a template that are to wait.", gauge, func(s engine.TemplateStats) float64 { return float64(s.Target) }},
		{"sandbar_template_hits_total", "Requests that got a ready sandbox.", count, func(s engine.TemplateStats) float64 { return float64(s.Hits) }},
		{"sandbar_template_misses_total", "Requests that came when no sandbox was ready.", count, func(s engine.TemplateStats) float64 { return float64(s.Misses) }},
		{"sandbar_template_failures_total", "Attempts to make a template or a ready sandbox that failed.", count, func(s engine.TemplateStats) float64 { return float64(s.Failed) }},
		{"sandbar_template_lost_total", "Ready sandboxes that died or failed their job, which then ran in a fresh one.", count, func(s engine.TemplateStats) float64 { return float64(s.Lost) }},
		{"sandbar_template_forks_total", "Sandboxes that were made ready.", count, func(s engine.TemplateStats) float64 { return float64(s.Forks) }},
		{"sandbar_template_refill_seconds_total", "Time that making sandboxes ready took.", count, func(s engine.TemplateStats) float64 { return s.Refill.Seconds() }},
	}
}

func (m templateMetric) describe() *prometheus.Desc {
	return prometheus.NewDesc(m.name, m.help, []string{"template"}, nil)
}

// Describe implements prometheus.Collector.
func (c templateCollector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range templateMetrics() {
		out <- m.describe()
	}
}

// Collect implements prometheus.Collector.
func (c templateCollector) Collect(out chan<- prometheus.Metric) {
	from := c.m.sources.Load()
	if from == nil {
		return
	}
	for _, s := range from.Templates() {
		for _, m := range templateMetrics() {
			out <- prometheus.MustNewConstMetric(m.describe(), m.kind, m.read(s), s.Name)
		}
	}
}
