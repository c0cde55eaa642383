package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/engine/lang"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// named is a faulty driver with its own name.
func named(name string) *faulty.Driver {
	d := faulty.New()
	d.Capabilities = faulty.FullCaps()
	d.Capabilities.Name = name
	return d
}

// pair is an engine with two drivers, "strong" and "plain". The second enforces no memory limit and
// has no network.
func pair(t *testing.T, change func(*engine.Config)) (r *rig, strong, plain *faulty.Driver) {
	t.Helper()
	strong, plain = named("strong"), named("plain")
	strong.Capabilities.Outbound = true
	plain.Capabilities.Enforced.Memory = sandbar.EnforcedNone
	t.Cleanup(func() { // after the engine's end
		if err := plain.Leaks(); err != nil {
			t.Error(err)
		}
		if n := plain.Counts().Closed; n != 1 {
			t.Errorf("the second driver was closed %d times", n)
		}
	})
	r = newRig(t, strong, func(c *engine.Config) {
		c.ExtraDrivers = []engine.ExtraDriver{{Driver: plain, Default: sandbar.Limits{Memory: sandbar.Unlimited}}}
		if change != nil {
			change(c)
		}
	})
	return r, strong, plain
}

// A sandbox is made by the driver that its Spec names or, if it names none, by the operator's
// choice.
func TestDriverByName(t *testing.T) {
	for _, c := range []struct{ ask, want string }{{"", "strong"}, {"strong", "strong"}, {"plain", "plain"}, {"weak", ""}, {"Plain", ""}} {
		inBubble(t, "ask "+c.ask, func(t *testing.T) {
			r, strong, plain := pair(t, nil)
			job := script("print stdout hi")
			job.Spec.Driver = c.ask
			result, err := r.Run(t.Context(), job, nil)
			box, boxErr := r.Create(t.Context(), sandbar.Spec{Driver: c.ask})
			if c.want == "" {
				for _, err := range []error{err, boxErr} {
					wantCode(t, err, sandbar.Unsupported)
					if e := sandbar.AsError(err); e.Field != "driver" {
						t.Errorf("%+v", e)
					}
				}
				if n := len(strong.Specs()) + len(plain.Specs()); n != 0 {
					t.Errorf("%d sandboxes were made", n)
				}
				return
			}
			if err != nil || boxErr != nil {
				t.Fatal(err, boxErr)
			}
			asked, other := strong, plain
			if c.want == "plain" {
				asked, other = plain, strong
			}
			if len(asked.Specs()) != 2 || len(other.Specs()) != 0 || asked.Specs()[0].Driver != c.want {
				t.Errorf("%d sandboxes of the driver that was named, %d of the other", len(asked.Specs()), len(other.Specs()))
			}
			if result.Enforced != asked.Capabilities.Enforced || box.Info().Enforced != asked.Capabilities.Enforced {
				t.Error("how limits are held is not told of the driver that held them")
			}
			if box.Info().Spec.Driver != c.want {
				t.Errorf("the sandbox says that it is of %q", box.Info().Spec.Driver)
			}
		})
	}
}

// The limits and networks of a Spec are checked against the driver that it names.
func TestDriverCaps(t *testing.T) {
	inBubble(t, "limits and network", func(t *testing.T) {
		r, strong, plain := pair(t, nil)
		for _, c := range []struct {
			name string
			spec sandbar.Spec
			code sandbar.Code
		}{
			{"memory of strong", sandbar.Spec{Limits: sandbar.Limits{Memory: 64 << 20}}, ""},
			{"memory of plain", sandbar.Spec{Driver: "plain", Limits: sandbar.Limits{Memory: 64 << 20}}, sandbar.Unsupported},
			{"no memory asked of plain", sandbar.Spec{Driver: "plain"}, ""},
			{"network of strong", sandbar.Spec{Network: sandbar.NetworkOutbound}, ""},
			{"network of plain", sandbar.Spec{Driver: "plain", Network: sandbar.NetworkOutbound}, sandbar.Unsupported},
		} {
			job := script("")
			job.Spec = c.spec
			if _, err := r.Run(t.Context(), job, nil); sandbar.CodeOf(err) != c.code {
				t.Errorf("%s: %v, want %q", c.name, err, c.code)
			}
		}
		if got := strong.Specs()[0].Limits; got.Memory != 64<<20 {
			t.Errorf("strong got %+v", got)
		}
		if got := plain.Specs()[0].Limits; got.Memory != sandbar.Unlimited || got.PIDs != 128 {
			t.Errorf("plain got %+v", got)
		}
		var names []string
		for _, c := range r.Drivers() {
			names = append(names, c.Name)
		}
		if diff := cmp.Diff([]string{"strong", "plain"}, names); diff != "" || r.Caps().Name != "strong" {
			t.Error(diff, r.Caps().Name)
		}
	})
}

