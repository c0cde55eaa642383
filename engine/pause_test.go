package engine_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// saving returns a driver whose sandboxes can be saved.
func saving() *faulty.Driver {
	d := faulty.New()
	d.Saves = true
	return d
}

// newPausing makes an engine with a directory of paused sandboxes.
func newPausing(t *testing.T, d *faulty.Driver, dir string, change func(*engine.Config)) *rig {
	t.Helper()
	return newRig(t, d, func(c *engine.Config) {
		c.PausedDir = dir
		if change != nil {
			change(c)
		}
	})
}

// content reads a file of a sandbox.
func content(t *testing.T, s *engine.Sandbox, path string) string {
	t.Helper()
	f, err := s.FS().Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// save writes a file of a sandbox.
func save(t *testing.T, s *engine.Sandbox, path, text string) {
	t.Helper()
	r, err := s.Exec(t.Context(), sandbar.Cmd{Args: []string{"save", path, text}}, nil, sandbar.Limits{}, nil)
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
}

// names lists a directory.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

// A sandbox is paused by one engine and resumed by another. Its programs' callers are told.
func TestPauseAndResume(t *testing.T) {
	dir := t.TempDir()
	first := newPausing(t, saving(), dir, nil)
	spec := sandbar.Spec{Name: "box", Env: map[string]string{"SECRET": "x"}, Labels: map[string]string{"a": "b"}}
	s, err := first.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	id, info := s.ID(), s.Info()
	save(t, s, "f", "kept")
	running := make(chan error, 1)
	go func() {
		_, err := s.Exec(context.Background(), sandbar.Cmd{Args: []string{"block-until", "never"}}, nil, sandbar.Limits{}, nil)
		running <- err
	}()
	<-first.driver.Reached("never")
	background, err := s.Start(t.Context(), sandbar.Cmd{Args: []string{"block-until", "never"}}, nil, sandbar.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	s.SetNote([]byte("note"))
	if err := first.Pause(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	_, waited := background.Wait(t.Context())
	_, got := first.Get(context.Background(), id)
	_, again := first.Resume(t.Context(), sandbar.NewID())
	for what, err := range map[string]error{"a command": <-running, "a process": waited, "Get": got, "Pause": first.Pause(t.Context(), id)} {
		if e := sandbar.AsError(err); e == nil || e.Code != sandbar.Conflict || !strings.Contains(e.Message, "paused") || !strings.Contains(e.Fix, string(id)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.FS().Open(t.Context(), "f"); sandbar.CodeOf(err) != sandbar.Conflict {
		t.Errorf("a file of a paused sandbox: %v", err)
	}
	if sandbar.CodeOf(again) != sandbar.NotFound {
		t.Errorf("resuming an unknown sandbox: %v", again)
	}
	if st := first.Stats(); st.Sandboxes != 0 || len(first.List(context.Background())) != 0 {
		t.Errorf("a paused sandbox has a slot: %+v", st)
	}
	if err := first.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}

	second := newPausing(t, saving(), dir, nil)
	all := second.Paused(context.Background())
	if len(all) != 1 || all[0].ID != id || all[0].Spec.Name != "box" || string(all[0].Note) != "note" || all[0].Suspended || all[0].Size <= 0 || !all[0].Created.Equal(info.Created) {
		t.Fatalf("%+v", all)
	}
	s, err = second.Resume(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Info(); s.ID() != id || got.Spec.Env["SECRET"] != "x" || !got.Created.Equal(info.Created) {
		t.Errorf("%+v", got)
	}
	if got := content(t, s, "f"); got != "kept" {
		t.Errorf("the file has %q", got)
	}
	if _, err := second.Resume(t.Context(), id); sandbar.CodeOf(err) != sandbar.Conflict {
		t.Errorf("resuming a running sandbox: %v", err)
	}
	if got := names(t, dir); got != "" {
		t.Errorf("left on disk: %s", got)
	}
}

// Suspend pauses all sandboxes for the next engine, as far as there is room, and takes no account
// of their clients' rates when they come back.
func TestSuspend(t *testing.T) {
	dir := t.TempDir()
	first := newPausing(t, saving(), dir, func(c *engine.Config) { c.MaxPaused, c.PausedShare = 3, -1 })
	for range 4 {
		if _, err := first.Create(t.Context(), sandbar.Spec{Client: sandbar.Client{Name: "c"}}); err != nil {
			t.Fatal(err)
		}
	}
	if ended := first.Suspend(t.Context()); ended != 1 || len(first.List(context.Background())) != 1 {
		t.Errorf("%d sandboxes were not saved, %d run", ended, len(first.List(context.Background())))
	}
	if err := first.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	limits := map[string]engine.ClientLimits{"c": {Rate: 0.001, Burst: 1}}
	second := newPausing(t, saving(), dir, func(c *engine.Config) { c.Clients = limits })
	all := second.Paused(context.Background())
	for _, p := range all {
		if !p.Suspended {
			t.Errorf("%+v", p)
		}
		if _, err := second.Resume(t.Context(), p.ID); err != nil {
			t.Error(err)
		}
	}
	if len(all) != 3 || names(t, dir) != "" {
		t.Errorf("%d sandboxes were kept; left on disk: %s", len(all), names(t, dir))
	}
}

// A sandbox whose state is stored is only paused, while what ran is still being removed. Resume
// waits for the removal.
func TestResumeWhilePausing(t *testing.T) {
	removing, removed := make(chan struct{}), make(chan struct{})
	d := saving()
	var once sync.Once
	d.OnDestroy = func(context.Context) error {
		once.Do(func() { close(removing); <-removed })
		return nil
	}
	r := newPausing(t, d, t.TempDir(), nil)
	id := r.create().ID()
	paused := make(chan error, 1)
	go func() { paused <- r.Pause(context.Background(), id) }()
	<-removing
	if n := len(r.List(context.Background())); n != 0 || len(r.Paused(context.Background())) != 1 {
		t.Errorf("%d sandboxes run, %d are paused", n, len(r.Paused(context.Background())))
	}
	if _, err := r.Get(context.Background(), id); sandbar.CodeOf(err) != sandbar.Conflict {
		t.Errorf("Get: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Resume(over, id); sandbar.CodeOf(err) != sandbar.Canceled {
		t.Errorf("Resume of a caller that has left: %v", err)
	}
	resumed := make(chan error, 1)
	go func() {
		_, err := r.Resume(context.Background(), id)
		resumed <- err
	}()
	close(removed)
	if err := <-paused; err != nil {
		t.Error(err)
	}
	if err := <-resumed; err != nil {
		t.Error(err)
	}
}

// A paused sandbox can be removed. One that is damaged is listed, refused and removed.
func TestPausedRemoved(t *testing.T) {
	dir := t.TempDir()
	r := newPausing(t, saving(), dir, nil)
	var ids []sandbar.ID
	for range 3 {
		ids = append(ids, r.create().ID())
	}
	for _, id := range ids {
		if err := r.Pause(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, string(ids[0]), "sandbox.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := r.Stop(t.Context(), ids[0]); err != nil {
		t.Error(err)
	}
	if err := r.Stop(t.Context(), ids[0]); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("stopping twice: %v", err)
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(string) error{
		"cut":     func(path string) error { return os.Truncate(path, 10) },
		"missing": os.Remove,
		"foreign": func(path string) error { return os.WriteFile(path, []byte(`{"Format":1,"ID":"sb_other"}`), 0o600) },
		"version": func(path string) error { return os.WriteFile(path, []byte(`{"Format":2}`), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			bad := t.TempDir()
			if err := os.CopyFS(bad, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			if err := spoil(filepath.Join(bad, string(ids[1]), "sandbox.json")); err != nil {
				t.Fatal(err)
			}
			r := newPausing(t, saving(), bad, nil)
			if n := len(r.Paused(context.Background())); n != 2 {
				t.Errorf("%d are listed", n)
			}
			_, err := r.Resume(t.Context(), ids[1])
			if c := sandbar.CodeOf(err); c != sandbar.Gone && c != sandbar.Unsupported || sandbar.AsError(err).Fix == "" {
				t.Errorf("a damaged one: %v", err)
			}
			if _, err := r.Resume(t.Context(), ids[2]); err != nil {
				t.Error(err)
			}
			if err := r.Stop(t.Context(), ids[1]); err != nil {
				t.Error(err)
			}
			if got := names(t, bad); got != "" {
				t.Errorf("left: %s", got)
			}
		})
	}
}

// After a failure the sandbox goes on, or is still paused, and nothing is left.
func TestPauseFails(t *testing.T) {
	dir := t.TempDir()
	d := saving()
	broken := errors.New("broken")
	d.OnSave = faulty.FailFirst(1, broken)
	d.OnRestore = faulty.FailFirst(1, broken)
	r := newPausing(t, d, dir, func(c *engine.Config) { c.MaxPaused = 1 })
	s := r.create()
	save(t, s, "f", "kept")
	if err := r.Pause(t.Context(), s.ID()); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	if got := content(t, s, "f") + names(t, dir); got != "kept" {
		t.Errorf("%q", got)
	}
	if err := r.Pause(t.Context(), s.ID()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Resume(t.Context(), s.ID()); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	other := r.create()
	if err := r.Pause(t.Context(), other.ID()); sandbar.CodeOf(err) != sandbar.Exhausted {
		t.Errorf("more than MaxPaused: %v", err)
	}
	s, err := r.Resume(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	if got := content(t, s, "f"); got != "kept" {
		t.Errorf("%q", got)
	}
	if _, err := r.Fork(t.Context(), s.ID(), 0); sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("no copies: %v", err)
	}
	if got := names(t, dir); got != "" {
		t.Errorf("left: %s", got)
	}
}

// The bound of the space counts what is paused already.
func TestPausedSpace(t *testing.T) {
	r := newPausing(t, saving(), t.TempDir(), func(c *engine.Config) { c.MaxPausedBytes = 1000 })
	small, large := r.create(), r.create()
	save(t, large, "f", strings.Repeat("x", 2000))
	if err := r.Pause(t.Context(), large.ID()); sandbar.CodeOf(err) != sandbar.Exhausted {
		t.Errorf("%v", err)
	}
	if err := r.Pause(t.Context(), small.ID()); err != nil {
		t.Error(err)
	}
}

// Each client with a name can use a share of the bounds, whatever others have paused. Sandboxes
// that are paused at the same time do not exceed it, and those of an earlier daemon count.
func TestPausedShare(t *testing.T) {
	dir := t.TempDir()
	d := saving()
	change := func(c *engine.Config) { c.MaxPaused, c.MaxPausedBytes, c.PausedShare = 8, 40_000, 25 }
	r := newPausing(t, d, dir, change)
	of := func(client string) *engine.Sandbox {
		t.Helper()
		s, err := r.Create(t.Context(), sandbar.Spec{Client: sandbar.Client{Name: client}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	pause := func(s *engine.Sandbox) string {
		err := r.Pause(t.Context(), s.ID())
		if err == nil {
			return ""
		}
		e := sandbar.AsError(err)
		return string(e.Code) + ": " + e.Message + "; " + e.Fix
	}
	refused := func(got string, parts ...string) {
		t.Helper()
		for _, part := range append(parts, "exhausted", "paused.client_share") {
			if !strings.Contains(got, part) {
				t.Errorf("%q has no %q", got, part)
			}
		}
	}
	a, third := of("a"), of("a")
	save(t, third, "f", "kept")
	if got := pause(a) + pause(of("a")); got != "" {
		t.Error(got)
	}
	refused(pause(third), `the client "a" has 2 paused sandboxes, and can have at most 2`, "paused.max")
	if got := content(t, third, "f"); got != "kept" {
		t.Errorf("the sandbox that was refused has %q", got)
	}
	if got := pause(of("b")) + pause(of("")) + pause(of("")) + pause(of("")); got != "" {
		t.Errorf("other clients: %s", got)
	}
	if err := r.Stop(t.Context(), a.ID()); err != nil {
		t.Fatal(err)
	}
	if got := pause(third); got != "" {
		t.Errorf("after one is removed: %s", got)
	}

	// The space: both fit alone, and not together.
	one, two := of("c"), of("c")
	save(t, one, "f", strings.Repeat("x", 6000))
	save(t, two, "f", strings.Repeat("x", 6000))
	var waiting sync.WaitGroup
	waiting.Add(2)
	d.OnSave = func(context.Context) error {
		waiting.Done()
		waiting.Wait() // both have reserved their space
		return nil
	}
	first := make(chan string)
	go func() { first <- pause(one) }()
	got := []string{pause(two), <-first}
	if slices.Sort(got); got[0] != "" {
		t.Errorf("no one of two is paused: %q", got)
	}
	refused(got[1], `the paused sandboxes of the client "c" take`, "paused.max_bytes")
	d.OnSave = nil

	left := r.Paused(context.Background())
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	r = newPausing(t, d, dir, change)
	if len(r.Paused(context.Background())) != len(left) {
		t.Errorf("%d paused sandboxes, want %d", len(r.Paused(context.Background())), len(left))
	}
	refused(pause(of("a")), `the client "a" has 2 paused sandboxes`)
}

// Copies of a sandbox have its files and ids of their own, and all exist or none.
func TestFork(t *testing.T) {
	dir := t.TempDir()
	d := saving()
	r := newPausing(t, d, dir, func(c *engine.Config) { c.MaxSandboxes, c.QueueTimeout = 5, 50*time.Millisecond })
	s, err := r.Create(t.Context(), sandbar.Spec{Name: "box", Labels: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	save(t, s, "f", "kept")
	forks, err := r.Fork(t.Context(), s.ID(), 3)
	if err != nil || len(forks) != 3 {
		t.Fatalf("%d, %v", len(forks), err)
	}
	for _, f := range forks {
		if info := f.Info(); f.ID() == s.ID() || info.Spec.Name != "" || info.Spec.Labels["a"] != "b" || content(t, f, "f") != "kept" {
			t.Errorf("%+v", info)
		}
	}
	save(t, forks[0], "f", "changed")
	if content(t, s, "f") != "kept" || content(t, forks[1], "f") != "kept" {
		t.Error("copies share files")
	}
	if _, err := r.Fork(t.Context(), s.ID(), 2); sandbar.CodeOf(err) != sandbar.Timeout {
		t.Errorf("without slots: %v", err)
	}
	for _, f := range forks {
		if err := r.Stop(t.Context(), f.ID()); err != nil {
			t.Error(err)
		}
	}
	broken := errors.New("broken")
	calls := 0
	d.OnRestore = func(context.Context) error {
		if calls++; calls == 2 {
			return broken
		}
		return nil
	}
	if _, err := r.Fork(t.Context(), s.ID(), 3); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	if n := len(r.List(context.Background())); n != 1 || names(t, dir) != "" {
		t.Errorf("%d sandboxes, and on disk: %s", n, names(t, dir))
	}
}

// A driver that cannot save is named, and so is one that can.
func TestPauseUnsupported(t *testing.T) {
	d := faulty.New()
	able := saving()
	able.Capabilities.Name = "able"
	r := newPausing(t, d, t.TempDir(), func(c *engine.Config) { c.ExtraDrivers = []engine.ExtraDriver{{Driver: able}} })
	s := r.create()
	_, forked := r.Fork(t.Context(), s.ID(), 1)
	for _, err := range []error{r.Pause(t.Context(), s.ID()), forked} {
		if e := sandbar.AsError(err); e == nil || e.Code != sandbar.Unsupported || !strings.Contains(e.Fix, "able") {
			t.Errorf("%v", err)
		}
	}
	r = newRig(t, saving(), nil)
	if err := r.Pause(t.Context(), r.create().ID()); sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Errorf("without a directory: %v", err)
	}
}

// The lifetime of a sandbox stops while it is paused, and goes on afterwards.
func TestPausedLifetime(t *testing.T) {
	inBubble(t, "lifetime", func(t *testing.T) {
		r := newPausing(t, saving(), t.TempDir(), func(c *engine.Config) { c.MaxLifetime, c.IdleTimeout = time.Hour, -1 })
		s := r.create()
		time.Sleep(40 * time.Minute)
		if err := r.Pause(t.Context(), s.ID()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Hour)
		s, err := r.Resume(t.Context(), s.ID())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(19 * time.Minute)
		if _, err := r.Get(context.Background(), s.ID()); err != nil {
			t.Errorf("after 59 minutes: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if _, err := r.Get(context.Background(), s.ID()); sandbar.CodeOf(err) != sandbar.NotFound {
			t.Errorf("after 61 minutes: %v", err)
		}
	})
}

// Stop, Shutdown and Pause at the same time leave a sandbox that is gone or one that is paused.
func TestPauseRaces(t *testing.T) {
	for name, other := range map[string]func(*rig, sandbar.ID) error{
		"stop":     func(r *rig, id sandbar.ID) error { return r.Stop(context.Background(), id) },
		"shutdown": func(r *rig, _ sandbar.ID) error { return r.Shutdown(context.Background()) },
		"fork":     func(r *rig, id sandbar.ID) error { _, err := r.Fork(context.Background(), id, 1); return err },
		"pause":    func(r *rig, id sandbar.ID) error { return r.Pause(context.Background(), id) },
	} {
		t.Run(name, func(t *testing.T) {
			for i := range 50 {
				dir := t.TempDir()
				d := saving()
				d.OnSave = func(context.Context) error { time.Sleep(time.Duration(i%5) * 100 * time.Microsecond); return nil }
				r := newPausing(t, d, dir, nil)
				id := r.create().ID()
				done := make(chan error, 1)
				go func() { done <- other(r, id) }()
				time.Sleep(time.Duration(i) * 20 * time.Microsecond)
				paused, err := r.Pause(t.Context(), id), <-done
				if err := r.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				want := ""
				switch {
				case name == "pause" && (paused == nil) == (err == nil):
					t.Errorf("two calls: %v and %v", paused, err)
				case name == "pause" || paused == nil && !(name == "stop" && err == nil):
					want = string(id)
				}
				if got := names(t, dir); got != want {
					t.Errorf("%s: pause: %v, %v; on disk: %q, want %q", name, paused, err, got, want)
				}
			}
		})
	}
}

// What a killed daemon has not completed is removed.
func TestPausedLeftovers(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".new-1", ".gone-2", ".fork-3"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "state"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	newPausing(t, saving(), dir, nil)
	if got := names(t, dir); got != "" {
		t.Errorf("left: %s", got)
	}
}
