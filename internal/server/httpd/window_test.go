package httpd

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/engine"
)

// A bucket has the durations from above the one before to its highest, and is at most 1/8 wide.
func TestBuckets(t *testing.T) {
	for b := range buckets - 1 {
		high := highestOf(b)
		if bucketOf(high) != b || bucketOf(high+time.Microsecond) != b+1 {
			t.Fatalf("bucket %d ends at %v, which is in %d; the next is in %d", b, high, bucketOf(high), bucketOf(high+time.Microsecond))
		}
		if b > 0 && float64(high) > 1.125*float64(highestOf(b-1)+time.Microsecond) {
			t.Errorf("bucket %d is too wide: from %v to %v", b, highestOf(b-1), high)
		}
	}
	if bucketOf(-1) != 0 || bucketOf(1<<62) != buckets-1 {
		t.Error("a duration out of range has no bucket")
	}
}

// The window has the durations of the last minutes and no others, and it allocates nothing.
func TestWindow(t *testing.T) {
	now := time.Now()
	w := newWindow(func() time.Time { return now })
	if _, ok := w.quantiles(0.5); ok || w.rate() != 0 {
		t.Error("an empty window has quantiles or a rate")
	}
	for i := range 100 {
		w.add(time.Duration(i+1) * 10 * time.Millisecond)
	}
	near := func(got, want time.Duration) bool { return got >= want && float64(got) <= 1.125*float64(want)+2000 }
	q, ok := w.quantiles(0.5, 0.95, 0.99, 1)
	if !ok || len(q) != 4 || !near(q[0], 500*time.Millisecond) || !near(q[1], 950*time.Millisecond) || !near(q[2], 990*time.Millisecond) || !near(q[3], time.Second) {
		t.Errorf("quantiles %v", q)
	}
	now = now.Add(10 * time.Second)
	if r := w.rate(); r != 10 {
		t.Errorf("100 in the first 10 s: %v per second", r)
	}
	now = now.Add(Window - 10*time.Second - periodTime)
	w.add(time.Hour)
	if q, _ := w.quantiles(0.5, 1); !near(q[0], 510*time.Millisecond) || !near(q[1], time.Hour) {
		t.Errorf("at the end of the window: %v", q)
	}
	if r := w.rate(); r > 1.0/60 || r < 1.0/66 {
		t.Errorf("one in the last minute: %v per second", r)
	}
	now = now.Add(periodTime)
	if q, _ := w.quantiles(0.5); !near(q[0], time.Hour) {
		t.Errorf("after the window of the first: %v", q)
	}
	now = now.Add(Window)
	if q, ok := w.quantiles(0.5); ok {
		t.Errorf("after all windows: %v", q)
	}
	if n := testing.AllocsPerRun(1000, func() { now = now.Add(periodTime / 3); w.add(time.Second) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestCounts(t *testing.T) {
	m := NewMetrics([]string{"python"}, Build{})
	m.Observe(engine.Observation{Language: "python", Result: sandbar.Result{Outcome: sandbar.Exited}, Total: time.Second})
	m.Observe(engine.Observation{Result: sandbar.Result{Outcome: sandbar.TimedOut}, Total: time.Second})
	m.Observe(engine.Observation{Language: "python", Err: sandbar.Errorf(sandbar.Exhausted, "full"), Total: time.Hour})
	m.refused(reasonToken)
	m.refused(reasonToken)
	var st wire.Status
	m.Counts(&st)
	if x := st.Executions; x.P50MS < 1000 || x.P50MS > 1125 || x.P99MS != x.P50MS || x.P95MS != x.P50MS || x.Rate1m <= 0 {
		t.Errorf("%+v", x)
	}
	st.Executions.P50MS, st.Executions.P95MS, st.Executions.P99MS, st.Executions.Rate1m = 0, 0, 0, 0
	want := wire.Status{Errors: map[string]int64{"exhausted": 1}, Refusals: map[string]int64{"token": 2}, Kills: map[string]int64{"timeout": 1},
		Executions: &wire.Executions{Total: 3, ByLanguage: map[string]int64{"python": 2, "command": 1}, ByOutcome: map[string]int64{"exited": 1, "timeout": 1, "error": 1}, WindowSeconds: 300}}
	if diff := cmp.Diff(want, st); diff != "" {
		t.Error(diff)
	}
}

func BenchmarkWindow(b *testing.B) {
	w := newWindow(time.Now)
	b.ReportAllocs()
	for b.Loop() {
		w.add(12345 * time.Microsecond)
	}
}
