package engine

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// nothing is a claim that takes nothing of a quota.
var nothing claim

// The precedence of outcomes, one combination per row. at is the time of the engine's decision,
// ended the program's duration; 0 is unknown.
func TestDecide(t *testing.T) {
	const at = time.Second
	for _, c := range []struct {
		name                string
		saw                 sandbar.Outcome
		ended               time.Duration
		cancelled, timedOut time.Duration
		over                bool
		want                sandbar.Outcome
	}{
		{"nothing", sandbar.Exited, at, never, never, false, sandbar.Exited},
		{"cancelled", sandbar.Signaled, at + 1, at, never, false, sandbar.Cancelled},
		{"cancelled, left by itself in the grace", sandbar.Exited, at + 1, at, never, false, sandbar.Cancelled},
		{"cancelled at once", sandbar.Signaled, at, at, never, false, sandbar.Cancelled},
		{"cancelled too late", sandbar.Exited, at - 1, at, never, false, sandbar.Exited},
		{"cancelled, end unknown", sandbar.Lost, 0, at, never, false, sandbar.Cancelled},
		{"timed out", sandbar.Signaled, at + 1, never, at, false, sandbar.TimedOut},
		{"timed out too late", sandbar.Exited, at - 1, never, at, false, sandbar.Exited},
		{"timed out and oom", sandbar.OutOfMemory, at + 1, never, at, false, sandbar.TimedOut},
		{"oom, then timed out", sandbar.OutOfMemory, at - 1, never, at, false, sandbar.OutOfMemory},
		{"timed out, then cancelled", sandbar.Signaled, 3 * at, 2 * at, at, false, sandbar.Cancelled},
		{"timed out, cancelled too late", sandbar.Signaled, at + 1, 2 * at, at, false, sandbar.TimedOut},
		{"cancelled, timed out too late", sandbar.Signaled, at + 1, at, 2 * at, false, sandbar.Cancelled},
		{"both too late", sandbar.Signaled, at - 1, at, at, false, sandbar.Signaled},
		{"over", sandbar.Signaled, at, never, never, true, sandbar.OutputLimit},
		{"over, though it had left", sandbar.Exited, at, never, never, true, sandbar.OutputLimit},
		{"over and oom", sandbar.OutOfMemory, at, never, never, true, sandbar.OutputLimit},
		{"over and lost", sandbar.Lost, at, never, never, true, sandbar.OutputLimit},
		{"over and timed out", sandbar.Signaled, at + 1, never, at, true, sandbar.TimedOut},
		{"over, timed out too late", sandbar.Signaled, at - 1, never, at, true, sandbar.OutputLimit},
		{"over and cancelled", sandbar.Signaled, at + 1, at, never, true, sandbar.Cancelled},
		{"everything", sandbar.OutOfMemory, 2 * at, at, at, true, sandbar.Cancelled},
		{"lost", sandbar.Lost, at, never, never, false, sandbar.Lost},
		{"lost, then timed out", sandbar.Lost, at - 1, never, at, false, sandbar.Lost},
		{"marks at the very start", sandbar.Signaled, 5, 0, never, false, sandbar.Cancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := decide(sandbar.Result{Outcome: c.saw, Duration: c.ended}, decisions{c.cancelled, c.timedOut, c.over})
			if got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// Every outcome of the driver passes through if the engine decided nothing.
func TestDecideKeepsWhatTheDriverSaw(t *testing.T) {
	for _, o := range sandbar.Outcomes {
		if got := decide(sandbar.Result{Outcome: o, Duration: 1}, decisions{never, never, false}); got != o {
			t.Errorf("%v became %v", o, got)
		}
	}
}

// A ring holds the tail of the written bytes for all sizes of writes. A read from any offset
// returns exactly these bytes or starts at the tail.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := ring{max: rapid.IntRange(1, 20_000).Draw(t, "max")}
		var all []byte
		for range rapid.IntRange(0, 30).Draw(t, "writes") {
			n := rapid.OneOf(rapid.IntRange(0, 10), rapid.IntRange(0, 30_000)).Draw(t, "size")
			for range n {
				all = append(all, byte(len(all)*7+len(all)>>8))
			}
			r.write(all[len(all)-n:])
			if len(r.buf) > r.max {
				t.Fatalf("%d bytes are held, at most %d are allowed", len(r.buf), r.max)
			}
			from := rapid.Int64Range(0, int64(len(all))+3).Draw(t, "from")
			buf := make([]byte, rapid.IntRange(1, 40_000).Draw(t, "buffer"))
			at, got := r.read(from, buf)
			tail := int64(max(0, len(all)-r.max))
			if at != max(from, tail) {
				t.Fatalf("read from %d of %d gave offset %d", from, len(all), at)
			}
			var want []byte
			if at < int64(len(all)) {
				want = all[at:min(int64(len(all)), at+int64(len(buf)))]
			}
			if !bytes.Equal(buf[:got], want) {
				t.Fatalf("read from %d gave the wrong %d bytes", from, got)
			}
		}
	})
}

