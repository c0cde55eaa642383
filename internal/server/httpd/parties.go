package httpd

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// maxParties is the largest number of clients and tenants with metrics of their own. Further ones
// are counted together with the labels partyOther.
const maxParties = 100

const partyOther = "other"

// party identifies a client of the default tenant by its name, or another tenant.
type party struct{ tenant, client string }

// parties are the clients and tenants with metrics of their own: the first maxParties.
type parties struct {
	mu  sync.Mutex
	all map[party]struct{}
}

// labels returns the labels tenant and client. The clients of a tenant other than the default one
// have the metrics of their tenant, with an empty client.
func (p *parties) labels(tenant, client string) (string, string) {
	k := party{sandbar.DefaultTenant, client}
	if tenant != "" {
		k = party{tenant, ""}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.all[k]; !ok {
		if len(p.all) >= maxParties {
			return partyOther, partyOther
		}
		if p.all == nil {
			p.all = map[party]struct{}{}
		}
		p.all[k] = struct{}{}
	}
	return k.tenant, k.client
}

// clientCollector reads the load of clients on each scrape.
type clientCollector struct{ m *Metrics }

var clientLabels = []string{"tenant", "client"}

// The metrics of clientCollector and driverCollector.
var (
	clientSandboxes = prometheus.NewDesc("sandbar_client_sandboxes", "Live sandboxes of a client, those of single executions included.", clientLabels, nil)
	clientQueue     = prometheus.NewDesc("sandbar_client_queue_depth", "Requests of a client that wait for a slot.", clientLabels, nil)
	clientMemory    = prometheus.NewDesc("sandbar_client_memory_limit_bytes", "Memory that the sandboxes and the waiting requests of a client may use together.", clientLabels, nil)
	driverSandboxes = prometheus.NewDesc("sandbar_driver_sandboxes", "Live sandboxes of a driver, those of single executions included.", []string{"driver"}, nil)
	driverReady     = prometheus.NewDesc("sandbar_driver_ready", "Ready sandboxes of a driver that wait for a job.", []string{"driver"}, nil)
)

// Describe implements prometheus.Collector.
func (c clientCollector) Describe(out chan<- *prometheus.Desc) {
	out <- clientSandboxes
	out <- clientQueue
	out <- clientMemory
}

// Collect implements prometheus.Collector.
func (c clientCollector) Collect(out chan<- prometheus.Metric) {
	from := c.m.sources.Load()
	if from == nil {
		return
	}
	sums := map[party]engine.ClientStats{}
	for _, s := range from.Clients(context.Background()) {
		var k party
		k.tenant, k.client = c.m.parties.labels(s.Tenant, s.Name)
		sum := sums[k]
		sum.Sandboxes += s.Sandboxes + s.Active
		sum.Queued += s.Queued
		sum.Memory += s.Memory
		sums[k] = sum
	}
	for k, s := range sums {
		out <- prometheus.MustNewConstMetric(clientSandboxes, prometheus.GaugeValue, float64(s.Sandboxes), k.tenant, k.client)
		out <- prometheus.MustNewConstMetric(clientQueue, prometheus.GaugeValue, float64(s.Queued), k.tenant, k.client)
		out <- prometheus.MustNewConstMetric(clientMemory, prometheus.GaugeValue, float64(s.Memory), k.tenant, k.client)
	}
}

// driverCollector reads the load of drivers on each scrape.
type driverCollector struct{ m *Metrics }

// Describe implements prometheus.Collector.
func (c driverCollector) Describe(out chan<- *prometheus.Desc) {
	out <- driverSandboxes
	out <- driverReady
}

// Collect implements prometheus.Collector.
func (c driverCollector) Collect(out chan<- prometheus.Metric) {
	from := c.m.sources.Load()
	if from == nil {
		return
	}
	for _, s := range from.Drivers() {
		out <- prometheus.MustNewConstMetric(driverSandboxes, prometheus.GaugeValue, float64(s.Sandboxes), s.Name)
		out <- prometheus.MustNewConstMetric(driverReady, prometheus.GaugeValue, float64(s.Ready), s.Name)
	}
}
