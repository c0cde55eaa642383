package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// small is a configuration with few slots.
func small(places, queue int) func(*engine.Config) {
	return func(c *engine.Config) { c.MaxSandboxes, c.MaxQueue = places, queue }
}

func TestQueueIsFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		r := newRig(t, d, small(2, 100))
		var mu sync.Mutex
		var order []int
		var answers []<-chan answer
		for i := range 20 {
			x := r.admit(command("sleep", "1s"))
			sink := newRecorder()
			answers = append(answers, run(x, sink))
			go func() {
				<-sink.started
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i/2)
			}()
		}
		synctest.Wait()
		if s := r.Stats(); s != (engine.Stats{Active: 2, Queued: 18, Capacity: 2}) {
			t.Errorf("%+v", s)
		}
		for _, a := range answers {
			(<-a).want(t, sandbar.Exited)
		}
		synctest.Wait()
		if !slices.IsSorted(order) || len(order) != 20 {
			t.Errorf("pairs were started in the order %v", order)
		}
	})
}

// Slots are taken by Admit, not by Run.
func TestOrderIsThatOfAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), small(1, 10))
		first, second := r.admit(command("exit", "1")), r.admit(command("exit", "2"))
		b := run(second, nil)
		time.Sleep(time.Second)
		select {
		case <-b:
			t.Fatal("the second overtook the first")
		default:
		}
		a := run(first, nil)
		(<-a).want(t, sandbar.Exited)
		(<-b).want(t, sandbar.Exited)
	})
}

func TestFullQueueRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), small(2, 3))
		var xs []*engine.Execution
		for range 5 {
			xs = append(xs, r.admit(command("sleep", "1s")))
		}
		_, err := r.Admit(command("exit", "0"))
		wantCode(t, err, sandbar.Exhausted)
		for _, says := range []string{"2 slots", "3 waiting"} {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%q does not say %q", err, says)
			}
		}
		_, err = r.Create(t.Context(), sandbar.Spec{})
		wantCode(t, err, sandbar.Exhausted)
		xs[4].Cancel()
		xs[4] = r.admit(command("exit", "0")) // one was withdrawn, so one more is admitted
		var as []<-chan answer
		for _, x := range xs {
			as = append(as, run(x, nil))
		}
		for _, a := range as {
			(<-a).want(t, sandbar.Exited)
		}
	})
	inBubble(t, "no queue at all", func(t *testing.T) {
		r := newRig(t, faulty.New(), small(1, -1))
		x := r.admit(command("exit", "0"))
		_, err := r.Admit(command("exit", "0"))
		wantCode(t, err, sandbar.Exhausted)
		x.Cancel()
		r.admit(command("exit", "0")).Cancel()
	})
}

func TestQueueTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		r := newRig(t, d, func(c *engine.Config) { c.MaxSandboxes, c.QueueTimeout = 1, 5*time.Second })
		holder := run(r.admit(command("sleep", "20s")), nil)
		x := r.admit(command("exit", "0"))
		time.Sleep(2 * time.Second) // the wait counts from Admit
		began := time.Now()
		_, err := x.Run(nil)
		wantCode(t, err, sandbar.Timeout)
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("took %v", took)
		}
		began = time.Now()
		_, err = r.Create(t.Context(), sandbar.Spec{})
		wantCode(t, err, sandbar.Timeout)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("took %v", took)
		}
		if s := r.Stats(); s.Queued != 0 {
			t.Errorf("%+v", s)
		}
		(<-holder).want(t, sandbar.Exited)
		if c := d.Counts(); c.Created != 1 {
			t.Errorf("%d sandboxes were made", c.Created)
		}
	})
}

