package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// Every way in which a program can end by itself is reported.
func TestRunTellsHowTheProgramEnded(t *testing.T) {
	for _, c := range []struct {
		code     string
		want     sandbar.Result
		out, err string
	}{
		{code: "", want: sandbar.Result{Outcome: sandbar.Exited}},
		{code: "print stdout hello", want: sandbar.Result{Outcome: sandbar.Exited, StdoutBytes: 6}, out: "hello\n"},
		{code: "print stderr a\nprint stdout b\nexit 3", want: sandbar.Result{Outcome: sandbar.Exited, ExitCode: 3, StdoutBytes: 2, StderrBytes: 2}, out: "b\n", err: "a\n"},
		{code: "exit 255", want: sandbar.Result{Outcome: sandbar.Exited, ExitCode: 255}},
		{code: "signal 11", want: sandbar.Result{Outcome: sandbar.Signaled, Signal: 11}},
		{code: "write stdout x\noom", want: sandbar.Result{Outcome: sandbar.OutOfMemory, Signal: 9, OOMKills: 1, PeakMemory: 256 << 20, StdoutBytes: 1}, out: "x"},
		{code: "lost", want: sandbar.Result{Outcome: sandbar.Lost}},
		{code: "usage 7ms 4096", want: sandbar.Result{Outcome: sandbar.Exited, CPUTime: 7 * time.Millisecond, PeakMemory: 4096}},
		{code: "write stdout \"a\\x00\\xff\\n\"", want: sandbar.Result{Outcome: sandbar.Exited, StdoutBytes: 4}, out: "a\x00\xff\n"},
	} {
		inBubble(t, c.code, func(t *testing.T) {
			r := newRig(t, faulty.New(), nil)
			sink := newRecorder()
			got, err := r.Run(t.Context(), script(c.code), sink)
			if err != nil {
				t.Fatal(err)
			}
			sink.check(t)
			if sink.text(sandbar.Stdout) != c.out || sink.text(sandbar.Stderr) != c.err {
				t.Errorf("output %q and %q, want %q and %q", sink.text(sandbar.Stdout), sink.text(sandbar.Stderr), c.out, c.err)
			}
			if got.Duration <= 0 {
				t.Errorf("duration %v", got.Duration)
			}
			got.Duration = 0
			c.want.Enforced = faulty.FullCaps().Enforced
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("result (-want +got):\n%s", d)
			}
			select {
			case <-sink.started:
			default:
				t.Error("Started was not called")
			}
		})
	}
}

func TestRunGivesTheProgramWhatTheJobSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), nil)
		sink := newRecorder()
		job := script("env A\nenv B\nenv PYTHONUNBUFFERED\nenv PYTHONDONTWRITEBYTECODE\nargs\ndir\necho-stdin")
		job.Spec.Env = map[string]string{"A": "1", "PYTHONUNBUFFERED": "mine"}
		job.Args = []string{"x", "y z"}
		job.Stdin = strings.NewReader("typed")
		if _, err := r.Run(t.Context(), job, sink); err != nil {
			t.Fatal(err)
		}
		want := "A=1\nB is unset\nPYTHONUNBUFFERED=mine\nPYTHONDONTWRITEBYTECODE=1\nx\ny z\n/home/user\ntyped"
		if got := sink.text(sandbar.Stdout); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		sink = newRecorder()
		cmdJob := command("env", "A", ";", "env", "B", ";", "dir")
		cmdJob.Spec.Env = map[string]string{"A": "1", "B": "1"}
		cmdJob.Cmd.Env = map[string]string{"B": "2"}
		cmdJob.Cmd.Dir = "/tmp"
		if _, err := r.Run(t.Context(), cmdJob, sink); err != nil {
			t.Fatal(err)
		}
		if got, want := sink.text(sandbar.Stdout), "A=1\nB=2\n/tmp\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// Changes to the caller's data do not change an admitted job.
func TestAdmitCopiesTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), nil)
		job := command("env", "A", ";", "env", "B")
		job.Spec.Env = map[string]string{"A": "1"}
		job.Cmd.Env = map[string]string{"B": "1"}
		x := r.admit(job)
		job.Cmd.Args[1], job.Spec.Env["A"], job.Cmd.Env["B"] = "C", "2", "2"
		sink := newRecorder()
		if _, err := x.Run(sink); err != nil {
			t.Fatal(err)
		}
		if got, want := sink.text(sandbar.Stdout), "A=1\nB=1\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestRunFailsWhenTheProgramNeverStarted(t *testing.T) {
	broken := errors.New("the backend is on fire")
	for _, c := range []struct {
		name  string
		setup func(*faulty.Driver)
		job   sandbar.Job
		code  sandbar.Code
		says  string
	}{
		{"no interpreter", func(d *faulty.Driver) { d.Missing = []string{"python3"} }, script(""), sandbar.Unsupported, "python3"},
		{"no program", nil, command("/bin/nonsense"), sandbar.NotFound, "nonsense"},
		{"create fails", func(d *faulty.Driver) { d.OnCreate = faulty.FailFirst(1, broken) }, script(""), sandbar.Internal, "on fire"},
		{"create fails after work", func(d *faulty.Driver) { d.AfterCreate = faulty.FailFirst(1, broken) }, script(""), sandbar.Internal, "on fire"},
		{"create fails with a code", func(d *faulty.Driver) {
			d.OnCreate = faulty.FailFirst(1, sandbar.Errorf(sandbar.NotFound, "no such image"))
		}, script(""), sandbar.NotFound, "no such image"},
		{"start fails", func(d *faulty.Driver) {
			d.OnStart = faulty.FailFirst(1, sandbar.Errorf(sandbar.Denied, "not executable"))
		}, command("exit", "0"), sandbar.Denied, "not executable"},
		{"create panics", func(d *faulty.Driver) { d.OnCreate = faulty.Panic() }, script(""), sandbar.Internal, "panic"},
		{"start panics", func(d *faulty.Driver) { d.OnStart = faulty.Panic() }, script(""), sandbar.Internal, "panic"},
		{"no files", func(d *faulty.Driver) { d.NoFiles = true }, script(""), sandbar.Unsupported, "files"},
		{"no room for the code", nil, func() sandbar.Job {
			j := script(strings.Repeat("#", 70<<10))
			j.Spec.Limits.Disk = 64 << 10
			return j
		}(), sandbar.NoSpace, "full"},
		{"create is stuck", func(d *faulty.Driver) { d.OnCreate = faulty.Stall(nil) }, script(""), sandbar.Timeout, "30s"},
		{"start is stuck", func(d *faulty.Driver) { d.OnStart = faulty.Stall(nil) }, script(""), sandbar.Timeout, "30s"},
		{"create is stuck beyond the driver's bound", func(d *faulty.Driver) { d.OnCreate, d.Capabilities.Setup = faulty.Stall(nil), 4*time.Minute },
			script(""), sandbar.Timeout, "4m0s"},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			d := faulty.New()
			if c.setup != nil {
				c.setup(d)
			}
			r := newRig(t, d, func(c *engine.Config) { c.MaxSandboxes = 1 })
			sink := newRecorder()
			_, err := r.Run(t.Context(), c.job, sink)
			wantCode(t, err, c.code)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %q does not say %q", err, c.says)
			}
			select {
			case <-sink.started:
				t.Error("Started was called")
			default:
			}
			// The only slot must be free again.
			synctest.Wait()
			if s := r.Stats(); s.Active != 0 {
				t.Errorf("the place is still taken: %+v", s)
			}
			if err := d.Leaks(); err != nil {
				t.Error(err)
			}
			if o := r.observed(); len(o) != 1 || o[0].Err == nil {
				t.Errorf("observed %+v", o)
			}
		})
	}
}

// A driver has the time that it asks for, in executions and in long-lived sandboxes.
func TestSlowSetup(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		d := faulty.New()
		d.OnCreate, d.OnStart, d.Capabilities.Setup = faulty.Slow(2*time.Minute), faulty.Slow(time.Minute), 4*time.Minute
		r := newRig(t, d, nil)
		if _, err := r.Run(t.Context(), script(""), newRecorder()); err != nil {
			t.Error(err)
		}
		s, err := r.Create(t.Context(), sandbar.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Exec(t.Context(), cmd("exit", "0"), nil, sandbar.Limits{}, nil); err != nil {
			t.Error(err)
		}
	})
}

