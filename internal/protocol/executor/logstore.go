package executor

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// maxLogLine is the longest line that is stored as one, in bytes. A longer one is stored in pieces.
const maxLogLine = 1 << 20

// blockSize is the size of the memory blocks for lines, in bytes.
const blockSize = 64 << 10

// logPosition is a position in a process's log: the numbers of lines of stdout and of stderr before
// it. Its text is the id of events, so that a client that reconnects continues exactly there.
type logPosition [2]int

// String returns the form of an id: "3-1".
func (p logPosition) String() string { return string(p.append(nil)) }

func (p logPosition) append(b []byte) []byte {
	b = strconv.AppendInt(b, int64(p[0]), 10)
	b = append(b, '-')
	return strconv.AppendInt(b, int64(p[1]), 10)
}

var errPlace = errors.New("not the id of an event of this log")

// parsePosition parses the result of String, and nothing else.
func parsePosition(s string) (p logPosition, err error) {
	a, b, ok := strings.Cut(s, "-")
	if !ok {
		return p, errPlace
	}
	for i, part := range []string{a, b} {
		n, err := strconv.ParseInt(part, 10, 62)
		if err != nil || strconv.FormatInt(n, 10) != part || n < 0 {
			return p, errPlace
		}
		p[i] = int(n)
	}
	return p, nil
}

// index returns a stream's index in a place.
func index(s sandbar.Stream) int { return int(s) - 1 }

// streams are the streams by index.
var streams = [2]sandbar.Stream{sandbar.Stdout, sandbar.Stderr}

// logStore stores the last lines of a process, each as its encoded event. It is the engine's Sink:
// it never waits for a reader and accepts everything; the oldest lines are dropped for new ones.
// Readers have their own positions and are independent.
type logStore struct {
	keepLines int
	keepBytes int64
	total     *budget

	mu      sync.Mutex
	lines   [2]lines
	kept    [2]outputHistory
	at      logPosition // the end
	time    []byte
	scratch []byte
	block   []byte        // the unused rest of the newest block
	ended   bool          // no further lines will come
	free    bool          // not counted in total any more
	changed chan struct{} // closed when something comes; nil without a waiting reader
}

// budget bounds the logs of all processes together, in bytes. Beyond it a log may still grow to its
// even share, so that the logs of finished processes cannot displace those of running ones.
type budget struct {
	most  int64
	share int64 // per output
	used  atomic.Int64
}

// maxRunning is the engine's bound of running processes in a sandbox.
const maxRunning = 256

func newBudget(o Options) *budget {
	return &budget{most: o.KeepTotal, share: o.KeepTotal / int64(2*(maxRunning+max(o.KeepFinished, 0)))}
}

// over reports whether an output with that many bytes must drop lines.
func (b *budget) over(held int64) bool { return held > b.share && b.used.Load() > b.most }

// outputHistory is the stored lines of one output.
type outputHistory struct {
	dropped int // lines before the first stored one
	records []record
	bytes   int64
}

// record is one line. Its event never changes.
type record struct {
	number int // number among the lines of both streams, in order of arrival
	event  []byte
}

var _ engine.Sink = (*logStore)(nil)

func newLogStore(keepLines int, keepBytes int64, total *budget) *logStore {
	l := &logStore{keepLines: keepLines, keepBytes: keepBytes, total: total}
	for i := range l.lines {
		l.lines[i].most = maxLogLine
	}
	return l
}

// Started implements engine.Sink.
func (*logStore) Started() {}

// Output implements engine.Sink. All lines of a chunk have the same time.
func (l *logStore) Output(c sandbar.Chunk) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stamp()
	l.lines[index(c.Stream)].add(c.Data, func(line []byte, partial bool) error {
		l.keep(c.Stream, line, partial)
		return nil
	})
	l.wake()
	return nil
}

// end stores the last lines and ends the log. It calls tell before any reader sees the end.
func (l *logStore) end(tell func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stamp()
	for i, s := range streams {
		l.lines[i].finish(func(line []byte, partial bool) error {
			l.keep(s, line, partial)
			return nil
		})
	}
	l.ended = true
	tell()
	l.wake()
}

func (l *logStore) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// stamp sets the time of the current chunk: RFC 3339 with nanoseconds.
func (l *logStore) stamp() {
	l.time = time.Now().UTC().AppendFormat(l.time[:0], "2006-01-02T15:04:05.000000000Z")
}

