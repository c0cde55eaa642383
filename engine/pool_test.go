package engine_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// warmRig is a rig with a driver that has templates. They must be closed at the end.
func warmRig(t *testing.T, w *faulty.Warm, change func(*engine.Config)) *rig {
	t.Helper()
	t.Cleanup(func() {
		if c := w.WarmCounts(); c.Live != 0 || c.Prepared != c.Closed {
			t.Errorf("templates are left: %+v", c)
		}
	})
	return newRig(t, w.Driver, func(c *engine.Config) {
		c.Driver = w
		change(c)
	})
}

// keeping sets Config.Templates.
func keeping(all ...engine.Template) func(*engine.Config) {
	return func(c *engine.Config) { c.Templates = all }
}

// settled waits until forks that recent jobs have delayed are done, and returns the state of the
// first template.
func (r *rig) settled() engine.TemplateStats {
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
	return r.Templates()[0]
}

// want fails unless the counters of a template equal those that are not negative.
func (r *rig) wantPool(ready, hits, misses, lost int) {
	r.t.Helper()
	s := r.settled()
	for _, n := range []struct {
		name      string
		got, want int64
	}{{"ready", int64(s.Ready), int64(ready)}, {"hits", s.Hits, int64(hits)}, {"misses", s.Misses, int64(misses)}, {"lost", s.Lost, int64(lost)}} {
		if n.want >= 0 && n.got != n.want {
			r.t.Errorf("%s %s: %d, want %d (%+v)", s.Name, n.name, n.got, n.want, s)
		}
	}
}

// A job runs in a ready sandbox with its own environment, arguments and input, and a new ready
// sandbox is made.
func TestReadySandboxIsUsed(t *testing.T) {
	for _, c := range []struct {
		name      string
		template  engine.Template
		job       sandbar.Job
		out       string
		evaluated int
	}{
		{"an interpreter", engine.Template{Language: "python", Min: 2}, sandbar.Job{Language: "py", Args: []string{"one", "two"},
			Code: "args\nenv A\nenv PYTHONUNBUFFERED\necho-stdin\ndir", Spec: sandbar.Spec{Env: map[string]string{"A": "b"}, Labels: map[string]string{"l": "m"},
				IdleTimeout: time.Hour, Limits: sandbar.Limits{Timeout: time.Second, Output: 1000}}}, "one\ntwo\nA=b\nPYTHONUNBUFFERED=1\ninput/home/user\n", 1},
		{"its environment gives way", engine.Template{Language: "python", Min: 2}, sandbar.Job{Language: "python",
			Code: "env PYTHONUNBUFFERED", Spec: sandbar.Spec{Env: map[string]string{"PYTHONUNBUFFERED": ""}}}, "PYTHONUNBUFFERED=\n", 1},
		{"a plain sandbox for a language", engine.Template{Language: "python", Min: 2, NoInterpreter: true}, script("env A\nprint stdout x"), "A is unset\nx\n", 0},
		{"a plain sandbox for any language", engine.Template{Min: 2}, script("print stdout x"), "x\n", 0},
		{"a command", engine.Template{Min: 2}, sandbar.Job{Spec: sandbar.Spec{Env: map[string]string{"A": "b", "C": "d"}},
			Cmd: sandbar.Cmd{Args: []string{"env", "A", ";", "env", "C"}, Env: map[string]string{"C": "e"}}}, "A=b\nC=e\n", 0},
		{"limits that were asked for", engine.Template{Min: 2, Spec: sandbar.Spec{Limits: sandbar.Limits{Memory: 64 << 20}}},
			sandbar.Job{Cmd: sandbar.Cmd{Args: []string{"print", "stdout", "x"}}, Spec: sandbar.Spec{Limits: sandbar.Limits{Memory: 64 << 20}}}, "x\n", 0},
		{"an image", engine.Template{Min: 2, Spec: sandbar.Spec{Image: "tools"}},
			sandbar.Job{Cmd: sandbar.Cmd{Args: []string{"print", "stdout", "x"}}, Spec: sandbar.Spec{Image: "tools"}}, "x\n", 0},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			w := faulty.NewWarm()
			r := warmRig(t, w, keeping(c.template))
			r.wantPool(2, 0, 0, 0)
			before := w.Counts().Created
			if c.job.Language == "py" {
				c.job.Stdin = strings.NewReader("input")
			}
			sink := newRecorder()
			res, err := r.Run(t.Context(), c.job, sink)
			answer{res, err}.want(t, sandbar.Exited)
			if got := sink.text(sandbar.Stdout); got != c.out {
				t.Errorf("output %q, want %q", got, c.out)
			}
			r.wantPool(2, 1, 0, 0)
			if got := w.WarmCounts().Evaluated; got != c.evaluated {
				t.Errorf("%d programs were evaluated, want %d", got, c.evaluated)
			}
			if made := w.Counts().Created - before; made != 1 {
				t.Errorf("%d sandboxes were made, want the one that is ready now", made)
			}
		})
	}
}

