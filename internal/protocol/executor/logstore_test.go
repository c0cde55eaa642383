package executor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
)

func (l *logStore) print(s sandbar.Stream, text string) {
	l.Output(sandbar.Chunk{Stream: s, Data: []byte(text)})
}

// newTestStore returns a log with a budget of its own.
func newTestStore(lines int, bytes int64) *logStore {
	return newLogStore(lines, bytes, newBudget(Options{KeepTotal: 1 << 40}))
}

// reader reads a log like a client, at any time.
type reader struct {
	log *logStore
	at  logPosition
}

// read returns all available events in short form: "stdout text", or "lost N of stdout".
func (r *reader) read(t testing.TB) (got []string, ended bool) {
	t.Helper()
	for {
		events, next, more := r.log.take(nil, r.at)
		for _, raw := range events {
			got = append(got, r.brief(t, string(raw)))
		}
		if r.at = next; len(events) == 0 {
			return got, more == nil
		}
	}
}

// brief checks an event's form and its id.
func (r *reader) brief(t testing.TB, raw string) string {
	t.Helper()
	s := sseReader{t: t, in: newLineReader(strings.NewReader(raw))}
	e := s.event()
	if _, err := parsePosition(e.id); err != nil {
		t.Fatalf("id %q: %v", e.id, err)
	}
	if e.name == "gap" {
		return fmt.Sprintf("lost %v of %v", e.data["lost"], e.data["of"])
	}
	brief := fmt.Sprintf("%v %v", e.data["stream"], e.data["data"])
	if e.data["partial"] == true {
		brief += "+"
	}
	return brief
}