// keep stores a line and drops old ones beyond the bounds.
func (l *logStore) keep(s sandbar.Stream, line []byte, partial bool) {
	i := index(s)
	l.at[i]++
	l.scratch = appendLog(l.scratch[:0], l.at, l.time, s, line, partial)
	h := &l.kept[i]
	h.records = append(h.records, record{l.at[0] + l.at[1], l.store(l.scratch)})
	h.bytes += int64(len(l.scratch))
	l.total.used.Add(int64(len(l.scratch)))
	for len(h.records) > 1 && (len(h.records) > l.keepLines || h.bytes > l.keepBytes || l.total.over(h.bytes)) {
		l.total.used.Add(-h.drop())
	}
	if cap(l.scratch) > maxLogLine {
		l.scratch = nil
	}
}

// release returns the log's part of the budget, after the log has ended and was forgotten. Its
// memory is freed with its last reader.
func (l *logStore) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.free {
		l.free = true
		l.total.used.Add(-l.kept[0].bytes - l.kept[1].bytes)
	}
}

// drop drops the oldest line and returns its size.
func (h *outputHistory) drop() int64 {
	size := int64(len(h.records[0].event))
	h.bytes -= size
	h.records[0] = record{} // freed once no reader uses it
	h.records = h.records[1:]
	h.dropped++
	return size
}

// appendLog appends the event of a line.
func appendLog(b []byte, at logPosition, time []byte, s sandbar.Stream, line []byte, partial bool) []byte {
	b = at.append(append(b, "id: "...))
	b = append(b, "\nevent: log\ndata: {\"timestamp\":\""...)
	b = append(b, time...)
	b = append(b, "\",\"stream\":\""...)
	b = append(b, s.String()...)
	b = append(b, "\",\"data\":\""...)
	b = appendText(b, line)
	if partial {
		return append(b, "\",\"partial\":true}\n\n"...)
	}
	return append(b, "\"}\n\n"...)
}

// appendGap appends the event with the number of dropped lines of a stream. It has no member
// "stream", because clients take an event with one for a line.
func appendGap(b []byte, at logPosition, s sandbar.Stream, lines int) []byte {
	b = at.append(append(b, "id: "...))
	b = append(b, "\nevent: gap\ndata: {\"lost\":"...)
	b = strconv.AppendInt(b, int64(lines), 10)
	b = append(b, ",\"of\":\""...)
	return append(append(b, s.String()...), "\"}\n\n"...)
}

// store copies b to the block memory.
func (l *logStore) store(b []byte) []byte {
	if len(b) > blockSize/4 {
		return append([]byte(nil), b...)
	}
	if len(b) > len(l.block) {
		l.block = make([]byte, blockSize)
	}
	kept := l.block[:len(b):len(b)]
	l.block = l.block[copy(kept, b):]
	return kept
}

// valid reports whether a client may have received a place.
func (l *logStore) valid(p logPosition) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return p[0] <= l.at[0] && p[1] <= l.at[1]
}

// Bounds of what a reader takes at once.
const (
	takeEvents = 1024
	takeBytes  = 64 << 10
)

// take appends to events the events after a place, in order of arrival, and returns the place after
// them. If there are none it returns a channel that is closed when there are, or nil after the end
// of the log.
func (l *logStore) take(events [][]byte, from logPosition) (_ [][]byte, _ logPosition, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(events)
	for i, s := range streams {
		if gap := l.kept[i].dropped - from[i]; gap > 0 {
			from[i] += gap
			events = append(events, appendGap(nil, from, s, gap))
		}
	}
	for size := 0; len(events)-before < takeEvents && size < takeBytes; {
		i, r := l.next(from)
		if r == nil {
			break
		}
		from[i]++
		events = append(events, r.event)
		size += len(r.event)
	}
	if len(events) > before || l.ended {
		return events, from, nil
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return events, from, l.changed
}

// next returns the first line after a place, of either stream.
func (l *logStore) next(from logPosition) (i int, first *record) {
	for k := range l.kept {
		h := &l.kept[k]
		if at := from[k] - h.dropped; at < len(h.records) {
			if r := &h.records[at]; first == nil || r.number < first.number {
				i, first = k, r
			}
		}
	}
	return i, first
}