// A job with another Spec does not get a ready sandbox.
func TestReadySandboxOfAnotherKind(t *testing.T) {
	for _, c := range []struct {
		name string
		spec sandbar.Spec
	}{
		{"memory", sandbar.Spec{Limits: sandbar.Limits{Memory: 64 << 20}}},
		{"processes", sandbar.Spec{Limits: sandbar.Limits{PIDs: 5}}},
		{"image", sandbar.Spec{Image: "other"}},
		{"degraded", sandbar.Spec{AllowDegraded: true}},
		{"cold", sandbar.Spec{Cold: true}},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			w := faulty.NewWarm()
			r := warmRig(t, w, keeping(engine.Template{Min: 1}, engine.Template{Language: "python", Min: 1}))
			synctest.Wait()
			j := script("")
			j.Spec = c.spec
			res, err := r.Run(t.Context(), j, nil)
			answer{res, err}.want(t, sandbar.Exited)
			s, err := r.Create(t.Context(), c.spec)
			if err != nil {
				t.Fatal(err)
			}
			r.wantPool(1, 0, 0, 0)
			if n := w.WarmCounts(); n.Forked != 1 || n.Evaluated != 0 {
				t.Errorf("%+v; want one fork, unused", n)
			}
			if err := r.Stop(t.Context(), s.ID()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A job that names another driver does not run with the first.
func TestReadySandboxOfAnotherDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, other := faulty.NewWarm(), faulty.New()
		other.Capabilities.Name = "other"
		r := warmRig(t, w, func(c *engine.Config) {
			c.ExtraDrivers = []engine.ExtraDriver{{Driver: other}}
			c.Templates = []engine.Template{{Language: "python", Min: 1}, {Min: 1}}
		})
		synctest.Wait()
		j := script("exit 3")
		j.Spec.Driver = "other"
		for range 3 {
			res, err := r.Run(t.Context(), j, nil)
			answer{res, err}.want(t, sandbar.Exited)
			synctest.Wait()
		}
		r.wantPool(1, 0, 0, 0)
		if n := w.WarmCounts(); n.Evaluated != 0 || other.Counts().Started != 3 {
			t.Errorf("%+v and %+v; want all three with the other driver", n, other.Counts())
		}
		if err := other.Leaks(); err != nil {
			t.Error(err)
		}
	})
}

// A long-lived sandbox can be a ready one. It has its own environment in every program and its own
// age.
func TestReadySandboxForCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := faulty.NewWarm()
		r := warmRig(t, w, keeping(engine.Template{Min: 1}))
		synctest.Wait()
		time.Sleep(time.Hour)
		synctest.Wait()
		now := time.Now()
		s, err := r.Create(t.Context(), sandbar.Spec{Env: map[string]string{"A": "b"}, Labels: map[string]string{"l": "m"}})
		if err != nil {
			t.Fatal(err)
		}
		r.wantPool(1, 1, 0, 0)
		if i := s.Info(); i.Spec.Labels["l"] != "m" || i.Spec.Env["A"] != "b" || !i.Created.Equal(now) {
			t.Errorf("info %+v", i)
		}
		for _, env := range []map[string]string{nil, {"A": "c"}} {
			sink := newRecorder()
			_, err = s.Exec(t.Context(), sandbar.Cmd{Args: []string{"env", "A"}, Env: env}, nil, none, sink)
			if want := "A=" + overlayed(env, "b") + "\n"; err != nil || sink.text(sandbar.Stdout) != want {
				t.Errorf("got %q, %v; want %q", sink.text(sandbar.Stdout), err, want)
			}
		}
		if st := r.Stats(); st.Sandboxes != 1 || st.Ready != 1 || st.Active != 0 {
			t.Errorf("%+v", st)
		}
		if err := r.Stop(t.Context(), s.ID()); err != nil {
			t.Error(err)
		}
	})
}

