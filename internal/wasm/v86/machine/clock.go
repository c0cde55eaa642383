package machine

import "time"

// clock measures the time for which a machine runs.
type clock struct {
	past    time.Duration
	since   time.Time
	running bool
}

func (c *clock) set(d time.Duration) { c.past, c.since = d, time.Now() }

func (c *clock) duration() time.Duration {
	if c.running {
		return c.past + time.Since(c.since)
	}
	return c.past
}

// now returns the same in milliseconds.
func (c *clock) now() float64 { return float64(c.duration()) / float64(time.Millisecond) }

// advance moves the clock forward without waiting.
func (c *clock) advance(d time.Duration) { c.past += d }

func (c *clock) run() {
	if !c.running {
		c.running, c.since = true, time.Now()
	}
}

func (c *clock) pause() { c.past, c.running = c.duration(), false }