func TestLogStore(t *testing.T) {
	l := newTestStore(3, 1<<20)
	r := &reader{log: l}
	expect := func(want ...string) {
		t.Helper()
		if got, _ := r.read(t); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	expect()
	l.print(sandbar.Stdout, "a\n")
	l.print(sandbar.Stderr, "b\n")
	l.print(sandbar.Stdout, "c\nd")
	expect("stdout a", "stderr b", "stdout c")
	expect()
	l.print(sandbar.Stderr, "e\n")
	l.print(sandbar.Stdout, "!\n")
	expect("stderr e", "stdout d!")
	for i := range 5 {
		l.print(sandbar.Stdout, fmt.Sprintln("f", i))
	}
	l.print(sandbar.Stderr, "g\n")
	expect("lost 2 of stdout", "stdout f 2", "stdout f 3", "stdout f 4", "stderr g")
	late := &reader{log: l}
	if got, _ := late.read(t); !slices.Equal(got, []string{"lost 5 of stdout", "stderr b", "stderr e", "stdout f 2", "stdout f 3", "stdout f 4", "stderr g"}) {
		t.Errorf("late: %q", got)
	}
	l.print(sandbar.Stdout, "last")
	l.end(func() {})
	got, ended := r.read(t)
	if !slices.Equal(got, []string{"stdout last"}) || !ended {
		t.Errorf("at the end: %q, %v", got, ended)
	}
}

// TestLogStoreBytes tests that bytes are bounded as well as lines, and that one line is kept
// whatever its length.
func TestLogStoreBytes(t *testing.T) {
	l := newTestStore(1000, 10_000)
	for i := range 100 {
		l.print(sandbar.Stdout, fmt.Sprintf("%04d%s\n", i, strings.Repeat("x", 996)))
	}
	if n := len(l.kept[0].records); n < 5 || n > 10 || l.kept[0].bytes > 10_000 || l.kept[0].dropped != 100-n {
		t.Errorf("%d lines of 1000 bytes are kept, %d bytes; %d are said to be dropped", n, l.kept[0].bytes, l.kept[0].dropped)
	}
	l.print(sandbar.Stdout, strings.Repeat("y", 100_000)+"\n")
	if n := len(l.kept[0].records); n != 1 {
		t.Errorf("%d lines are kept beside one that is too long", n)
	}
}

// TestLogStorePieces tests that a line over 1 MiB is stored in pieces, without loss.
func TestLogStorePieces(t *testing.T) {
	l := newTestStore(1000, 1<<30)
	line := strings.Repeat("0123456é", 3<<17) // a little more than 3 MiB
	for rest := line + "\nnext\n"; rest != ""; {
		n := min(32<<10, len(rest))
		l.print(sandbar.Stdout, rest[:n])
		rest = rest[n:]
	}
	var got strings.Builder
	all, _ := (&reader{log: l}).read(t)
	for i, s := range all {
		s = strings.TrimPrefix(s, "stdout ")
		text, partial := strings.CutSuffix(s, "+")
		if partial != (i < len(all)-2) {
			t.Fatalf("piece %d of %d: partial is %v", i, len(all), partial)
		}
		got.WriteString(text)
	}
	if got.String() != line+"next" {
		t.Errorf("%d bytes of %d were returned, in %d pieces", got.Len(), len(line)+4, len(all))
	}
}

// TestLogStoreReaders tests that readers of any speed, which reconnect at their position, get every
// line once and in order, or the number of lost lines.
func TestLogStoreReaders(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 50 {
		l := newTestStore(20, 1<<20)
		readers := make([]*reader, 5)
		counts := make([][2]int, len(readers)) // lines received or reported as lost, by stream
		for i := range readers {
			readers[i] = &reader{log: l}
		}
		var printed [2]int
		for step := range 300 {
			i := rng.IntN(2)
			l.print(streams[i], fmt.Sprintln(printed[i]))
			printed[i]++
			for k, r := range readers {
				if rng.IntN(5<<k) != 0 && step < 299 {
					continue
				}
				last := parsed(t, r.at.String())
				r.at = last // as after a reconnect
				got, _ := r.read(t)
				for _, g := range got {
					var n, i int
					var of string
					if _, err := fmt.Sscanf(g, "lost %d of %s", &n, &of); err == nil {
						counts[k][index(streamOf(of))] += n
						continue
					}
					fmt.Sscanf(g, "%s %d", &of, &n)
					i = index(streamOf(of))
					if n != counts[k][i] {
						t.Fatalf("round %d, reader %d: %s comes after %d", round, k, g, counts[k][i])
					}
					counts[k][i]++
				}
			}
		}
		for k := range readers {
			if counts[k] != printed {
				t.Errorf("round %d: reader %d got or missed %v of %v", round, k, counts[k], printed)
			}
		}
	}
}

func streamOf(name string) sandbar.Stream {
	if name == "stderr" {
		return sandbar.Stderr
	}
	return sandbar.Stdout
}

func parsed(t testing.TB, s string) logPosition {
	t.Helper()
	p, err := parsePosition(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestLogStoresShare tests that the sum of many logs is bounded and that each keeps its share,
// whichever came first.
func TestLogStoresShare(t *testing.T) {
	const most = 100 << 20
	b := newBudget(Options{KeepTotal: most, KeepFinished: 64})
	line := strings.Repeat("x", 1000) + "\n"
	var logs []*logStore
	held := func() (sum int64) {
		for _, l := range logs {
			sum += l.kept[0].bytes + l.kept[1].bytes
		}
		return sum
	}
	for range maxRunning + 64 {
		l := newLogStore(1<<20, 4<<20, b)
		logs = append(logs, l)
		for range 1500 {
			l.print(sandbar.Stdout, line)
		}
	}
	if n := held(); n != b.used.Load() || n > 2*most {
		t.Errorf("%d bytes are held, %d are counted, of %d", n, b.used.Load(), most)
	}
	if last := logs[len(logs)-1].kept[0]; last.bytes < b.share-2000 || len(last.records)+last.dropped != 1500 {
		t.Errorf("the last log has %d bytes of a share of %d, %d lines and %d dropped", last.bytes, b.share, len(last.records), last.dropped)
	}
	for _, l := range logs {
		l.end(func() {})
		l.release()
		l.release()
	}
	if n := b.used.Load(); n != 0 {
		t.Errorf("%d bytes are counted but not held", n)
	}
}

// TestLogStoreForgets tests that a reader that never reads holds only its position.
func TestLogStoreForgets(t *testing.T) {
	l := newTestStore(10, 1<<20)
	for i := range 100_000 {
		l.print(sandbar.Stdout, fmt.Sprintln(i))
	}
	if n := len(l.kept[0].records); n != 10 || cap(l.kept[0].records) > 100 {
		t.Errorf("%d records are kept in room for %d", n, cap(l.kept[0].records))
	}
}

// FuzzPlace tests that parsePosition accepts exactly the results of String.
func FuzzPlace(f *testing.F) {
	for _, s := range []string{"0-0", "12-7", "-1-2", "1", "1-", "01-2", "+1-2", "9223372036854775808-0", "1-2-3", "1-2 ", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePosition(s)
		if err == nil && (p.String() != s || p[0] < 0 || p[1] < 0) {
			t.Fatalf("%q is read as %v", s, p)
		}
		l := newTestStore(10, 1000)
		l.print(sandbar.Stdout, "a\nb\n")
		if err == nil && l.valid(p) {
			l.take(nil, p) // must not panic
		}
	})
}
