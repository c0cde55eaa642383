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

// maxLogLine is the longest line that is kept as one, in bytes. A longer one is
// kept in pieces.
const maxLogLine = 1 << 20

// blockSize is the memory that lines are kept in, a block at a time.
const blockSize = 64 << 10

// place is a place in a process's log: how many lines of stdout and of stderr
// come before it. Its text is what events have as their id, so that a client
// that comes back goes on exactly where it was.
type place [2]int

// String is the form of an id: "3-1".
func (p place) String() string { return string(p.append(nil)) }

func (p place) append(b []byte) []byte {
	b = strconv.AppendInt(b, int64(p[0]), 10)
	b = append(b, '-')
	return strconv.AppendInt(b, int64(p[1]), 10)
}

var errPlace = errors.New("not the id of an event of this log")

// parsePlace reads what String wrote, and nothing else.
func parsePlace(s string) (p place, err error) {
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

// index is a stream's index in a place.
func index(s sandbar.Stream) int { return int(s) - 1 }

// streams are the streams by their index.
var streams = [2]sandbar.Stream{sandbar.Stdout, sandbar.Stderr}

// logStore keeps the last lines of a process, each as the event that it will
// be sent as. It is the engine's Sink: it never waits for a reader, and takes
// everything; what is too much pushes out the oldest. Readers have places of
// their own and do not know of each other.
type logStore struct {
	keepLines int
	keepBytes int64
	total     *budget

	mu      sync.Mutex
	lines   [2]lines
	kept    [2]history
	at      place // the end
	time    []byte
	scratch []byte
	block   []byte        // the unused rest of the newest block
	ended   bool          // nothing more will come
	free    bool          // not counted in total any more
	changed chan struct{} // closed when something comes; nil if nobody waits
}

// budget is what the logs of all processes may hold together, in bytes. One of
// them may go on beyond it up to its even share, so that the logs of processes
// that have ended cannot silence those that run.
type budget struct {
	most  int64
	share int64 // of one output
	used  atomic.Int64
}

// maxRunning is how many processes the engine lets run at once in a sandbox.
const maxRunning = 256

func newBudget(o Options) *budget {
	return &budget{most: o.KeepTotal, share: o.KeepTotal / int64(2*(maxRunning+max(o.KeepFinished, 0)))}
}

// over reports whether an output that holds so much has to let go of some.
func (b *budget) over(held int64) bool { return held > b.share && b.used.Load() > b.most }

// history is what is kept of one output.
type history struct {
	dropped int // lines before the first that is kept
	records []record
	bytes   int64
}

// record is one line. Its event never changes once it is kept.
type record struct {
	number int // of lines of both streams, in the order in which they came
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

// Output implements engine.Sink. All lines of a chunk came at the same time.
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

// end keeps the last lines and says that nothing more will come. It calls tell
// before any reader can know.
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

// stamp notes the time of what comes now: RFC 3339 with all nanoseconds.
func (l *logStore) stamp() {
	l.time = time.Now().UTC().AppendFormat(l.time[:0], "2006-01-02T15:04:05.000000000Z")
}

// keep keeps a line and drops what is then too much.
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

// release gives back what the log has of the budget: it has been forgotten, and
// goes with its last reader. It has ended.
func (l *logStore) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.free {
		l.free = true
		l.total.used.Add(-l.kept[0].bytes - l.kept[1].bytes)
	}
}

// drop drops the oldest line and returns how much it was.
func (h *history) drop() int64 {
	size := int64(len(h.records[0].event))
	h.bytes -= size
	h.records[0] = record{} // the memory goes as soon as no reader needs it
	h.records = h.records[1:]
	h.dropped++
	return size
}

// appendLog makes the event of a line.
func appendLog(b []byte, at place, time []byte, s sandbar.Stream, line []byte, partial bool) []byte {
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

// appendGap makes the event that says how many lines of a stream are no longer
// kept. It has no member "stream": clients take what has one for a line.
func appendGap(b []byte, at place, s sandbar.Stream, lines int) []byte {
	b = at.append(append(b, "id: "...))
	b = append(b, "\nevent: gap\ndata: {\"lost\":"...)
	b = strconv.AppendInt(b, int64(lines), 10)
	b = append(b, ",\"of\":\""...)
	return append(append(b, s.String()...), "\"}\n\n"...)
}

// store copies b to where it stays.
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

// valid reports whether a place may have been given to a client.
func (l *logStore) valid(p place) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return p[0] <= l.at[0] && p[1] <= l.at[1]
}

// What a reader takes at once.
const (
	takeEvents = 1024
	takeBytes  = 64 << 10
)

// take appends to events what comes after a place, in the order in which it
// came, and returns the place after it. When there is nothing it returns a
// channel that is closed when there is more, or nil if nothing more will come.
func (l *logStore) take(events [][]byte, from place) (_ [][]byte, _ place, more <-chan struct{}) {
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

// next returns the first line after a place, of whichever stream.
func (l *logStore) next(from place) (i int, first *record) {
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
