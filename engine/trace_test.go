package engine_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// tracer collects traces.
type tracer struct {
	mu  sync.Mutex
	all []engine.Trace
}

func (r *tracer) Begin(c sandbar.Client, _, _ string) (sandbar.Client, func()) { return c, func() {} }

func (r *tracer) Record(t engine.Trace) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, t)
}

// named returns the only trace with a name. It waits for it.
func (r *tracer) named(t *testing.T, name string) engine.Trace {
	t.Helper()
	for range 1000 {
		r.mu.Lock()
		var found []engine.Trace
		for _, x := range r.all {
			if x.Call.Name == name {
				found = append(found, x)
			}
		}
		r.mu.Unlock()
		if len(found) == 1 {
			return found[0]
		}
		if len(found) > 1 {
			t.Fatalf("%d traces of %s", len(found), name)
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("no trace of %s", name)
	return engine.Trace{}
}

// steps returns the names of a call's steps, and checks that they have no gaps.
func steps(t *testing.T, s engine.Step) string {
	t.Helper()
	at := s.Begin
	var names []string
	for _, part := range s.Steps {
		if !part.Begin.Equal(at) || part.End.Before(part.Begin) {
			t.Errorf("%s of %s begins at %v and ends at %v; the step before ended at %v", part.Name, s.Name, part.Begin, part.End, at)
		}
		at = part.End
		names = append(names, part.Name)
		for _, inner := range part.Steps {
			if inner.Begin.Before(part.Begin) || inner.End.After(part.End) || inner.End.Before(inner.Begin) {
				t.Errorf("%s is not within %s", inner.Name, part.Name)
			}
			names = append(names, part.Name+"/"+inner.Name)
		}
	}
	if len(s.Steps) > 0 && !at.Equal(s.End) {
		t.Errorf("the steps of %s end at %v, and the call at %v", s.Name, at, s.End)
	}
	return strings.Join(names, " ")
}

var traced = sandbar.Client{Name: "ci", Request: "r1", Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}

// The steps of a traced call have no gaps; a call whose caller has no trace, and one of this
// process itself, are not reported.
func TestTrace(t *testing.T) {
	var got tracer
	r := newRig(t, faulty.New(), func(c *engine.Config) { c.Tracer = &got })
	ctx := engine.WithClient(t.Context(), traced)

	job := script("print stdout x")
	job.Spec.Client = traced
	if _, err := r.Run(t.Context(), job, nil); err != nil {
		t.Fatal(err)
	}
	x := got.named(t, string(engine.DidExecute))
	if s := steps(t, x.Call); s != "admission create start run run/first_output run/output finish" {
		t.Errorf("the steps of an execution are %s", s)
	}
	want := engine.Trace{Client: traced, Sandbox: x.Sandbox, Driver: "faulty", Language: "python", Origin: engine.OriginCreated, Outcome: "exited"}
	x.Call = engine.Step{}
	if !cmp.Equal(want, x) || x.Sandbox == "" {
		t.Error(cmp.Diff(want, x))
	}
	if gone := got.named(t, engine.StepRemoval); gone.Sandbox != x.Sandbox || gone.Outcome != "ok" || gone.Client.Trace != traced.Trace || !gone.Call.End.After(gone.Call.Begin) {
		t.Errorf("the removal is %+v", gone)
	}

	s, err := r.Create(ctx, sandbar.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if x := got.named(t, string(engine.DidCreate)); x.Sandbox != s.ID() || steps(t, x.Call) != "admission create" || x.Origin != engine.OriginCreated {
		t.Errorf("%+v", x)
	}
	if _, err := s.Exec(ctx, sandbar.Cmd{Args: []string{"print", "stdout", "x"}}, nil, sandbar.Limits{}, nil); err != nil {
		t.Fatal(err)
	}
	if x := got.named(t, string(engine.DidRun)); x.Sandbox != s.ID() || x.Outcome != "exited" || x.Driver != "faulty" {
		t.Errorf("%+v", x)
	} else if s := steps(t, x.Call); !strings.HasPrefix(s, "admission start run") || !strings.HasSuffix(s, " finish") {
		t.Errorf("the steps of a program are %s", s)
	}
	if _, err := s.Start(ctx, sandbar.Cmd{Args: []string{"print", "stdout", "x"}}, nil, sandbar.Limits{}); err != nil {
		t.Fatal(err)
	}
	if x := got.named(t, string(engine.DidStart)); steps(t, x.Call) != "admission start" {
		t.Errorf("%+v", x)
	}
	if err := r.Stop(ctx, s.ID()); err != nil {
		t.Fatal(err)
	}
	if x := got.named(t, string(engine.DidStop)); steps(t, x.Call) != "removal" || x.Outcome != "ok" {
		t.Errorf("%+v", x)
	}

	before := len(got.all)
	for _, c := range []sandbar.Client{{}, {Name: "ci", Request: "r2"}} {
		job := script("print stdout x")
		job.Spec.Client = c
		if _, err := r.Run(engine.WithClient(t.Context(), c), job, nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(got.all) != before {
		t.Errorf("calls without a trace were reported: %+v", got.all[before:])
	}
}

// A call that fails has the steps until then, and its code.
func TestTraceOfFailures(t *testing.T) {
	var got tracer
	d := faulty.New()
	r := newRig(t, d, func(c *engine.Config) { c.Tracer = &got })
	job := sandbar.Job{Language: "cobol", Spec: sandbar.Spec{Client: traced}}
	if _, err := r.Run(t.Context(), job, nil); err == nil {
		t.Fatal("an unknown language ran")
	}
	if x := got.named(t, string(engine.DidExecute)); steps(t, x.Call) != "admission" || !x.Failed || x.Outcome != string(sandbar.Unsupported) || x.Sandbox != "" {
		t.Errorf("%+v", x)
	}
	ctx := engine.WithClient(t.Context(), traced)
	s, err := r.Create(ctx, sandbar.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Exec(over, sandbar.Cmd{Args: []string{"print", "stdout", "x"}}, nil, sandbar.Limits{}, nil); sandbar.CodeOf(err) != sandbar.Canceled {
		t.Fatal(err)
	}
	if x := got.named(t, string(engine.DidRun)); steps(t, x.Call) != "admission" || !x.Failed || x.Outcome != string(sandbar.Canceled) {
		t.Errorf("%+v", x)
	}
}

// The loads of clients and drivers are those of their live sandboxes, and refusals are observed.
func TestLoads(t *testing.T) {
	var refused []engine.Refusal
	r := newRig(t, faulty.New(), func(c *engine.Config) { c.ObserveRefusal = func(x engine.Refusal) { refused = append(refused, x) } })
	for _, c := range []sandbar.Client{{Name: "ci"}, {Name: "a", Tenant: "team"}, {Name: "b", Tenant: "team"}} {
		if _, err := r.Create(engine.WithClient(t.Context(), c), sandbar.Spec{Limits: sandbar.Limits{Memory: 64 << 20}}); err != nil {
			t.Fatal(err)
		}
	}
	want := []engine.ClientStats{{Name: "ci", Sandboxes: 1, Memory: 64 << 20}, {Tenant: "team", Sandboxes: 2, Memory: 128 << 20}}
	if got := r.ClientStats(t.Context()); !cmp.Equal(want, got) {
		t.Error(cmp.Diff(want, got))
	}
	if got := r.DriverStats(); !cmp.Equal([]engine.DriverStats{{Name: "faulty", Sandboxes: 3}}, got) {
		t.Errorf("%+v", got)
	}
	ci := sandbar.Client{Name: "ci"}
	if _, err := r.Run(t.Context(), sandbar.Job{Language: "cobol", Spec: sandbar.Spec{Client: ci}}, nil); err == nil {
		t.Fatal("an unknown language ran")
	}
	if want := []engine.Refusal{{Client: ci, Verb: engine.DidExecute, Code: sandbar.Unsupported}}; !cmp.Equal(want, refused) {
		t.Error(cmp.Diff(want, refused))
	}
}

// benchmarkTrace measures an execution of the faulty driver. Without a tracer, or without a trace
// of the caller, it allocates as much as before there was one.
func benchmarkTrace(b *testing.B, c sandbar.Client, tracer engine.Tracer) {
	r := newRig(b, faulty.New(), func(cfg *engine.Config) { cfg.Tracer = tracer })
	job := script("exit 0")
	job.Spec.Client = c
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Run(b.Context(), job, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// discarded is a tracer that keeps nothing.
type discarded struct{ tracer }

func (*discarded) Record(engine.Trace) {}

func BenchmarkTraceOff(b *testing.B) { benchmarkTrace(b, traced, nil) }
func BenchmarkTraceUnsampled(b *testing.B) {
	benchmarkTrace(b, sandbar.Client{Name: "ci"}, &discarded{})
}
func BenchmarkTraceOn(b *testing.B) { benchmarkTrace(b, traced, &discarded{}) }