// All drivers share the slots and the queue.
func TestDriversShareTheQueue(t *testing.T) {
	inBubble(t, "one place", func(t *testing.T) {
		r, strong, plain := pair(t, func(c *engine.Config) { c.MaxSandboxes, c.MaxQueue = 1, 1 })
		first := run(r.admit(script("block-until go")), nil)
		synctest.Wait()
		job := script("")
		job.Spec.Driver = "plain"
		second := run(r.admit(job), nil)
		synctest.Wait()
		if n := len(plain.Specs()); n != 0 {
			t.Errorf("%d sandboxes beyond the one place", n)
		}
		_, err := r.Admit(job)
		wantCode(t, err, sandbar.Exhausted)
		strong.Open("go")
		(<-first).want(t, sandbar.Exited)
		(<-second).want(t, sandbar.Exited)
		if n := len(plain.Specs()); n != 1 {
			t.Errorf("%d sandboxes of the second driver", n)
		}
	})
}

func TestDriversConfig(t *testing.T) {
	for name, c := range map[string]engine.Config{
		"two of one name":       {Driver: named("a"), ExtraDrivers: []engine.ExtraDriver{{Driver: named("a")}}},
		"nil":                   {Driver: named("a"), ExtraDrivers: []engine.ExtraDriver{{}}},
		"defaults out of range": {Driver: named("a"), ExtraDrivers: []engine.ExtraDriver{{Driver: named("b"), Default: sandbar.Limits{Memory: 1 << 40}}}},
	} {
		if _, err := engine.New(c); sandbar.CodeOf(err) != sandbar.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Vet gets the code before anything runs. Code that it refuses does not run.
func TestVet(t *testing.T) {
	refusal := &sandbar.Error{Code: sandbar.Denied, Field: "code", Message: "no"}
	for name, verdict := range map[string]error{"allowed": nil, "refused": refusal} {
		inBubble(t, name, func(t *testing.T) {
			d := faulty.New()
			asked := 0
			r := newRig(t, d, func(c *engine.Config) {
				c.Vet = func(ctx context.Context, s driver.Sandbox, l lang.Language, code string) error {
					asked++
					if _, err := s.FS().Stat(ctx, l.File); code != "print stdout hi" || l.Name != "python" || sandbar.CodeOf(err) != sandbar.NotFound {
						t.Errorf("%s: %q, %v", l.Name, code, err)
					}
					return verdict
				}
			})
			sink := newRecorder()
			_, err := r.Run(t.Context(), script("print stdout hi"), sink)
			if !errors.Is(err, verdict) || asked != 1 {
				t.Errorf("asked %d times, %v", asked, err)
			}
			if want := map[string]string{"allowed": "hi\n", "refused": ""}[name]; sink.text(sandbar.Stdout) != want {
				t.Errorf("output %q, want %q", sink.text(sandbar.Stdout), want)
			}
			if _, err := r.Run(t.Context(), command("print", "stdout", "plain"), nil); err != nil || asked != 1 {
				t.Errorf("a plain command: asked %d times, %v", asked, err)
			}
		})
	}
}

// A panic of Vet is an error of one execution and leaves nothing behind.
func TestVetPanics(t *testing.T) {
	inBubble(t, "panic", func(t *testing.T) {
		r := newRig(t, faulty.New(), func(c *engine.Config) {
			c.Vet = func(context.Context, driver.Sandbox, lang.Language, string) error { panic("vet") }
		})
		_, err := r.Run(t.Context(), script(""), nil)
		wantCode(t, err, sandbar.Internal)
	})
}

// Record gets all output and the end of executions, including those that do not start.
func TestRecord(t *testing.T) {
	type seen struct {
		Language, Code, Driver string
		Output                 string
		Outcome                sandbar.Outcome
		Failure                sandbar.Code
	}
	for _, c := range []struct {
		name string
		job  sandbar.Job
		want seen
	}{
		{"runs", script("print stdout hi"), seen{"python", "print stdout hi", "faulty", "hi\n", sandbar.Exited, ""}},
		{"times out", func() sandbar.Job {
			j := script("print stdout half\nsleep 1h")
			j.Spec.Limits.Timeout = time.Second
			return j
		}(), seen{"python", "print stdout half\nsleep 1h", "faulty", "half\n", sandbar.TimedOut, ""}},
		{"no such program", command("nothing"), seen{"", "", "faulty", "", 0, sandbar.NotFound}},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			var got []seen
			inner := newRecorder()
			r := newRig(t, faulty.New(), func(cfg *engine.Config) {
				cfg.Record = func(j sandbar.Job, s engine.Sink) (engine.Sink, func(sandbar.Result, error)) {
					if s == nil {
						t.Error("there is no Sink to pass on to")
					}
					return inner, func(r sandbar.Result, err error) {
						got = append(got, seen{j.Language, j.Code, j.Spec.Driver, inner.text(sandbar.Stdout), r.Outcome, sandbar.CodeOf(err)})
					}
				}
			})
			r.Run(t.Context(), c.job, nil)
			if diff := cmp.Diff([]seen{c.want}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