func overlayed(env map[string]string, def string) string {
	if v, ok := env["A"]; ok {
		return v
	}
	return def
}

// If a ready sandbox fails its job in any way, the job runs in a fresh one without an error.
func TestReadySandboxFails(t *testing.T) {
	broken := sandbar.Errorf(sandbar.Internal, "told to fail")
	for _, c := range []struct {
		name   string
		breaks func(w *faulty.Warm)
		lost   int
	}{
		{"it is dead when it is handed out", func(w *faulty.Warm) { w.DieAll() }, -1},
		{"its interpreter has ended", func(w *faulty.Warm) { w.OnEval = faulty.FailFirst(1, sandbar.Errorf(sandbar.Gone, "told to")) }, 1},
		{"its interpreter cannot", func(w *faulty.Warm) { w.OnEval = faulty.FailFirst(1, sandbar.Errorf(sandbar.Unsupported, "told to")) }, 1},
		{"it fails", func(w *faulty.Warm) { w.OnEval = faulty.FailFirst(1, broken) }, 1},
		{"it panics", func(w *faulty.Warm) { w.OnEval = faulty.Panic() }, 1},
		{"it cannot be woken", func(w *faulty.Warm) { w.OnWake = faulty.FailFirst(1, broken) }, 1},
		{"starting fails", func(w *faulty.Warm) { w.OnStart = faulty.FailFirst(1, broken) }, 1},
		{"and its removal fails too", func(w *faulty.Warm) {
			w.OnEval, w.OnDestroy = faulty.FailFirst(1, broken), faulty.FailFirst(3, broken)
		}, 1},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			w := faulty.NewWarm()
			r := warmRig(t, w, keeping(engine.Template{Language: "python", Min: 2}))
			r.wantPool(2, 0, 0, 0)
			c.breaks(w)
			j := script("echo-stdin\nexit 3")
			j.Stdin = strings.NewReader("input")
			sink := newRecorder()
			res, err := r.Run(t.Context(), j, sink)
			answer{res, err}.want(t, sandbar.Exited)
			if res.ExitCode != 3 || sink.text(sandbar.Stdout) != "input" {
				t.Errorf("exit code %d, output %q", res.ExitCode, sink.text(sandbar.Stdout))
			}
			sink.check(t)
			time.Sleep(time.Minute)
			r.wantPool(2, -1, -1, c.lost)
		})
	}
}

// A program that could not start in a fresh sandbox either is refused with the same error as
// without templates.
func TestReadySandboxWithoutTheInterpreter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := faulty.NewWarm()
		w.Missing = []string{"python3"}
		r := warmRig(t, w, keeping(engine.Template{Min: 1}, engine.Template{Language: "python", Min: 1}))
		synctest.Wait()
		_, err := r.Run(t.Context(), script(""), nil)
		wantCode(t, err, sandbar.Unsupported)
		if s := r.Templates()[1]; s.Ready != 0 || s.Failed != 1 {
			t.Errorf("%+v; want none ready and one failure", s)
		}
	})
}

// A missing interpreter is tried again after a minute, because it may have been installed.
func TestTemplateThatComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := faulty.NewWarm()
		w.OnPrepare = faulty.FailFirst(1, sandbar.Errorf(sandbar.NotFound, "not installed"))
		r := warmRig(t, w, keeping(engine.Template{Language: "python", Min: 1}))
		time.Sleep(59 * time.Second)
		r.wantPool(0, 0, 0, 0)
		time.Sleep(5 * time.Second)
		r.wantPool(1, 0, 0, 0)
	})
}