// A driver that ignores its context causes an error and keeps the slot, but does not block the
// caller. The sandbox that it makes late is removed.
func TestDeafDriverIsLeftBehind(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*faulty.Driver, <-chan struct{})
	}{
		{"create", func(d *faulty.Driver, c <-chan struct{}) { d.OnCreate = faulty.Block(c) }},
		{"after create", func(d *faulty.Driver, c <-chan struct{}) { d.AfterCreate = faulty.Block(c) }},
		{"start", func(d *faulty.Driver, c <-chan struct{}) { d.OnStart = faulty.Block(c) }},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			d, release := faulty.New(), make(chan struct{})
			c.set(d, release)
			r := newRig(t, d, nil)
			began := time.Now()
			_, err := r.Run(t.Context(), script("sleep 1h"), newRecorder())
			wantCode(t, err, sandbar.Timeout)
			if took := time.Since(began); took != 35*time.Second {
				t.Errorf("took %v, want 30 s of setup and 5 s of driverGrace", took)
			}
			if s := r.Stats(); s.Active != 1 {
				t.Errorf("the place was given away while the driver is still at it: %+v", s)
			}
			close(release)
			synctest.Wait()
			if s := r.Stats(); s.Active != 0 {
				t.Errorf("the place was not given back: %+v", s)
			}
			if err := d.Leaks(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRunTwiceIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), nil)
		x := r.admit(script(""))
		if _, err := x.Run(nil); err != nil {
			t.Fatal(err)
		}
		_, err := x.Run(nil)
		wantCode(t, err, sandbar.Conflict)
	})
}

// The result does not wait for the removal, but the slot does.
func TestResultComesBeforeTheRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		d.OnDestroy = faulty.Slow(3 * time.Second)
		r := newRig(t, d, nil)
		began := time.Now()
		if _, err := r.Run(t.Context(), script(""), nil); err != nil {
			t.Fatal(err)
		}
		if time.Since(began) != 0 {
			t.Errorf("the result took %v", time.Since(began))
		}
		if s := r.Stats(); s.Active != 1 {
			t.Errorf("while the sandbox is removed: %+v", s)
		}
		time.Sleep(3 * time.Second)
		handedOver()
		if s := r.Stats(); s.Active != 0 {
			t.Errorf("after the removal: %+v", s)
		}
	})
}

func TestFailingRemovalIsRetriedUntilItSucceeds(t *testing.T) {
	for _, failures := range []int{1, 3, 40} {
		inBubble(t, "", func(t *testing.T) {
			d := faulty.New()
			d.OnDestroy = faulty.FailFirst(failures, errors.New("busy"))
			r := newRig(t, d, nil)
			if _, err := r.Run(t.Context(), script(""), nil); err != nil {
				t.Fatal(err)
			}
			if failures > 3 {
				time.Sleep(time.Second)
				if s := r.Stats(); s.Removing != 1 || s.Active != 1 {
					t.Errorf("while it resists: %+v", s)
				}
			}
			time.Sleep(10 * time.Minute)
			if s := r.Stats(); s.Removing != 0 || s.Active != 0 {
				t.Errorf("at last: %+v", s)
			}
			if err := d.Leaks(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A Destroy that hangs is bounded, and further attempts do not accumulate.
func TestStuckRemovalIsWaitedForByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, release := faulty.New(), make(chan struct{})
		d.OnDestroy = faulty.Block(release)
		r := newRig(t, d, nil)
		if _, err := r.Run(t.Context(), script(""), nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if s := r.Stats(); s.Removing != 1 {
			t.Errorf("%+v", s)
		}
		close(release)
		time.Sleep(time.Minute)
		if err := d.Leaks(); err != nil {
			t.Error(err)
		}
	})
}

func TestObservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		d.OnCreate = faulty.Slow(2 * time.Second)
		r := newRig(t, d, func(c *engine.Config) { c.MaxSandboxes = 1 })
		first, second := run(r.admit(script("sleep 3s")), nil), r.admit(command("exit", "4"))
		<-run(second, nil)
		<-first
		seen := r.observed()
		if len(seen) != 2 {
			t.Fatalf("observed %d executions", len(seen))
		}
		a, b := seen[0], seen[1]
		if a.Language != "python" || a.Queued != 0 || a.Setup != 2*time.Second || a.Total != 5*time.Second || a.Result.Duration != 3*time.Second {
			t.Errorf("first: %+v", a)
		}
		if b.Language != "" || b.Queued != 5*time.Second || b.Setup != 2*time.Second || b.Total != 7*time.Second || b.Result.ExitCode != 4 {
			t.Errorf("second: %+v", b)
		}
	})
}

func TestPanickingObserverIsNobodysProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), func(c *engine.Config) { c.Observe = func(engine.Observation) { panic("no") } })
		if _, err := r.Run(t.Context(), script(""), nil); err != nil {
			t.Error(err)
		}
	})
}

func TestEndOfContextCancelsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got, err := r.Run(ctx, script("sleep 1h"), nil)
		answer{got, err}.want(t, sandbar.Cancelled)
		_, err = r.Run(ctx, script(""), nil)
		wantCode(t, err, sandbar.Canceled)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v does not tell its cause", err)
		}
	})
}