// Followers start at any time, from any offset, at any speed. Each gets, for each stream, the bytes
// at their offsets, gaps only where the ring has dropped bytes, and the last byte.
func TestFollow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keep := rapid.SampledFrom([]int{1, 7, 100, 5000, 1 << 20}).Draw(t, "keep")
		r := newReplay(keep)
		var all [3][]byte
		write := func(s sandbar.Stream, n int) {
			at := len(all[s])
			for i := range n {
				all[s] = append(all[s], byte((at+i)*13+int(s)))
			}
			if n > 0 {
				_ = r.Output(sandbar.Chunk{Stream: s, Offset: int64(at), Data: all[s][at:]})
			}
		}
		sizes := rapid.SliceOfN(rapid.IntRange(0, 3000), 1, 40).Draw(t, "sizes")
		split := rapid.IntRange(0, len(sizes)).Draw(t, "before")
		for i, n := range sizes[:split] {
			write(sandbar.Stream(i%2+1), n)
		}
		type follower struct {
			from Offsets
			got  []sandbar.Chunk
			err  error
		}
		done := make(chan *follower, 3)
		for range cap(done) {
			f := &follower{from: Offsets{rapid.Int64Range(0, 4000).Draw(t, "stdout"), rapid.Int64Range(0, 4000).Draw(t, "stderr")}}
			yield := rapid.Bool().Draw(t, "slow")
			go func() {
				f.err = r.follow(context.Background(), f.from, func(c sandbar.Chunk) error {
					c.Data = bytes.Clone(c.Data)
					f.got = append(f.got, c)
					if yield {
						time.Sleep(time.Microsecond)
					}
					return nil
				})
				done <- f
			}()
		}
		for i, n := range sizes[split:] {
			write(sandbar.Stream(i%2+1), n)
		}
		r.end()
		for range cap(done) {
			f := <-done
			if f.err != nil {
				t.Fatal(f.err)
			}
			at := [3]int64{0, f.from.Stdout, f.from.Stderr}
			for _, c := range f.got {
				if c.Offset < at[c.Stream] || (c.Offset > at[c.Stream] && int64(len(all[c.Stream]))-at[c.Stream] <= int64(keep)) {
					t.Fatalf("%v: chunk at %d, expected %d", c.Stream, c.Offset, at[c.Stream])
				}
				if !bytes.Equal(c.Data, all[c.Stream][c.Offset:c.Offset+int64(len(c.Data))]) {
					t.Fatalf("%v: wrong bytes at %d", c.Stream, c.Offset)
				}
				at[c.Stream] = c.Offset + int64(len(c.Data))
			}
			for _, s := range []sandbar.Stream{sandbar.Stdout, sandbar.Stderr} {
				if end := int64(len(all[s])); at[s] < end {
					t.Fatalf("%v: ended at %d of %d", s, at[s], end)
				}
			}
		}
	})
}

