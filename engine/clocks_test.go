package engine_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// limited is a script with a timeout.
func limited(d time.Duration, code string) sandbar.Job {
	j := script(code)
	j.Spec.Limits.Timeout = d
	return j
}

// The bubble's fake clock makes every duration here exact.
func TestTimeout(t *testing.T) {
	const grace = 500 * time.Millisecond
	for _, c := range []struct {
		name, code string
		timeout    time.Duration
		want       sandbar.Outcome
		signal     int
		took       time.Duration
		events     []string
	}{
		{"dies of TERM", "sleep 1h", time.Second, sandbar.TimedOut, 15, time.Second,
			[]string{"create", "start", "signal 15", "end", "destroy"}},
		{"ignores TERM", "ignore-term\nsleep 1h", time.Second, sandbar.TimedOut, 9, time.Second + grace,
			[]string{"create", "start", "signal 15", "signal 9", "end", "destroy"}},
		{"leaves in its grace", "on-term exit 0\nsleep 1h", time.Second, sandbar.TimedOut, 0, time.Second,
			[]string{"create", "start", "signal 15", "end", "destroy"}},
		{"works in its grace", "on-term sleep 300ms\nsleep 1100ms\nexit 7", time.Second, sandbar.TimedOut, 0, 1300 * time.Millisecond,
			[]string{"create", "start", "signal 15", "end", "destroy"}},
		{"ends just before", "sleep 999999999ns\nexit 5", time.Second, sandbar.Exited, 0, 999999999,
			[]string{"create", "start", "end", "destroy"}},
		{"ends just after", "sleep 1000000001ns\nexit 5", time.Second, sandbar.TimedOut, 15, time.Second,
			[]string{"create", "start", "signal 15", "end", "destroy"}},
		{"ended before, delivered after", "drain 2s\nsleep 900ms\nexit 5", time.Second, sandbar.Exited, 0, 2900 * time.Millisecond,
			[]string{"create", "start", "end", "destroy"}},
		{"runs out of memory in its grace", "on-term oom\nsleep 1h", time.Second, sandbar.TimedOut, 9, time.Second,
			[]string{"create", "start", "signal 15", "end", "destroy"}},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			d := faulty.New()
			r := newRig(t, d, nil)
			began := time.Now()
			got, err := r.Run(t.Context(), limited(c.timeout, c.code), nil)
			answer{got, err}.want(t, c.want)
			if took := time.Since(began); took != c.took {
				t.Errorf("took %v, want %v", took, c.took)
			}
			if got.Signal != c.signal {
				t.Errorf("signal %d, want %d", got.Signal, c.signal)
			}
			if got.Outcome != sandbar.Exited && got.ExitCode != 0 {
				t.Errorf("an exit code %d that means nothing", got.ExitCode)
			}
			handedOver()
			if e := d.Events(); !slices.Equal(e, c.events) {
				t.Errorf("events %q, want %q", e, c.events)
			}
		})
	}
}

// The timeout runs from the program's start, not from its admission. A silent program that ends
// just before, at, or just after its time limit has exactly one outcome.
func TestEndsAroundTheDeadline(t *testing.T) {
	const limit = time.Minute
	for _, off := range []time.Duration{-time.Second, -time.Millisecond, -1, 0, 1, time.Millisecond, time.Second} {
		inBubble(t, off.String(), func(t *testing.T) {
			r := newRig(t, faulty.New(), nil)
			s := r.create()
			code := "sleep " + (limit + off).String() + "\nexit 3"
			for range 20 {
				before := len(r.observed())
				one, err := r.Run(t.Context(), limited(limit, code), nil)
				checkDeadline(t, off, answer{one, err})
				many, err := s.Exec(t.Context(), cmd("sleep", (limit+off).String(), ";", "exit", "3"), nil, sandbar.Limits{Timeout: limit}, nil)
				checkDeadline(t, off, answer{many, err})
				if n := len(r.observed()) - before; n != 2 {
					t.Errorf("two programs were observed to end %d times", n)
				}
			}
		})
	}
}

// checkDeadline checks the outcome of a program that exits with 3 this long after its time limit.
func checkDeadline(t *testing.T, off time.Duration, a answer) {
	t.Helper()
	exited := a.err == nil && a.Outcome == sandbar.Exited && a.ExitCode == 3
	timedOut := a.err == nil && a.Outcome == sandbar.TimedOut && a.ExitCode == 0
	if off < 0 && !exited || off > 0 && !timedOut || !exited && !timedOut {
		t.Errorf("ended %v after the limit: %+v, %v", off, a.Result, a.err)
	}
}

func TestTimeoutDoesNotCountQueueAndSetup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		d.OnCreate = faulty.Slow(10 * time.Second)
		r := newRig(t, d, func(c *engine.Config) { c.MaxSandboxes = 1 })
		first, second := r.admit(limited(time.Second, "sleep 900ms")), r.admit(limited(time.Second, "sleep 900ms"))
		a, b := run(first, nil), run(second, nil)
		(<-a).want(t, sandbar.Exited)
		(<-b).want(t, sandbar.Exited)
	})
}

func TestNoTimeoutWhereTheOperatorAllowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), func(c *engine.Config) { c.Max.Timeout = sandbar.Unlimited })
		got, err := r.Run(t.Context(), limited(sandbar.Unlimited, "sleep 100h"), nil)
		answer{got, err}.want(t, sandbar.Exited)
	})
}

func TestNegativeGraceIsKillAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		r := newRig(t, d, func(c *engine.Config) { c.Grace = -1 })
		got, err := r.Run(t.Context(), limited(time.Second, "on-term exit 0\nsleep 1h"), nil)
		answer{got, err}.want(t, sandbar.TimedOut)
		if got.Signal != 9 || slices.Contains(d.Events(), "signal 15") {
			t.Errorf("signal %d, events %q", got.Signal, d.Events())
		}
	})
}

// Cancel and Kill are tested at every stage of an execution.
func TestCancelAtEveryStage(t *testing.T) {
	for _, how := range []struct {
		name string
		pull func(*engine.Execution)
	}{{"Cancel", (*engine.Execution).Cancel}, {"Kill", (*engine.Execution).Kill},
		{"both, twice", func(x *engine.Execution) { x.Cancel(); x.Kill(); x.Cancel(); x.Kill() }}} {
		inBubble(t, how.name+" before Run", func(t *testing.T) {
			r := newRig(t, faulty.New(), nil)
			x := r.admit(script(""))
			how.pull(x)
			if s := r.Stats(); s.Active != 0 {
				t.Errorf("still active: %+v", s)
			}
			if len(r.observed()) != 1 {
				t.Errorf("observed %+v", r.observed())
			}
			_, err := x.Run(nil)
			wantCode(t, err, sandbar.Canceled)
			if len(r.observed()) != 1 {
				t.Errorf("observed twice: %+v", r.observed())
			}
		})
		inBubble(t, how.name+" in the queue", func(t *testing.T) {
			d := faulty.New()
			r := newRig(t, d, func(c *engine.Config) { c.MaxSandboxes, c.MaxQueue = 1, 1 })
			holder := r.admit(script("sleep 10s"))
			h := run(holder, nil)
			x := r.admit(script(""))
			a := run(x, nil)
			synctest.Wait()
			how.pull(x)
			// The position in the queue is free at once, before Run returns.
			if s := r.Stats(); s.Queued != 0 {
				t.Errorf("still queued: %+v", s)
			}
			next := r.admit(script(""))
			wantCode(t, (<-a).err, sandbar.Canceled)
			b := run(next, nil)
			(<-h).want(t, sandbar.Exited)
			(<-b).want(t, sandbar.Exited)
			if c := d.Counts(); c.Created != 2 {
				t.Errorf("%d sandboxes were made", c.Created)
			}
		})
		inBubble(t, how.name+" while the sandbox is made", func(t *testing.T) {
			d := faulty.New()
			d.OnCreate = faulty.Stall(nil)
			r := newRig(t, d, nil)
			x := r.admit(script(""))
			a := run(x, nil)
			time.Sleep(time.Second)
			how.pull(x)
			wantCode(t, (<-a).err, sandbar.Canceled)
		})
		inBubble(t, how.name+" while the program is started", func(t *testing.T) {
			d := faulty.New()
			d.OnStart = faulty.Stall(nil)
			r := newRig(t, d, nil)
			x := r.admit(script(""))
			a := run(x, nil)
			time.Sleep(time.Second)
			how.pull(x)
			wantCode(t, (<-a).err, sandbar.Canceled)
			synctest.Wait()
			if err := d.Leaks(); err != nil {
				t.Error(err)
			}
		})
		inBubble(t, how.name+" while it runs", func(t *testing.T) {
			r := newRig(t, faulty.New(), nil)
			x := r.admit(script("print stdout half\nsleep 1h"))
			sink := newRecorder()
			a := run(x, sink)
			time.Sleep(time.Second)
			how.pull(x)
			got := <-a
			got.want(t, sandbar.Cancelled)
			if sink.text(sandbar.Stdout) != "half\n" || got.Duration != time.Second {
				t.Errorf("output %q, duration %v", sink.text(sandbar.Stdout), got.Duration)
			}
		})
		inBubble(t, how.name+" after the end", func(t *testing.T) {
			r := newRig(t, faulty.New(), nil)
			x := r.admit(script("exit 3"))
			a := <-run(x, nil)
			how.pull(x)
			a.want(t, sandbar.Exited)
		})
	}
}

func TestKillCutsTheGraceShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		r := newRig(t, d, nil)
		x := r.admit(script("ignore-term\nsleep 1h"))
		began := time.Now()
		a := run(x, nil)
		time.Sleep(time.Second)
		x.Cancel()
		time.Sleep(100 * time.Millisecond)
		x.Kill()
		got := <-a
		got.want(t, sandbar.Cancelled)
		if took := time.Since(began); took != 1100*time.Millisecond || got.Signal != 9 {
			t.Errorf("took %v, signal %d", took, got.Signal)
		}
	})
}