// One-shot executions and long-lived sandboxes share the slots.
func TestPlacesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), small(2, 10))
		a, b := r.create(), r.create()
		waits := run(r.admit(command("exit", "0")), nil)
		synctest.Wait()
		if s := r.Stats(); s != (engine.Stats{Queued: 1, Sandboxes: 2, Capacity: 2}) {
			t.Errorf("%+v", s)
		}
		if err := r.Stop(t.Context(), a.ID()); err != nil {
			t.Fatal(err)
		}
		(<-waits).want(t, sandbar.Exited)
		if err := r.Stop(t.Context(), b.ID()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCreateCanBeCalledOff(t *testing.T) {
	for _, stage := range []string{"queued", "creating"} {
		inBubble(t, stage, func(t *testing.T) {
			d := faulty.New()
			r := newRig(t, d, small(1, 10))
			if stage == "queued" {
				x := r.admit(command("exit", "0"))
				defer x.Cancel()
			} else {
				d.OnCreate = faulty.Stall(nil)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := r.Create(ctx, sandbar.Spec{})
			wantCode(t, err, sandbar.Canceled)
			if s := r.Stats(); s.Queued != 0 || s.Sandboxes != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
	inBubble(t, "creating, and the driver is deaf", func(t *testing.T) {
		d, release := faulty.New(), make(chan struct{})
		d.AfterCreate = faulty.Block(release)
		r := newRig(t, d, small(1, 10))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.Create(ctx, sandbar.Spec{})
		wantCode(t, err, sandbar.Canceled)
		waits := run(r.admit(command("exit", "0")), nil)
		time.Sleep(time.Second)
		if s := r.Stats(); s.Queued != 1 {
			t.Errorf("the place was given away while the driver is still at it: %+v", s)
		}
		close(release)
		(<-waits).want(t, sandbar.Exited)
	})
}

// A thousand real concurrent executions at the limit: every slot is used, no slot is used twice,
// and all end.
func TestThousandAtTheCap(t *testing.T) {
	d := faulty.New()
	r := newRig(t, d, small(8, 1000))
	type count struct {
		sync.Mutex
		ok, refused, other int
	}
	var n count
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() {
			_, err := r.Run(t.Context(), command("exit", fmt.Sprint(i%256)), nil)
			n.Lock()
			defer n.Unlock()
			switch {
			case err == nil:
				n.ok++
			case sandbar.CodeOf(err) == sandbar.Exhausted:
				n.refused++
			default:
				n.other++
				t.Error(err)
			}
		})
	}
	for range 200 {
		s := r.Stats()
		if s.Active > 8 || s.Queued > 1000 {
			t.Fatalf("%+v", s)
		}
		if c := d.Counts(); c.Sandboxes > 8 {
			t.Fatalf("%d sandboxes at once", c.Sandboxes)
		}
	}
	all.Wait()
	if n.ok != 1000 {
		t.Errorf("%d ok, %d refused, %d other", n.ok, n.refused, n.other)
	}
}

// Every program has its own exit code, whatever runs beside it. Its Sink gets Started, however
// short the program is.
func TestExitCodesAreNotMixedUp(t *testing.T) {
	r := newRig(t, faulty.New(), small(64, 1000))
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() {
			sink := newRecorder()
			got, err := r.Run(t.Context(), command("exit", fmt.Sprint(i%256)), sink)
			select {
			case <-sink.started:
			default:
				t.Error("a result without Started")
			}
			if err != nil || got.ExitCode != i%256 {
				t.Errorf("exit %d: %+v, %v", i%256, got, err)
			}
		})
	}
	all.Wait()
}

// Cancellations race with every stage of an execution. There is always one answer and one
// observation, and nothing remains.
func TestCancelRaces(t *testing.T) {
	d := faulty.New()
	d.OnDestroy = faulty.FailFirst(8, errors.New("busy"))
	r := newRig(t, d, small(4, 1000))
	const n = 400
	var all sync.WaitGroup
	for i := range n {
		x := r.admit(script("ignore-term\nprint stdout x\nsleep 1ms\nexit 0"))
		all.Go(func() {
			_, err := x.Run(newRecorder())
			if err != nil && sandbar.CodeOf(err) != sandbar.Canceled {
				t.Error(err)
			}
		})
		all.Go(func() {
			time.Sleep(time.Duration(i%7) * 300 * time.Microsecond)
			if i%2 == 0 {
				x.Cancel()
			} else {
				x.Kill()
			}
		})
		all.Go(x.Kill)
	}
	all.Wait()
	if o := len(r.observed()); o != n {
		t.Errorf("%d observations of %d executions", o, n)
	}
}
