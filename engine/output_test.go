package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// The output limit is exact to the byte, over both streams together.
func TestOutputCapIsExact(t *testing.T) {
	const limit = 100_000 // not a multiple of any buffer
	for _, c := range []struct {
		stdout, stderr int64
		over           bool
	}{
		{0, 0, false}, {1, 0, false}, {limit - 1, 0, false}, {limit, 0, false}, {limit + 1, 0, true}, {10 * limit, 0, true},
		{0, limit - 1, false}, {0, limit, false}, {0, limit + 1, true},
		{limit / 2, limit / 2, false}, {limit/2 + 1, limit / 2, true}, {limit - 1, 1, false}, {limit, 1, true}, {1, limit, true},
		{5 * limit, 5 * limit, true},
	} {
		inBubble(t, fmt.Sprintf("%d and %d", c.stdout, c.stderr), func(t *testing.T) {
			r := newRig(t, faulty.New(), nil)
			job := script(fmt.Sprintf("flood stdout %d\nflood stderr %d\nsleep 1s\nexit 6", c.stdout, c.stderr))
			job.Spec.Limits.Output = limit
			sink := newRecorder()
			got, err := r.Run(t.Context(), job, sink)
			if err != nil {
				t.Fatal(err)
			}
			sink.check(t)
			sum := int64(len(sink.text(sandbar.Stdout)) + len(sink.text(sandbar.Stderr)))
			if sum != got.StdoutBytes+got.StderrBytes {
				t.Errorf("%d bytes delivered, result says %d and %d", sum, got.StdoutBytes, got.StderrBytes)
			}
			for _, s := range []sandbar.Stream{sandbar.Stdout, sandbar.Stderr} {
				checkPattern(t, sink.text(s), 0)
			}
			if c.over {
				if got.Outcome != sandbar.OutputLimit || sum != limit || got.DroppedBytes < 1 || got.Signal != 9 {
					t.Errorf("%d delivered, result %+v", sum, got)
				}
				return
			}
			if got.Outcome != sandbar.Exited || got.ExitCode != 6 || sum != c.stdout+c.stderr || got.DroppedBytes != 0 {
				t.Errorf("%d delivered, result %+v", sum, got)
			}
		})
	}
}

func checkPattern(t *testing.T, text string, offset int64) {
	t.Helper()
	for i := range len(text) {
		if text[i] != faulty.Pattern(offset+int64(i)) {
			t.Fatalf("byte %d is %q", offset+int64(i), text[i])
		}
	}
}

// Output beyond the limit is counted. Here the program has written all of it before it is killed.
func TestDroppedBytesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), nil)
		job := script("write stdout 0123456789\nwrite stdout abc\nwrite stderr de\nexit 0")
		job.Spec.Limits.Output = 8
		sink := newRecorder()
		sink.pause = time.Second // nothing is read before the program has ended
		got, err := r.Run(t.Context(), job, sink)
		answer{got, err}.want(t, sandbar.OutputLimit)
		// Whichever stream is first, delivered and dropped bytes add up to the whole output.
		if n := got.StdoutBytes + got.StderrBytes; n != 8 || got.DroppedBytes != 7 {
			t.Errorf("%+v", got)
		}
	})
}

func TestUnlimitedOutputWhereTheOperatorAllowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), func(c *engine.Config) { c.Max.Output = sandbar.Unlimited })
		job := script("flood stdout 5000000")
		job.Spec.Limits.Output = sandbar.Unlimited
		got, err := r.Run(t.Context(), job, nil)
		answer{got, err}.want(t, sandbar.Exited)
		if got.StdoutBytes != 5_000_000 {
			t.Errorf("%+v", got)
		}
	})
}

// A sink that blocks also blocks the program after a pipe and a chunk, so memory is bounded.
func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		r := newRig(t, d, nil)
		job := script("flood stdout 60000000\nexit 1")
		job.Spec.Limits.Output = 64 << 20
		sink := newRecorder()
		sink.hold = make(chan struct{})
		a := run(r.admit(job), sink)
		synctest.Wait()
		if w := d.Written(); w > 3*32<<10 {
			t.Errorf("%d bytes were taken while the receiver took none", w)
		}
		close(sink.hold)
		got := <-a
		got.want(t, sandbar.Exited)
		if got.StdoutBytes != 60_000_000 {
			t.Errorf("%+v", got.Result)
		}
	})
}

