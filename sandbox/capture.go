package sandbox

import (
	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/text/truncate"
)

// truncationMark is the line that says that something was cut off.
const truncationMark = "... (output truncated)"

// kept is the beginning of one stream.
type kept struct {
	truncate.Prefix
	data []byte
}

// text is what was kept, as UTF-8, and with a line of its own if something was
// cut off.
func (k *kept) text() (text string, cut bool) {
	if !k.Truncated {
		return truncate.Text(k.data), false
	}
	return withLine(truncate.Text(truncate.TrimPartialRune(k.data)), truncationMark), true
}

// capture is a Sink that keeps the beginning of each stream and lets the program
// go on. What it is given goes on to next, if there is one.
type capture struct {
	stdout, stderr kept
	next           engine.Sink
}

func newCapture(most int64, next engine.Sink) *capture {
	e := truncate.Prefix{Max: most}
	return &capture{stdout: kept{Prefix: e}, stderr: kept{Prefix: e}, next: next}
}

// Started implements engine.Sink.
func (c *capture) Started() {
	if c.next != nil {
		c.next.Started()
	}
}

// Output implements engine.Sink.
func (c *capture) Output(chunk sandbar.Chunk) error {
	k := &c.stdout
	if chunk.Stream == sandbar.Stderr {
		k = &c.stderr
	}
	k.data = append(k.data, k.Take(chunk.Data)...)
	if c.next == nil {
		return nil
	}
	return c.next.Output(chunk)
}