// For any sequence of arrivals and departures, a queue has no more tickets than slots, no free slot
// while a ticket waits, and keeps the order.
func TestQueueModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		places, longest := rapid.IntRange(1, 4).Draw(t, "places"), rapid.IntRange(0, 4).Draw(t, "longest")
		left, entered := 0, 0
		q := newQueue(places, longest, nil, func() { left++ })
		var holding, waiting []*ticket // the model
		has := func(k *ticket) bool {
			select {
			case <-k.granted:
				return true
			default:
				return false
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				k, err := q.enter(kind(rapid.IntRange(0, 1).Draw(t, "kind")), sandbar.Client{}, nothing)
				switch {
				case len(holding) < places:
					holding = append(holding, k)
				case len(waiting) < longest:
					waiting = append(waiting, k)
				case sandbar.CodeOf(err) != sandbar.Exhausted:
					t.Fatalf("a full queue said %v", err)
				default:
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				entered++
			},
			"release": func(t *rapid.T) {
				if len(holding) == 0 {
					return
				}
				i := rapid.IntRange(0, len(holding)-1).Draw(t, "who")
				k := holding[i]
				holding = append(holding[:i:i], holding[i+1:]...)
				k.leave()
				k.leave() // has no effect
				if len(waiting) > 0 {
					holding, waiting = append(holding, waiting[0]), waiting[1:]
				}
			},
			"give up": func(t *rapid.T) {
				if len(waiting) == 0 {
					return
				}
				i := rapid.IntRange(0, len(waiting)-1).Draw(t, "who")
				waiting[i].leave()
				waiting[i].leave()
				waiting = append(waiting[:i:i], waiting[i+1:]...)
			},
			"": func(t *rapid.T) {
				taken, line := q.load()
				if taken[oneShot]+taken[longLived] != len(holding) || line != len(waiting) || left != entered-len(holding)-len(waiting) {
					t.Fatalf("%v taken, %d waiting, %d left; the model has %d, %d, %d", taken, line, left, len(holding), len(waiting), entered)
				}
				for _, k := range holding {
					if !has(k) {
						t.Fatal("somebody should have a place and has none")
					}
				}
				for _, k := range waiting {
					if has(k) {
						t.Fatal("somebody was let in out of turn")
					}
				}
			},
		})
	})
}

// Clients with and without limits, each with several flows: no client exceeds its limit, no ticket
// below its client's limit waits while a slot is free, the order within a flow is kept, and no
// client is served twice while another waits that could be served.
func TestSharesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		places := rapid.IntRange(1, 4).Draw(t, "places")
		bounds := map[string]ClientLimits{"a": {MaxSandboxes: rapid.IntRange(1, 3).Draw(t, "most")}}
		q := newQueue(places, 100, bounds, func() {})
		type claim struct {
			*ticket
			c   sandbar.Client
			had bool
		}
		var claims []*claim // in the order of arrival
		has := func(k *claim) bool {
			select {
			case <-k.granted:
				return true
			default:
				return false
			}
		}
		full := func(name string) bool {
			n := 0
			for _, k := range claims {
				if k.had && k.c.Name == name {
					n++
				}
			}
			return bounds[name].MaxSandboxes > 0 && n >= bounds[name].MaxSandboxes
		}
		passed := map[string]map[string]bool{} // by waiting client: the clients served since
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				c := sandbar.Client{Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"), Flow: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "flow")}
				k, err := q.enter(oneShot, c, nothing)
				if err != nil {
					t.Fatal(err)
				}
				claims = append(claims, &claim{ticket: k, c: c})
			},
			"leave": func(t *rapid.T) {
				if len(claims) == 0 {
					return
				}
				i := rapid.IntRange(0, len(claims)-1).Draw(t, "who")
				k := claims[i]
				claims = append(claims[:i:i], claims[i+1:]...)
				k.leave()
			},
			"": func(t *rapid.T) {
				busy := 0
				for i, k := range claims {
					if !has(k) {
						continue
					}
					busy++
					if k.had {
						continue
					}
					k.had = true
					for _, before := range claims[:i] {
						if before.c == k.c && !has(before) {
							t.Fatal("somebody overtook in his own flow")
						}
					}
					for _, other := range claims {
						name := other.c.Name
						if has(other) || name == k.c.Name || full(name) {
							continue
						}
						if passed[name] == nil {
							passed[name] = map[string]bool{}
						}
						if passed[name][k.c.Name] {
							t.Fatalf("%s was served twice while %s waited", k.c.Name, name)
						}
					}
					for name := range passed {
						passed[name][k.c.Name] = true
					}
					delete(passed, k.c.Name)
				}
				waits := map[string]bool{}
				for _, k := range claims {
					if !has(k) {
						waits[k.c.Name] = true
						if busy < places && !full(k.c.Name) {
							t.Fatalf("%s waits while %d of %d places are taken", k.c.Name, busy, places)
						}
					}
				}
				for name := range passed {
					if !waits[name] || full(name) {
						delete(passed, name)
					}
				}
				if busy > places {
					t.Fatalf("%d of %d places are taken", busy, places)
				}
				for name, b := range bounds {
					if s := q.clients[party{name: name}]; s != nil && s.taken > b.MaxSandboxes {
						t.Fatalf("%s has %d places, and may have %d", name, s.taken, b.MaxSandboxes)
					}
				}
			},
		})
		for _, k := range claims {
			k.leave()
		}
		if q.waiting != 0 || q.turns.Len() != 0 || q.takenSlots() != 0 {
			t.Fatalf("in the end %d wait, %d take turns, %d places are taken", q.waiting, q.turns.Len(), q.takenSlots())
		}
	})
}