// An input that was read cannot be read again, so then the failure is reported.
func TestReadySandboxFailsAfterReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := faulty.NewWarm()
		w.ReadAndFail = true
		r := warmRig(t, w, keeping(engine.Template{Language: "python", Min: 1}))
		synctest.Wait()
		j := script("exit 3")
		j.Stdin = strings.NewReader("input")
		_, err := r.Run(t.Context(), j, nil)
		wantCode(t, err, sandbar.Internal)
		if n := w.Counts().Started; n != 0 {
			t.Errorf("%d programs were started with half an input", n)
		}
	})
}

// The number of ready sandboxes follows the demand between Min and Max, and decreases without
// demand.
func TestPoolFollowsDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := faulty.NewWarm()
		w.OnFork = faulty.Slow(10 * time.Millisecond) // so that a burst ends before one is made
		r := warmRig(t, w, keeping(engine.Template{Language: "python", Min: 1, Max: 5}))
		time.Sleep(time.Second)
		r.wantPool(1, 0, 0, 0)
		burst := func(n int) {
			var all []<-chan answer
			for range n {
				all = append(all, run(r.admit(script("sleep 1ms")), nil))
			}
			for _, c := range all {
				(<-c).want(t, sandbar.Exited)
			}
			time.Sleep(time.Second)
		}
		burst(3)
		r.wantPool(3, 1, 2, 0)
		burst(20)
		r.wantPool(5, 4, 19, 0)
		time.Sleep(20 * time.Second) // 20 have decayed to more than 5
		r.wantPool(5, -1, -1, 0)
		time.Sleep(3 * time.Minute)
		r.wantPool(1, -1, -1, 0)
	})
}

// Where another machine makes the sandboxes, as many are made at once as the driver says. In the
// bubble a fork takes one second, so 40 ready sandboxes take as many seconds as there are rounds.
func TestRemotePool(t *testing.T) {
	for creates, rounds := range map[int]int{0: (39 + runtime.NumCPU()) / runtime.NumCPU(), 10: 4, 64: 1} {
		synctest.Test(t, func(t *testing.T) {
			w := faulty.NewWarm()
			w.OnFork = faulty.Slow(time.Second)
			w.Capabilities.RemoteCreates = creates
			r := warmRig(t, w, keeping(engine.Template{Language: "python", Min: 40, Max: 40}))
			synctest.Wait()
			for n := range rounds {
				if ready := r.Templates()[0].Ready; ready >= 40 {
					t.Errorf("%d at once: %d ready after %d s", creates, ready, n)
				}
				time.Sleep(time.Second)
			}
			r.wantPool(40, 0, 0, 0)
		})
	}
}

// Occasional requests keep one sandbox ready. With Min 0 there is none at the start and after the
// end of the demand.
func TestPoolWithoutFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := faulty.NewWarm()
		r := warmRig(t, w, keeping(engine.Template{Language: "python"}))
		r.wantPool(0, 0, 0, 0)
		if n := w.WarmCounts().Prepared; n != 0 {
			t.Errorf("%d templates were prepared for nobody", n)
		}
		for i := range 5 {
			res, err := r.Run(t.Context(), script(""), nil)
			answer{res, err}.want(t, sandbar.Exited)
			time.Sleep(20 * time.Second)
			r.wantPool(1, i, 1, 0)
		}
		time.Sleep(time.Minute)
		r.wantPool(0, -1, -1, 0)
	})
}

// The memory of ready sandboxes stays within the budget, except for Min.
func TestPoolBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := faulty.NewWarm()
		r := warmRig(t, w, func(c *engine.Config) {
			c.ReadyMemory = 5 * 16 << 20
			c.Templates = []engine.Template{{Language: "python", Min: 1}, {Language: "shell", Min: 2}}
		})
		synctest.Wait()
		for range 10 {
			r.admit(script("")).Cancel()
			r.admit(sandbar.Job{Language: "shell"}).Cancel()
		}
		r.settled()
		if s := r.Templates(); s[0].Ready != 3 || s[1].Ready != 2 {
			t.Errorf("%+v; want 3 and 2 ready", s)
		}
	})
}

