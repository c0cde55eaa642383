package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// Admit refuses a language whose interpreter is not in the sandbox, and lists the available
// languages. It admits other languages and checks each once.
func TestCheckLanguages(t *testing.T) {
	d := faulty.New()
	d.Missing = []string{"elixir", "node"}
	var made atomic.Int64
	d.OnCreate = func(context.Context) error { made.Add(1); return nil }
	r := newRig(t, d, func(c *engine.Config) { c.CheckLanguages = true })
	for range 3 {
		_, err := r.Admit(sandbar.Job{Language: "elixir", Code: "exit 0"})
		e := sandbar.AsError(err)
		if sandbar.CodeOf(err) != sandbar.Unsupported || e.Field != "language" ||
			e.Message != `language elixir needs the program elixir, which the image "host" does not have; available are python, shell` {
			t.Errorf("%v", err)
		}
		r.admit(script("exit 0")).Cancel()
	}
	if got := fmt.Sprint(r.Available()); got != "[python shell]" {
		t.Errorf("available are %s", got)
	}
	if n := made.Load(); n != 1 {
		t.Errorf("%d sandboxes were made to look", n)
	}
	// With its own PATH the job may have another interpreter.
	x, err := r.Admit(sandbar.Job{Language: "elixir", Code: "exit 0", Spec: sandbar.Spec{Env: map[string]string{"PATH": "/opt/elixir/bin"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Run(nil); sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Errorf("it ran: %v", err)
	}
	// Another image may have other interpreters.
	if _, err := r.Admit(sandbar.Job{Language: "elixir", Code: "exit 0", Spec: sandbar.Spec{Image: "other"}}); sandbar.CodeOf(err) != sandbar.Unsupported || made.Load() != 3 || !strings.Contains(err.Error(), "available are python, shell") {
		t.Errorf("%v; %d sandboxes were made", err, made.Load())
	}
}

// If the check fails, no job is refused.
func TestCheckLanguagesInDoubt(t *testing.T) {
	inBubble(t, "the driver fails", func(t *testing.T) {
		d := faulty.New()
		d.Missing = []string{"elixir"}
		broken := true
		d.OnCreate = func(context.Context) error {
			if broken {
				return errors.New("it is broken")
			}
			return nil
		}
		r := newRig(t, d, func(c *engine.Config) { c.CheckLanguages = true })
		r.admit(script("exit 0")).Cancel()
		r.admit(sandbar.Job{Language: "elixir"}).Cancel()
		synctest.Wait()
		broken = false
		r.admit(sandbar.Job{Language: "elixir"}).Cancel() // the check is not repeated at once
		time.Sleep(31 * time.Second)
		if _, err := r.Admit(sandbar.Job{Language: "elixir"}); sandbar.CodeOf(err) != sandbar.Unsupported {
			t.Errorf("once it can be learned: %v", err)
		}
	})
	inBubble(t, "the driver hangs", func(t *testing.T) {
		d := faulty.New()
		d.OnCreate = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		r := newRig(t, d, func(c *engine.Config) { c.CheckLanguages = true })
		began := time.Now()
		r.admit(script("exit 0")).Cancel()
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it took %v to admit a job", took)
		}
	})
	inBubble(t, "all places are taken", func(t *testing.T) {
		d := faulty.New()
		d.Missing = []string{"elixir"}
		r := newRig(t, d, func(c *engine.Config) { c.CheckLanguages, c.MaxSandboxes = true, 1 })
		synctest.Wait()
		s := r.create()
		x, err := r.Admit(sandbar.Job{Language: "elixir", Spec: sandbar.Spec{Image: "other"}})
		if err != nil {
			t.Fatal(err)
		}
		x.Cancel()
		r.Stop(context.Background(), s.ID())
	})
}

// An operator may install or remove an interpreter while the daemon runs.
func TestInterpretersComeAndGo(t *testing.T) {
	inBubble(t, "one comes", func(t *testing.T) {
		d := faulty.New()
		d.Missing = []string{"elixir"}
		r := newRig(t, d, func(c *engine.Config) { c.CheckLanguages = true })
		if _, err := r.Admit(sandbar.Job{Language: "elixir"}); err == nil {
			t.Fatal("it was admitted")
		}
		synctest.Wait()
		d.Missing = nil
		time.Sleep(31 * time.Second)
		r.admit(sandbar.Job{Language: "elixir"}).Cancel()
	})
	inBubble(t, "one goes", func(t *testing.T) {
		d := faulty.New()
		r := newRig(t, d, func(c *engine.Config) { c.CheckLanguages = true })
		r.admit(sandbar.Job{Language: "elixir"}).Cancel()
		synctest.Wait()
		d.Missing = []string{"elixir"}
		if _, err := r.admit(sandbar.Job{Language: "elixir"}).Run(nil); sandbar.CodeOf(err) != sandbar.Unsupported || !strings.Contains(err.Error(), "available are javascript, python, shell") {
			t.Errorf("it ran: %v", err)
		}
		if _, err := r.Admit(sandbar.Job{Language: "elixir"}); sandbar.CodeOf(err) != sandbar.Unsupported {
			t.Errorf("it was admitted again: %v", err)
		}
	})
}