// driver.Sized is found through trackedInput.
func TestInputTellsThatItIsWhole(t *testing.T) {
	whole := &trackedInput{from: strings.NewReader("abc")}
	w, ok := whole.reader().(driver.Sized)
	if !ok || w.Len() != 3 || whole.wasRead.Load() {
		t.Fatalf("not seen, or read (%v)", ok)
	}
	if _, err := io.ReadAll(w); err != nil || !whole.wasRead.Load() || w.Len() != 0 {
		t.Errorf("reading it: %v, %d bytes are left", err, w.Len())
	}
	if _, ok := (&trackedInput{from: io.LimitReader(nil, 0)}).reader().(driver.Sized); ok {
		t.Error("an input that may go on passes for one that is whole")
	}
	if (&trackedInput{}).reader() != nil {
		t.Error("no input became one")
	}
}

// An event allocates nothing once the log has its full size.
func TestEventsDoNotAllocate(t *testing.T) {
	e := &Engine{events: newEventLog()}
	v := Event{Type: EventProgramEnded, Sandbox: sandbar.NewID(), Program: "p1"}
	for range keptEvents {
		e.happened(v)
	}
	if n := testing.AllocsPerRun(100, func() { e.happened(v) }); n != 0 {
		t.Errorf("an event makes %v allocations", n)
	}
}

// BenchmarkEvent measures what an event costs while nobody reads.
func BenchmarkEvent(b *testing.B) {
	e := &Engine{events: newEventLog()}
	v := Event{Type: EventProgramEnded, Sandbox: sandbar.NewID(), Program: "p1"}
	b.ReportAllocs()
	for b.Loop() {
		e.happened(v)
	}
}

// untraced is a tracer for calls that it must not see.
type untraced struct{ t *testing.T }

func (u untraced) Begin(c sandbar.Client, _, _ string) (sandbar.Client, func()) { return c, func() {} }
func (u untraced) Record(x Trace)                                               { u.t.Errorf("a trace: %+v", x) }

// A call without a Tracer, and one that the Tracer has not chosen, allocates nothing for traces.
func TestUntraced(t *testing.T) {
	for name, tc := range map[string]struct {
		tracer Tracer
		client sandbar.Client
	}{
		"no tracer":  {nil, sandbar.Client{Name: "ci", Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}},
		"not chosen": {untraced{t}, sandbar.Client{Name: "ci"}},
	} {
		e := &Engine{cfg: Config{Tracer: tc.tracer}}
		if n := testing.AllocsPerRun(100, func() {
			trace := e.trace(tc.client, DidExecute)
			trace.about("native", "shell")
			trace.step(StepAdmission)
			trace.from(OriginReady)
			trace.end("sb_x", outcomeOK, nil)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