// A sink that blocks for ever does not prevent the time limit or a cancellation from killing the
// program. The result is available when the sink returns.
func TestBlockedSink(t *testing.T) {
	for _, c := range []struct {
		name   string
		action func(*engine.Execution)
		want   sandbar.Outcome
	}{
		{"timeout", func(*engine.Execution) {}, sandbar.TimedOut},
		{"cancel", (*engine.Execution).Cancel, sandbar.Cancelled},
		{"kill", (*engine.Execution).Kill, sandbar.Cancelled},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			d := faulty.New()
			r := newRig(t, d, nil)
			sink := newRecorder()
			sink.hold = make(chan struct{})
			x := r.admit(limited(10*time.Second, "ignore-term\nflood stdout 1000000"))
			a := run(x, sink)
			synctest.Wait()
			c.action(x)
			time.Sleep(11 * time.Second)
			if n := d.Counts().Processes; n != 0 {
				t.Errorf("%d programs are alive though their time is up", n)
			}
			time.Sleep(time.Hour)
			select {
			case <-a:
				t.Fatal("the result came while the sink was in a call")
			default:
			}
			close(sink.hold)
			got := <-a
			got.want(t, c.want)
			sink.check(t)
			// The bytes in the pipe were delivered without loss.
			if n := int64(len(sink.text(sandbar.Stdout))); n != got.StdoutBytes || n != d.Written() {
				t.Errorf("%d delivered, %d counted, %d written", n, got.StdoutBytes, d.Written())
			}
		})
	}
}

// A slow sink gets all output of a program that ended in time, even if reading takes longer than
// the time limit.
func TestSlowSinkGetsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), nil)
		sink := newRecorder()
		sink.pause = 20 * time.Second
		got, err := r.Run(t.Context(), limited(time.Second, "flood stdout 60000\nflood stderr 60000\nexit 2"), sink)
		answer{got, err}.want(t, sandbar.Exited)
		sink.check(t)
		if len(sink.text(sandbar.Stdout)) != 60_000 || len(sink.text(sandbar.Stderr)) != 60_000 {
			t.Errorf("%+v", got)
		}
	})
}

// A stream that is not read does not block the other.
func TestStreamsAreReadTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), nil)
		sink := newRecorder()
		got, err := r.Run(t.Context(), script("repeat 50 write stdout a\nflood stderr 200000\nrepeat 50 write stdout b"), sink)
		answer{got, err}.want(t, sandbar.Exited)
		sink.check(t)
		if sink.text(sandbar.Stdout) != strings.Repeat("a", 50)+strings.Repeat("b", 50) || got.StderrBytes != 200_000 {
			t.Errorf("%+v", got)
		}
	})
}

// An error of the sink cancels; a panic is an Internal error. The sink is not called again.
func TestFailingSink(t *testing.T) {
	for _, boom := range []bool{false, true} {
		for _, failAt := range []int{1, 3} {
			inBubble(t, fmt.Sprintf("panic=%v at %d", boom, failAt), func(t *testing.T) {
				d := faulty.New()
				r := newRig(t, d, nil)
				sink := newRecorder()
				sink.failAt, sink.boom = failAt, boom
				began := time.Now()
				got, err := r.Run(t.Context(), script("ignore-term\nrepeat 100000 write stdout abc\nflood stderr 1000000\nsleep 1h"), sink)
				if boom {
					wantCode(t, err, sandbar.Internal)
				} else {
					answer{got, err}.want(t, sandbar.Cancelled)
				}
				sink.check(t)
				if took := time.Since(began); took != 500*time.Millisecond {
					t.Errorf("took %v, want the grace", took)
				}
			})
		}
	}
	inBubble(t, "panic in Started", func(t *testing.T) {
		r := newRig(t, faulty.New(), nil)
		_, err := r.Run(t.Context(), script("sleep 1h"), explosive{})
		wantCode(t, err, sandbar.Internal)
	})
}

type explosive struct{}

func (explosive) Started()                   { panic("at once") }
func (explosive) Output(sandbar.Chunk) error { return nil }

// A slow Started does not stop the time limit, and no output arrives before Started has returned.
func TestSlowStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		r := newRig(t, d, nil)
		sink := &sleepy{recorder: newRecorder(), d: time.Minute}
		a := run(r.admit(limited(time.Second, "print stdout x\nsleep 1h")), sink)
		time.Sleep(2 * time.Second)
		if d.Counts().Processes != 0 {
			t.Error("the program outlived its time")
		}
		got := <-a
		got.want(t, sandbar.TimedOut)
		sink.check(t)
		if sink.text(sandbar.Stdout) != "x\n" {
			t.Errorf("output %q", sink.text(sandbar.Stdout))
		}
	})
}

type sleepy struct {
	*recorder
	d time.Duration
}

func (s *sleepy) Started() {
	time.Sleep(s.d)
	s.recorder.Started()
}

// Incomplete UTF-8 is passed on unchanged; protocols handle it.
func TestChunksKeepBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), nil)
		sink := newRecorder()
		_, err := r.Run(t.Context(), script("dribble stdout \"äöü€😀\" 10ms"), sink)
		if err != nil {
			t.Fatal(err)
		}
		if sink.text(sandbar.Stdout) != "äöü€😀" || sink.calls != len("äöü€😀") {
			t.Errorf("%q in %d calls", sink.text(sandbar.Stdout), sink.calls)
		}
	})
}

// An input that blocks for ever blocks nothing else.
func TestBlockedStdin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), nil)
		job := limited(time.Second, "echo-stdin")
		job.Stdin = endless{t.Context()}
		began := time.Now()
		got, err := r.Run(t.Context(), job, nil)
		answer{got, err}.want(t, sandbar.TimedOut)
		if took := time.Since(began); took != time.Second {
			t.Errorf("took %v", took)
		}
	})
}
