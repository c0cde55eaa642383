package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// step is one operation on an engine. a and b select its target.
type step struct {
	op   string
	a, b int
}

var (
	ops     = []string{"run", "run", "run", "admit", "start admitted", "cancel", "kill", "create", "exec", "start", "follow", "stop", "die", "kill templates", "wait", "wait"}
	scripts = []string{"", "exit 3", "sleep 50ms", "ignore-term\nsleep 1h", "sleep 1h", "flood stdout 1100000", "oom", "lost", "signal 11",
		"drain 200ms\nprint stderr x", "on-term exit 0\nsleep 1h", "nonsense", "fail-wait x", "panic-wait"}
	commands = [][]string{{"exit", "1"}, {"sleep", "70ms"}, {"sleep", "1h"}, {"ignore-term", ";", "sleep", "1h"},
		{"flood", "stderr", "100000"}, {"nothing-of-the-kind"}, {"lost"}}
)

// world runs steps on an engine and checks the invariants after each.
type world struct {
	*rig
	warm       *faulty.Warm
	admitted   []*engine.Execution // Run has not been called
	executions []*engine.Execution
	sandboxes  []*engine.Sandbox
	answers    []<-chan answer
	follows    []<-chan error
	programs   int // executions and programs that must be observed
	faults     []string
}

func (w *world) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

func pick[T any](s []T, i int) (v T, ok bool) {
	if len(s) == 0 {
		return v, false
	}
	return s[i%len(s)], true
}

func (w *world) do(s step) {
	switch s.op {
	case "run", "admit":
		j := limited(time.Duration(s.b%500+1)*time.Millisecond, scripts[s.a%len(scripts)])
		x, err := w.Admit(j)
		if err != nil {
			w.allow(err, sandbar.Exhausted)
			return
		}
		w.programs++
		w.executions = append(w.executions, x)
		if s.op == "admit" {
			w.admitted = append(w.admitted, x)
		} else {
			w.answers = append(w.answers, run(x, newRecorder()))
		}
	case "start admitted":
		if len(w.admitted) > 0 {
			w.answers = append(w.answers, run(w.admitted[0], nil))
			w.admitted = w.admitted[1:]
		}
	case "cancel", "kill":
		if x, ok := pick(w.executions, s.a); ok && s.op == "cancel" {
			x.Cancel()
		} else if ok {
			x.Kill()
		}
	case "create":
		w.create()
	case "kill templates":
		w.warm.KillTemplates()
	case "wait":
		time.Sleep(time.Duration(s.b%300) * time.Millisecond)
	default:
		if b, ok := pick(w.sandboxes, s.a); ok {
			w.use(b, s)
		}
	}
}

// create waits only briefly for a slot, so that waiting Creates do not fill the queue.
func (w *world) create() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	b, err := w.Create(ctx, sandbar.Spec{})
	if err != nil {
		w.allow(err, sandbar.Exhausted, sandbar.Canceled)
		return
	}
	w.sandboxes = append(w.sandboxes, b)
}

func (w *world) use(b *engine.Sandbox, s step) {
	c := cmd(commands[s.b%len(commands)]...)
	switch s.op {
	case "exec":
		w.answers = append(w.answers, exec(b, c))
	case "start":
		if _, err := b.Start(context.Background(), c, nil, sandbar.Limits{Timeout: time.Second}); err != nil {
			w.allow(err, sandbar.Gone, sandbar.Conflict, sandbar.NotFound)
		}
	case "follow":
		if p, ok := pick(b.Processes(), s.b); ok {
			done := make(chan error, 1)
			go func() {
				done <- p.Follow(context.Background(), engine.Offsets{}, func(sandbar.Chunk) error { return nil })
			}()
			w.follows = append(w.follows, done)
		}
	case "stop":
		if err := w.Stop(context.Background(), b.ID()); err != nil {
			w.allow(err, sandbar.NotFound)
		}
	case "die":
		w.driver.Die(b.ID())
	}
}

func (w *world) allow(err error, codes ...sandbar.Code) {
	if !slices.Contains(codes, sandbar.CodeOf(err)) {
		w.fault("unexpected: %v", err)
	}
}

// check checks the invariants when the engine is idle.
func (w *world) check(places, longest int) {
	s, c := w.Stats(), w.driver.Counts()
	if s.Active+s.Sandboxes+s.Ready > places || c.Sandboxes > places || s.Queued > longest || s.Removing != 0 {
		w.fault("too much: %+v, %+v", s, c)
	}
	// The driver is instant, so a request waits only if there is no free slot.
	if s.Queued > 0 && (s.Active+s.Sandboxes != places || s.Ready > 0) {
		w.fault("a place is free and somebody waits: %+v", s)
	}
	if l := len(w.List(context.Background())); l != s.Sandboxes {
		w.fault("%d listed, %d counted", l, s.Sandboxes)
	}
}

// finish ends everything and checks that each call has an answer.
func (w *world) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := w.Shutdown(ctx); err != nil {
		w.fault("shutdown: %v", err)
	}
	for _, a := range w.answers {
		got := <-a
		if got.err == nil && !slices.Contains(sandbar.Outcomes, got.Outcome) {
			w.fault("outcome %d", got.Outcome)
		} else if got.err != nil {
			// fail-wait and panic-wait cause Internal.
			w.allow(got.err, sandbar.Canceled, sandbar.Unavailable, sandbar.Gone, sandbar.Conflict, sandbar.NotFound, sandbar.Internal)
		}
	}
	for _, f := range w.follows {
		if err := <-f; err != nil {
			w.fault("follow: %v", err)
		}
	}
	n := 0
	for _, o := range w.observed() {
		if o.Language == "python" {
			n++
		}
	}
	if n != w.programs {
		w.fault("%d executions, %d observed", w.programs, n)
	}
}

// For any sequence of calls the engine's counters are right after every step, every call has one
// answer, and nothing remains: the bubble does not end while a goroutine remains.
func TestAnySequence(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		places, longest := rapid.IntRange(1, 4).Draw(rt, "places"), rapid.IntRange(1, 4).Draw(rt, "longest")
		steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
			return step{rapid.SampledFrom(ops).Draw(t, "op"), rapid.IntRange(0, 1000).Draw(t, "a"), rapid.IntRange(0, 1000).Draw(t, "b")}
		}), 1, 30).Draw(rt, "steps")
		templates := rapid.SampledFrom([][]engine.Template{nil, {{Language: "python"}, {Min: 1}}, {{Language: "python", Min: 3}, {Min: 1}}}).Draw(rt, "templates")
		var faults []string
		synctest.Test(t, func(t *testing.T) {
			d := faulty.NewWarm()
			w := &world{warm: d, rig: newRig(t, d.Driver, func(c *engine.Config) {
				small(places, longest)(c)
				c.Driver, c.Templates = d, templates
			})}
			for _, s := range steps {
				w.do(s)
				synctest.Wait()
				w.check(places, longest)
			}
			w.finish()
			if n := d.WarmCounts(); n.Live != 0 {
				w.fault("templates are left: %+v", n)
			}
			faults = w.faults
		})
		if len(faults) > 0 {
			rt.Fatalf("%q", faults)
		}
	})
}
