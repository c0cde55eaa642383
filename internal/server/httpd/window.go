package httpd

import (
	"math/bits"
	"sync"
	"time"
)

// The window of recent executions.
const (
	periodTime = 5 * time.Second
	periods    = 60
	// Window is the time over which quantiles are taken.
	Window = periods * periodTime
	// rateTime is the time over which the rate is taken.
	rateTime = time.Minute
	// Buckets are 8 for each doubling, from 1 µs on, so that a quantile is at most 1/8 too large.
	perDoubling = 8
	buckets     = 40 * perDoubling // to 2^42 µs, 50 days
)

// window counts durations of the last minutes. It has a fixed size and allocates nothing.
type window struct {
	now   func() time.Time
	began time.Time

	mu     sync.Mutex
	period [periods]period
}

// period has the durations of one periodTime.
type period struct {
	number int64 // since the beginning; the counts of an earlier one are outdated
	count  [buckets]uint32
	total  uint32
}

func newWindow(now func() time.Time) *window { return &window{now: now, began: now()} }

// add counts a duration.
func (w *window) add(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	number := int64(w.now().Sub(w.began) / periodTime)
	s := &w.period[number%periods]
	if s.number != number {
		*s = period{number: number}
	}
	s.count[bucketOf(d)]++
	s.total++
}

// bucketOf returns the bucket of a duration.
func bucketOf(d time.Duration) int {
	n := uint64(max(d.Microseconds(), 0))
	if n < perDoubling {
		return int(n)
	}
	doublings := bits.Len64(n) - bits.Len64(perDoubling) // n>>doublings has the bits of perDoubling
	return min(doublings*perDoubling+int(n>>doublings), buckets-1)
}

// highestOf returns the largest duration of a bucket.
func highestOf(bucket int) time.Duration {
	if bucket < 2*perDoubling {
		return time.Duration(bucket) * time.Microsecond
	}
	doublings := bucket/perDoubling - 1
	return time.Duration((uint64(bucket%perDoubling+perDoubling+1)<<doublings)-1) * time.Microsecond
}

// quantiles returns the quantiles of the window: for each q the shortest duration, rounded up, that
// the part q of all durations does not exceed. ok is false without any.
func (w *window) quantiles(of ...float64) (all []time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	number := int64(w.now().Sub(w.began) / periodTime)
	var sum [buckets]uint64
	total := uint64(0)
	for i := range w.period {
		s := &w.period[i]
		if s.total == 0 || s.number <= number-periods {
			continue
		}
		total += uint64(s.total)
		for b, n := range s.count {
			sum[b] += uint64(n)
		}
	}
	if total == 0 {
		return nil, false
	}
	for _, q := range of {
		need, seen := q*float64(total), uint64(0)
		for b, n := range sum {
			if seen += n; n > 0 && float64(seen) >= need {
				all = append(all, highestOf(b))
				break
			}
		}
	}
	return all, true
}

// rate returns the durations per second in about the last rateTime.
func (w *window) rate() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	age := w.now().Sub(w.began)
	number := int64(age / periodTime)
	first := number - int64(rateTime/periodTime) // the oldest period that counts
	total := uint64(0)
	for i := range w.period {
		if s := &w.period[i]; s.number >= first && s.number <= number {
			total += uint64(s.total)
		}
	}
	over := age - time.Duration(max(first, 0))*periodTime
	if over <= 0 {
		return 0
	}
	return float64(total) / max(over, time.Second).Seconds()
}