// A cancellation in the grace period of a timeout takes precedence. A cancellation after the end
// has no effect.
func TestPrecedenceAsItHappens(t *testing.T) {
	for _, c := range []struct {
		name, code string
		timeout    time.Duration
		cancelAt   time.Duration
		want       sandbar.Outcome
	}{
		{"cancel, then timeout", "ignore-term\nsleep 1h", time.Second, 800 * time.Millisecond, sandbar.Cancelled},
		{"timeout, then cancel in the grace", "ignore-term\nsleep 1h", time.Second, 1200 * time.Millisecond, sandbar.Cancelled},
		{"timeout kills, cancel while it drains", "drain 5s\nsleep 1h", time.Second, 2 * time.Second, sandbar.TimedOut},
		{"exit, cancel while it drains", "drain 5s\nexit 3", time.Minute, time.Second, sandbar.Exited},
		{"oom, timeout while it drains", "drain 5s\nsleep 10ms\noom", time.Second, time.Hour, sandbar.OutOfMemory},
		{"output, cancel while it drains", "drain 5s\nsleep 10ms\nflood stdout 2000000\nsleep 1h", time.Minute, time.Second, sandbar.OutputLimit},
		{"output, timeout while it drains", "drain 5s\nsleep 10ms\nflood stdout 2000000\nsleep 1h", time.Second, time.Hour, sandbar.OutputLimit},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			r := newRig(t, faulty.New(), nil)
			x := r.admit(limited(c.timeout, c.code))
			timer := time.AfterFunc(c.cancelAt, x.Cancel)
			defer timer.Stop()
			(<-run(x, nil)).want(t, c.want)
		})
	}
}

// If a driver's Wait never returns, the sandbox is destroyed and the caller still gets an answer.
func TestStuckWait(t *testing.T) {
	for _, bare := range []bool{false, true} {
		inBubble(t, map[bool]string{false: "told of the death", true: "told nothing"}[bare], func(t *testing.T) {
			d := faulty.New()
			d.Bare = bare
			r := newRig(t, d, nil)
			job := command("hang", "x")
			job.Spec.Limits.Timeout = time.Second
			began := time.Now()
			got, err := r.Run(t.Context(), job, nil)
			took := time.Since(began)
			if bare {
				wantCode(t, err, sandbar.Internal)
			} else {
				answer{got, err}.want(t, sandbar.TimedOut)
			}
			// timeout + grace + 50 ms until Destroy + 5 s of driverGrace
			if took < 6500*time.Millisecond || took > 6550*time.Millisecond {
				t.Errorf("took %v", took)
			}
			d.Open("x")
			synctest.Wait()
		})
	}
}

// If KILL does not end the program within 50 ms, its sandbox is destroyed.
func TestKillIsFollowedByDestroy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		r := newRig(t, d, nil)
		x := r.admit(command("hang", "x"))
		a := run(x, nil)
		time.Sleep(time.Second)
		x.Kill()
		time.Sleep(51 * time.Millisecond)
		if e := d.Events(); !slices.Contains(e, "destroy") {
			t.Errorf("events %q", e)
		}
		d.Open("x")
		(<-a).want(t, sandbar.Cancelled)
	})
}

func TestDriverThatLosesTheEnd(t *testing.T) {
	for _, c := range []struct {
		name, code string
		cancel     bool
		want       sandbar.Code
	}{
		{"Wait fails", "fail-wait \"cannot say\"", false, sandbar.Internal},
		{"Wait panics", "panic-wait", false, sandbar.Internal},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			r := newRig(t, faulty.New(), nil)
			_, err := r.Run(t.Context(), script(c.code), nil)
			wantCode(t, err, c.want)
		})
	}
	// The engine knows the reasons for its own kills without the driver.
	inBubble(t, "Wait fails after a KILL", func(t *testing.T) {
		r := newRig(t, faulty.New(), nil)
		got, err := r.Run(t.Context(), limited(time.Second, "fail-wait x\nignore-term\nsleep 1h"), nil)
		answer{got, err}.want(t, sandbar.TimedOut)
	})
}

// If a sandbox dies during a program, the outcome is Lost.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		r := newRig(t, d, nil)
		a := run(r.admit(script("print stdout some\nblock-until never")), nil)
		<-d.Reached("never")
		s := r.Stats()
		if s.Active != 1 {
			t.Errorf("%+v", s)
		}
		if !d.DieAll() {
			t.Error("nothing was alive")
		}
		got := <-a
		got.want(t, sandbar.Lost)
		if got.ExitCode != 0 || got.Signal != 0 || got.StdoutBytes != 5 {
			t.Errorf("%+v", got.Result)
		}
	})
	inBubble(t, "and Wait is stuck", func(t *testing.T) {
		d := faulty.New()
		r := newRig(t, d, nil)
		a := run(r.admit(command("hang", "x")), nil)
		<-d.Reached("x")
		synctest.Wait()
		began := time.Now()
		d.DieAll()
		(<-a).want(t, sandbar.Lost)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("took %v", took)
		}
		d.Open("x")
		synctest.Wait()
	})
}
