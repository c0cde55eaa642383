package sandbox

import (
	"strings"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// truncationMark is the line that says that something was cut off.
const truncationMark = "... (output truncated)"

// kept is the beginning of one stream.
type kept struct {
	most int64 // bytes; negative: all
	data []byte
	cut  bool
}

func (k *kept) add(p []byte) {
	if k.most >= 0 && int64(len(k.data)+len(p)) > k.most {
		p, k.cut = p[:k.most-int64(len(k.data))], true
	}
	k.data = append(k.data, p...)
}

// text is what was kept, as UTF-8 that ends with a whole character, and with a
// line of its own if something was cut off.
func (k *kept) text() (text string, cut bool) {
	data := k.data
	if k.cut {
		data = whole(data)
	}
	text = valid(data)
	if k.cut {
		text = withLine(text, truncationMark)
	}
	return text, k.cut
}

// whole is data without the beginning of a character at its end.
func whole(data []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(data); i++ {
		if b := data[len(data)-i]; utf8.RuneStart(b) {
			if !utf8.FullRune(data[len(data)-i:]) {
				return data[:len(data)-i]
			}
			break
		}
	}
	return data
}

// valid is data as text, each byte that is not UTF-8 as U+FFFD.
func valid(data []byte) string {
	if utf8.Valid(data) {
		return string(data)
	}
	var b strings.Builder
	for _, r := range string(data) {
		b.WriteRune(r)
	}
	return b.String()
}

// capture is a Sink that keeps the beginning of each stream and lets the program
// go on. What it is given goes on to next, if there is one.
type capture struct {
	stdout, stderr kept
	next           engine.Sink
}

func newCapture(most int64, next engine.Sink) *capture {
	return &capture{stdout: kept{most: most}, stderr: kept{most: most}, next: next}
}

// Started implements engine.Sink.
func (c *capture) Started() {
	if c.next != nil {
		c.next.Started()
	}
}

// Output implements engine.Sink.
func (c *capture) Output(chunk sandbar.Chunk) error {
	if chunk.Stream == sandbar.Stderr {
		c.stderr.add(chunk.Data)
	} else {
		c.stdout.add(chunk.Data)
	}
	if c.next == nil {
		return nil
	}
	return c.next.Output(chunk)
}