// Ready sandboxes do not block requests: a request that needs their slot gets it, even if MaxQueue
// is 0, and there are never more sandboxes than slots.
func TestReadySandboxesGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := faulty.NewWarm()
		var tooMany atomic.Int64
		w.AfterCreate = func(context.Context) error {
			if n := w.Counts().Sandboxes; n > 4 {
				tooMany.Store(int64(n))
			}
			return nil
		}
		w.OnDestroy = faulty.Slow(time.Millisecond)
		r := warmRig(t, w, func(c *engine.Config) {
			c.MaxSandboxes, c.MaxQueue = 4, -1
			c.Templates = []engine.Template{{Language: "python", Min: 4}}
		})
		r.wantPool(4, 0, 0, 0)
		var all []<-chan answer
		for range 4 {
			all = append(all, run(r.admit(command("sleep", "1s")), nil))
		}
		_, err := r.Admit(command("exit", "0"))
		wantCode(t, err, sandbar.Exhausted)
		time.Sleep(500 * time.Millisecond)
		r.wantPool(0, 0, 0, 0)
		for _, c := range all {
			(<-c).want(t, sandbar.Exited)
		}
		time.Sleep(time.Second)
		r.wantPool(4, 0, 0, 0)
		if n := tooMany.Load(); n > 0 {
			t.Errorf("%d sandboxes at once in 4 places", n)
		}
	})
}

// A dead template is prepared again after a growing delay. Until then jobs run in ready and then in
// fresh sandboxes.
func TestTemplateDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := faulty.NewWarm()
		r := warmRig(t, w, keeping(engine.Template{Language: "python", Min: 2}))
		r.wantPool(2, 0, 0, 0)
		w.KillTemplates()
		synctest.Wait()
		for range 5 {
			res, err := r.Run(t.Context(), script("exit 4"), nil)
			answer{res, err}.want(t, sandbar.Exited)
		}
		r.wantPool(-1, 2, 3, 0)
		time.Sleep(10 * time.Second)
		if s := r.settled(); s.Ready < 2 || s.Failed != 1 {
			t.Errorf("%+v; want ready ones again, and one failure", s)
		}
		if n := w.WarmCounts(); n.Prepared != 2 || n.Live != 1 {
			t.Errorf("%+v; want a second template", n)
		}
	})
}

// Failed preparations and forks are repeated after growing delays without an effect on jobs.
func TestPoolFailures(t *testing.T) {
	broken := errors.New("told to fail")
	for _, c := range []struct {
		name   string
		break_ func(*faulty.Warm)
	}{
		{"prepare", func(w *faulty.Warm) { w.OnPrepare = faulty.FailFirst(6, broken) }},
		{"prepare panics", func(w *faulty.Warm) { w.OnPrepare = faulty.Panic() }},
		{"fork", func(w *faulty.Warm) { w.OnFork = faulty.FailFirst(6, broken) }},
		{"fork panics", func(w *faulty.Warm) { w.OnFork = faulty.Panic() }},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			w := faulty.NewWarm()
			c.break_(w)
			r := warmRig(t, w, keeping(engine.Template{Language: "python", Min: 1}))
			for range 10 {
				res, err := r.Run(t.Context(), script("exit 4"), nil)
				answer{res, err}.want(t, sandbar.Exited)
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(5 * time.Minute)
			s := r.settled()
			if strings.Contains(c.name, "panics") {
				// 0.2 s, doubled to a minute: some 12 in five minutes.
				if s.Ready != 0 || s.Failed < 8 || s.Failed > 30 {
					t.Errorf("%+v; want a dozen failures", s)
				}
			} else if s.Ready != 1 || s.Failed < 6 || s.Failed > 14 {
				t.Errorf("%+v; want one ready after some failures", s)
			}
		})
	}
}

// A driver that cannot warm a language gives ready sandboxes without an interpreter.
func TestTemplateUnsupported(t *testing.T) {
	// The interpreter of shell cannot be prestarted; that of Python ends during the attempt.
	for _, language := range []string{"shell", "python"} {
		inBubble(t, language, func(t *testing.T) {
			w := faulty.NewWarm()
			w.Only = []string{"elixir"}
			r := warmRig(t, w, keeping(engine.Template{Language: language, Min: 1}))
			r.wantPool(1, 0, 0, 0)
			sink := newRecorder()
			res, err := r.Run(t.Context(), sandbar.Job{Language: language, Code: "print stdout x"}, sink)
			answer{res, err}.want(t, sandbar.Exited)
			r.wantPool(1, 1, 0, 0)
			if s := r.Templates()[0]; s.Failed != 0 {
				t.Errorf("%+v; want no failure", s)
			}
			if n := w.WarmCounts(); n.Evaluated != 0 || sink.text(sandbar.Stdout) != "x\n" {
				t.Errorf("%+v, output %q", n, sink.text(sandbar.Stdout))
			}
		})
	}
}

