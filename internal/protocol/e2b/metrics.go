package e2b

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

const (
	// sampleInterval is the time between two measurements of a sandbox, and maxSamples the number
	// of them that are kept: those of an hour.
	sampleInterval = 5 * time.Second
	maxSamples     = 720
	// sampleTimeout bounds one measurement.
	sampleTimeout = 2 * time.Second
)

// sample is one measurement of a sandbox.
type sample struct {
	at  time.Time
	use engine.Use
	cpu float64 // percent of one processor since the sample before; of the first one 0
}

// metric is a sample in the control plane's form. Sizes are in bytes.
type metric struct {
	Timestamp time.Time `json:"timestamp"`
	Unix      int64     `json:"timestampUnix"`
	CPUs      int       `json:"cpuCount"`
	CPUUsed   float64   `json:"cpuUsedPct"` // 100 is one processor
	MemUsed   int64     `json:"memUsed"`
	MemTotal  int64     `json:"memTotal"`
	MemCache  int64     `json:"memCache"`
	DiskUsed  int64     `json:"diskUsed"`
	DiskTotal int64     `json:"diskTotal"`
}

// envdMetric is a sample in envd's form.
type envdMetric struct {
	Unix       int64   `json:"ts"`
	CPUs       int     `json:"cpu_count"`
	CPUUsed    float64 `json:"cpu_used_pct"`
	MemTotal   int64   `json:"mem_total"`
	MemUsed    int64   `json:"mem_used"`
	MemCache   int64   `json:"mem_cache"`
	MemTotalMB int64   `json:"mem_total_mib"`
	MemUsedMB  int64   `json:"mem_used_mib"`
	DiskUsed   int64   `json:"disk_used"`
	DiskTotal  int64   `json:"disk_total"`
}

// sample measures the sandbox until it ends. It returns at once if nothing can measure it.
func (l *life) sample(ctx context.Context) {
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for {
		if err := l.measure(ctx); sandbar.CodeOf(err) == sandbar.Unsupported {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// measure adds a sample.
func (l *life) measure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	l.sampling.Lock()
	defer l.sampling.Unlock()
	use, err := l.sandbox.Measure(ctx)
	if err != nil {
		return err
	}
	now := sample{at: time.Now(), use: use}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.samples); n > 0 {
		before := l.samples[n-1]
		now.cpu = 100 * max(0, (use.CPUTime-before.use.CPUTime).Seconds()) / now.at.Sub(before.at).Seconds()
	}
	if len(l.samples) == maxSamples {
		l.samples = slices.Delete(l.samples, 0, 1)
	}
	l.samples = append(l.samples, now)
	return nil
}

// metrics returns the samples from one time to another, oldest first. A zero time is no bound.
func (l *life) metrics(from, to time.Time) []metric {
	d := l.entry.describe(l.sandbox.Info(), stateRunning)
	l.mu.Lock()
	defer l.mu.Unlock()
	all := []metric{}
	for _, s := range l.samples {
		if s.at.Before(from) || !to.IsZero() && s.at.After(to) {
			continue
		}
		all = append(all, metric{Timestamp: s.at.UTC(), Unix: s.at.Unix(), CPUs: d.CPUs, CPUUsed: s.cpu, MemUsed: s.use.Memory, MemTotal: d.MemoryMB << 20,
			MemCache: s.use.Cache, DiskUsed: s.use.Files, DiskTotal: d.DiskMB << 20})
	}
	return all
}

// serveMetrics serves the samples of a sandbox in the control plane.
func (e *entry) serveMetrics(w http.ResponseWriter, r *http.Request) error {
	var bounds [2]time.Time
	for i, name := range []string{"start", "end"} {
		if text := r.URL.Query().Get(name); text != "" {
			seconds, err := strconv.ParseInt(text, 10, 64)
			if err != nil || seconds < 0 {
				return invalid(name, name+" must be a time in seconds since 1970", "")
			}
			bounds[i] = time.Unix(seconds, 0)
		}
	}
	if !bounds[1].IsZero() {
		bounds[1] = bounds[1].Add(time.Second - 1) // the client has rounded it
	}
	l, err := e.current()
	switch sandbar.CodeOf(err) {
	case "":
		answer(w, http.StatusOK, l.metrics(bounds[0], bounds[1]))
	case sandbar.Conflict: // a paused sandbox uses nothing
		answer(w, http.StatusOK, []metric{})
	default:
		return err
	}
	return nil
}

// serveAllMetrics serves the last sample of each of some sandboxes.
func (s *Server) serveAllMetrics(w http.ResponseWriter, r *http.Request) {
	all := map[string]metric{}
	for label := range strings.SplitSeq(strings.Join(r.URL.Query()["sandbox_ids"], ","), ",") {
		e, err := s.parse(r.Context(), label)
		if err != nil {
			continue
		}
		if l, err := e.current(); err == nil {
			if m := l.metrics(time.Time{}, time.Time{}); len(m) > 0 {
				all[label] = m[len(m)-1]
			}
		}
	}
	answer(w, http.StatusOK, map[string]any{"sandboxes": all})
}

// serveEnvdMetrics measures the sandbox.
func (l *life) serveEnvdMetrics(w http.ResponseWriter, r *http.Request) error {
	if err := l.measure(r.Context()); err != nil {
		return err
	}
	all := l.metrics(time.Time{}, time.Time{})
	m := all[len(all)-1]
	answer(w, http.StatusOK, envdMetric{Unix: m.Unix, CPUs: m.CPUs, CPUUsed: m.CPUUsed, MemTotal: m.MemTotal, MemUsed: m.MemUsed, MemCache: m.MemCache,
		MemTotalMB: m.MemTotal >> 20, MemUsedMB: m.MemUsed >> 20, DiskUsed: m.DiskUsed, DiskTotal: m.DiskTotal})
	return nil
}
