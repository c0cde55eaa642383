package engine_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// auditor collects actions, and is not ready while failed is set.
type auditor struct {
	mu     sync.Mutex
	all    []engine.Action
	failed error
}

func (a *auditor) Record(x engine.Action) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, x)
}

func (a *auditor) Ready() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

// Each call is one action of its client, with the outcome that the client is told. A call without a
// client, such as those of content, is none.
func TestAudit(t *testing.T) {
	a := &auditor{}
	d := faulty.New()
	d.Saves = true
	r := newPausing(t, d, t.TempDir(), func(c *engine.Config) { c.Audit = a })
	who := sandbar.Client{Name: "ci", Address: "192.0.2.1:9"}
	ctx := engine.WithClient(t.Context(), who)
	s, err := r.Create(ctx, sandbar.Spec{Client: who})
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.FS().Create(ctx, "f", sandbar.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	if content(t, s, "f") != "x" || s.FS().Mkdir(ctx, "d", 0o755, false) != nil || s.FS().Rename(ctx, "f", "g") != nil || s.FS().Remove(ctx, "g", false) != nil {
		t.Error("files failed")
	}
	_, missing := s.FS().Open(ctx, "none")
	s.FS().Stat(ctx, "d")
	_, wrong := s.Exec(ctx, sandbar.Cmd{}, nil, sandbar.Limits{}, nil)
	forks, err := r.Fork(ctx, s.ID(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Pause(ctx, s.ID()), r.Stop(ctx, forks[0].ID())); err != nil {
		t.Error(err)
	}
	if _, err := r.Resume(ctx, s.ID()); err != nil {
		t.Error(err)
	}
	ended, err := r.Run(ctx, sandbar.Job{Cmd: sandbar.Cmd{Args: []string{"exit", "0"}}, Spec: sandbar.Spec{Client: who}}, nil)
	if err != nil {
		t.Error(err)
	}
	_, refused := r.Admit(sandbar.Job{Spec: sandbar.Spec{Client: who}})
	if refused == nil {
		t.Error("a job without a program was admitted")
	}
	var got []string
	for _, x := range a.all {
		if x.Client.Name != "ci" || x.Time.IsZero() {
			t.Errorf("%+v", x)
		}
		got = append(got, string(x.Verb)+" "+x.Outcome)
	}
	want := []string{"sandbox.create ok", "file.write ok", "file.mkdir ok", "file.rename ok", "file.remove ok",
		"file.read " + string(sandbar.CodeOf(missing)), "program.run " + string(sandbar.CodeOf(wrong)), "sandbox.fork ok", "sandbox.fork ok",
		"sandbox.pause ok", "sandbox.stop ok", "sandbox.resume ok", "execute " + ended.Outcome.String(), "execute " + string(sandbar.CodeOf(refused))}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// While actions cannot be recorded, nothing begins, and a sandbox can be stopped.
func TestAuditNotReady(t *testing.T) {
	a := &auditor{}
	r := newRig(t, faulty.New(), func(c *engine.Config) { c.Audit = a })
	s := r.create()
	full := sandbar.Errorf(sandbar.Unavailable, "the disk is full")
	a.mu.Lock()
	a.failed = full
	a.mu.Unlock()
	_, create := r.Create(t.Context(), sandbar.Spec{})
	_, exec := s.Exec(t.Context(), sandbar.Cmd{Args: []string{"exit", "0"}}, nil, sandbar.Limits{}, nil)
	_, run := r.Run(t.Context(), sandbar.Job{Cmd: sandbar.Cmd{Args: []string{"exit", "0"}}}, nil)
	_, open := s.FS().Open(t.Context(), "f")
	for i, err := range []error{create, exec, run, open} {
		if !errors.Is(err, full) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if err := r.Stop(engine.WithClient(t.Context(), sandbar.Client{}), s.ID()); err != nil {
		t.Error(err)
	}
	if !slices.ContainsFunc(a.all, func(x engine.Action) bool { return x.Verb == engine.DidStop && x.Outcome == "ok" }) {
		t.Errorf("%+v", a.all)
	}
}