// Ready sandboxes that die are replaced.
func TestReadySandboxesThatDieAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := faulty.NewWarm()
		r := warmRig(t, w, keeping(engine.Template{Language: "python", Min: 3}))
		r.wantPool(3, 0, 0, 0)
		w.DieAll()
		time.Sleep(3 * time.Second)
		r.wantPool(3, 0, 0, 3)
		if n := w.Counts().Sandboxes; n != 3 {
			t.Errorf("%d sandboxes, want 3", n)
		}
	})
}

// Ready sandboxes that have waited for the longest lifetime are replaced, so that none is older
// than MaxAge.
func TestReadySandboxesAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := faulty.NewWarm()
		r := warmRig(t, w, func(c *engine.Config) {
			c.MaxLifetime = time.Hour
			c.Templates = []engine.Template{{Language: "python", Min: 3}}
		})
		r.wantPool(3, 0, 0, 0)
		time.Sleep(time.Hour - 5*time.Second)
		if n := r.settled().Forks; n != 3 {
			t.Errorf("%d were made before the hour", n)
		}
		time.Sleep(15 * time.Second)
		r.wantPool(3, 0, 0, 0)
		if n := r.settled().Forks; n != 6 {
			t.Errorf("%d were made, want 6", n)
		}
		if engine.MaxAge(time.Hour) != 3*time.Hour || engine.MaxAge(-1) != 0 {
			t.Errorf("ages %v, %v", engine.MaxAge(time.Hour), engine.MaxAge(-1))
		}
	})
}

// Shutdown ends the pools in every state. The rig checks that nothing remains.
func TestShutdownOfPools(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*faulty.Warm)
	}{
		{"all ready", func(*faulty.Warm) {}},
		{"preparing", func(w *faulty.Warm) { w.OnPrepare = faulty.Stall(nil) }},
		{"preparing, deaf", func(w *faulty.Warm) { w.OnPrepare = faulty.Slow(20 * time.Second) }},
		{"forking", func(w *faulty.Warm) { w.OnFork = faulty.Stall(nil) }},
		{"forking, deaf", func(w *faulty.Warm) { w.OnFork = faulty.Slow(20 * time.Second) }},
		{"removal fails", func(w *faulty.Warm) { w.OnDestroy = faulty.FailFirst(2, errors.New("told to fail")) }},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			w := faulty.NewWarm()
			c.set(w)
			r := warmRig(t, w, keeping(engine.Template{Language: "python", Min: 3}, engine.Template{Min: 2}))
			synctest.Wait()
			x := r.admit(script("")) // admitted, perhaps with a ready sandbox; Run is not called
			_ = x
		})
	}
}

// An execution that is withdrawn before Run discards its ready sandbox.
func TestWithdrawnWithReadySandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := faulty.NewWarm()
		r := warmRig(t, w, keeping(engine.Template{Language: "python", Min: 1, Max: 1}))
		synctest.Wait()
		x := r.admit(script(""))
		x.Cancel()
		r.wantPool(1, 1, 0, 0)
		_, err := x.Run(nil)
		wantCode(t, err, sandbar.Canceled)
		if c := w.Counts(); c.Sandboxes != 1 || c.Destroyed != 1 {
			t.Errorf("%+v; want one destroyed and one ready", c)
		}
	})
}

// New reports wrong templates.
func TestBadTemplates(t *testing.T) {
	for _, c := range []struct {
		name string
		all  []engine.Template
		code sandbar.Code
	}{
		{"unknown language", []engine.Template{{Language: "cobol"}}, sandbar.Unsupported},
		{"more than the most", []engine.Template{{Min: 3, Max: 2}}, sandbar.Invalid},
		{"negative", []engine.Template{{Min: -1}}, sandbar.Invalid},
		{"an environment", []engine.Template{{Spec: sandbar.Spec{Env: map[string]string{"A": "b"}}}}, sandbar.Invalid},
		{"cold", []engine.Template{{Spec: sandbar.Spec{Cold: true}}}, sandbar.Invalid},
		{"limits out of range", []engine.Template{{Spec: sandbar.Spec{Limits: sandbar.Limits{Memory: 1}}}}, sandbar.Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := engine.New(engine.Config{Driver: faulty.New(), Templates: c.all})
			wantCode(t, err, c.code)
		})
	}
}

