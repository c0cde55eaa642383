package sandbox

import (
	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/text/truncate"
)

// truncationMark is the line that marks truncated output.
const truncationMark = "... (output truncated)"

// capturedStream is the beginning of one output stream.
type capturedStream struct {
	truncate.Prefix
	data []byte
}

// text returns the captured bytes as UTF-8. If the stream was truncated, truncationMark follows.
func (k *capturedStream) text() (text string, cut bool) {
	if !k.Truncated {
		return truncate.Text(k.data), false
	}
	return withLine(truncate.Text(truncate.TrimPartialRune(k.data)), truncationMark), true
}

// capture is a Sink that keeps the beginning of each stream and discards the rest. It forwards all
// calls to next, if next is not nil.
type capture struct {
	stdout, stderr capturedStream
	next           engine.Sink
}

func newCapture(most int64, next engine.Sink) *capture {
	e := truncate.Prefix{Max: most}
	return &capture{stdout: capturedStream{Prefix: e}, stderr: capturedStream{Prefix: e}, next: next}
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