// A template that repeats another, or that the driver cannot do, is skipped. The others are kept.
func TestTemplatesLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := warmRig(t, faulty.NewWarm(), keeping(engine.Template{Language: "python", Min: 1}, engine.Template{Language: "py", Min: 3},
			engine.Template{Spec: sandbar.Spec{Network: sandbar.NetworkOutbound}}, engine.Template{Min: 1},
			engine.Template{Min: 1, Spec: sandbar.Spec{Limits: sandbar.Limits{PIDs: 5}}}, engine.Template{Min: 1, Spec: sandbar.Spec{Image: "i"}}))
		synctest.Wait()
		var names []string
		for _, s := range r.Templates() {
			names = append(names, s.Name)
			if s.Ready != 1 {
				t.Errorf("%+v; want one ready", s)
			}
		}
		if want := []string{"python", "plain", "plain#2", "plain@i"}; !slices.Equal(names, want) {
			t.Errorf("templates %q, want %q", names, want)
		}
	})
}

// Jobs with other limits get ready sandboxes from the third on, while such jobs arrive, for a
// bounded number of different limits.
func TestPoolForOtherLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := faulty.NewWarm()
		r := warmRig(t, w, keeping(engine.Template{Language: "python", Min: 1}))
		r.wantPool(1, 0, 0, 0)
		ask := func(memory int64) {
			t.Helper()
			j := script("exit 3")
			j.Spec.Limits.Memory = memory
			res, err := r.Run(t.Context(), j, nil)
			answer{res, err}.want(t, sandbar.Exited)
			handedOver()
		}
		for range 4 {
			ask(64 << 20)
		}
		r.wantPool(-1, 2, 1, 0)
		// The second job is forked too if the template is prepared before it arrives.
		if n := w.WarmCounts(); n.Live != 2 || n.Evaluated < 2 {
			t.Errorf("%+v; want a second template, used twice or more", n)
		}
		for range 2 {
			for i := range int64(10) {
				ask((65 + i) << 20)
			}
		}
		if n := w.WarmCounts(); n.Live != 9 {
			t.Errorf("%+v; want 9 templates", n)
		}
		time.Sleep(10 * time.Minute)
		r.wantPool(1, -1, -1, 0)
		if n := w.WarmCounts(); n.Live != 1 {
			t.Errorf("%+v; want one template", n)
		}
		ask(64 << 20) // the pool was removed, but the ring has the key
		ask(64 << 20)
	})
}

// A job without a ready sandbox gets a fork of its own if the driver can copy an interpreter. If
// the fork fails, the job runs cold without an error.
func TestForkNow(t *testing.T) {
	for _, c := range []struct {
		name  string
		fork  faulty.Hook
		plain bool
		evals int
	}{
		{"copied", nil, false, 2},
		{"failing", faulty.FailFirst(9, errors.New("no")), false, 1},
		{"panicking", faulty.Panic(), false, 1},
		{"nothing to copy", nil, true, 0},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			w := faulty.NewWarm()
			r := warmRig(t, w, keeping(engine.Template{Language: "python", Min: 1, Max: 1, NoInterpreter: c.plain}))
			r.wantPool(1, 0, 0, 0)
			w.OnFork = c.fork
			var jobs []<-chan answer
			for range 2 {
				x, err := r.Admit(script("sleep 1s\nexit 3"))
				if err != nil {
					t.Fatal(err)
				}
				jobs = append(jobs, run(x, nil))
			}
			for _, j := range jobs {
				a := <-j
				if a.want(t, sandbar.Exited); a.ExitCode != 3 {
					t.Errorf("exit code %d", a.ExitCode)
				}
			}
			r.wantPool(-1, 1, 1, 0)
			if n := w.WarmCounts().Evaluated; n != c.evals {
				t.Errorf("%d programs were evaluated, want %d", n, c.evals)
			}
		})
	}
}
