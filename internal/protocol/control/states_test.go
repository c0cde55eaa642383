package control

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// newStates returns a rig whose driver can save sandboxes.
func newStates(t *testing.T) *rig {
	d := faulty.New()
	d.Saves = true
	return newRig(t, Options{}, d)
}

// described decodes a description.
func described(t *testing.T, text string) (s wire.Sandbox) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("%s (%v)", text, err)
	}
	return s
}

// A paused sandbox is described and listed, refuses everything else, and has its secret and its
// idle timeout again when it is resumed.
func TestPause(t *testing.T) {
	r := newStates(t)
	made := r.create(`{"name":"box","secret":"` + secret + `","idle_timeout":123}`)
	path := "/sandboxes/" + string(made.ID)
	for _, action := range []string{"/pause", "/resume", "/fork"} {
		if status, _ := r.ask(secret, "POST", path+action, ""); status != http.StatusUnauthorized {
			t.Errorf("the sandbox's secret allows %s: %d", action, status)
		}
		if status, _, h := r.askAll(token, "GET", path+action, ""); status != http.StatusMethodNotAllowed || h.Get("Allow") != "POST" {
			t.Errorf("GET %s: %d, %v", action, status, h)
		}
		if status, text := r.ask(token, "POST", path+action, `{"no":1}`); status != http.StatusBadRequest {
			t.Errorf("%s with an unknown field: %d %s", action, status, text)
		}
	}
	if status, text := r.ask(token, "POST", path+"/resume", ""); status != http.StatusConflict {
		t.Errorf("resuming a running sandbox: %d %s", status, text)
	}
	for range 3 { // by the name, too
		status, text := r.ask(token, "POST", "/sandboxes/box/pause", "")
		if s := described(t, text); status != http.StatusOK || s.ID != made.ID || s.State != wire.StatePaused || s.DiskBytes <= 0 || s.Paused.IsZero() || s.IdleTimeout != 123 {
			t.Fatalf("%d %s", status, text)
		}
		for _, call := range [][2]string{{"POST", "/pause"}, {"POST", "/fork"}, {"GET", "/dir?path=/"}, {"GET", "/executor/x"}} {
			status, text := r.ask(token, call[0], path+call[1], "")
			if e := errorOf(t, text); status != http.StatusConflict || !strings.Contains(e.Fix, "sandbar resume") {
				t.Errorf("%v of a paused sandbox: %d %s", call, status, text)
			}
		}
		if status, _ := r.ask(secret, "GET", path+"/executor/x", ""); status != http.StatusUnauthorized && status != http.StatusConflict {
			t.Errorf("the secret of a paused sandbox: %d", status)
		}
		var l wire.List
		_, text = r.ask(token, "GET", "/sandboxes", "")
		if err := json.Unmarshal([]byte(text), &l); err != nil || len(l.Sandboxes) != 1 || l.Sandboxes[0].State != wire.StatePaused || l.Sandboxes[0].Name != "box" {
			t.Errorf("%s", text)
		}
		if _, text := r.ask(token, "GET", path, ""); described(t, text).State != wire.StatePaused {
			t.Errorf("%s", text)
		}
		status, text = r.ask(token, "POST", "/sandboxes/box/resume", "{}")
		if s := described(t, text); status != http.StatusOK || s.ID != made.ID || s.State != wire.StateRunning || s.IdleTimeout != 123 || !s.Created.Equal(made.Created) {
			t.Fatalf("%d %s", status, text)
		}
		if status, text := r.ask(secret, "GET", path+"/executor/x", ""); status != http.StatusOK {
			t.Errorf("the secret of a resumed sandbox: %d %s", status, text)
		}
	}
	if status, _ := r.ask(token, "POST", path+"/pause", ""); status != http.StatusOK {
		t.Errorf("%d", status)
	}
	if status, text := r.ask(token, "DELETE", "/sandboxes/box", ""); status != http.StatusNoContent {
		t.Errorf("removing a paused sandbox: %d %s", status, text)
	}
	for _, action := range []string{"/pause", "/resume", "/fork"} {
		if status, text := r.ask(token, "POST", path+action, ""); status != http.StatusNotFound {
			t.Errorf("%s of a removed sandbox: %d %s", action, status, text)
		}
	}
}

// Copies have the secret of their source, and no name.
func TestForkRequest(t *testing.T) {
	r := newStates(t)
	made := r.create(`{"name":"box","secret":"` + secret + `"}`)
	path := "/sandboxes/" + string(made.ID) + "/fork"
	for _, body := range []string{`{"count":0}`, `{"count":101}`, `{"count":-1}`, `{"count":1.5}`, `{"count":"1"}`, `[]`} {
		if status, text := r.ask(token, "POST", path, body); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	var l wire.List
	status, text := r.ask(token, "POST", path, `{"count":2}`)
	if err := json.Unmarshal([]byte(text), &l); status != http.StatusCreated || err != nil || len(l.Sandboxes) != 2 {
		t.Fatalf("%d %s", status, text)
	}
	for _, s := range l.Sandboxes {
		if s.ID == made.ID || s.Name != "" || s.State != wire.StateRunning {
			t.Errorf("%+v", s)
		}
		if status, text := r.ask(secret, "GET", "/sandboxes/"+string(s.ID)+"/executor/x", ""); status != http.StatusOK {
			t.Errorf("the secret in a copy: %d %s", status, text)
		}
	}
}

// A driver that cannot save is an error that says what to do.
func TestPauseUnsupported(t *testing.T) {
	r := newRig(t, Options{}, nil)
	made := r.create("")
	for _, action := range []string{"pause", "fork"} {
		status, text := r.ask(token, "POST", "/sandboxes/"+string(made.ID)+"/"+action, "")
		if e := errorOf(t, text); status != http.StatusUnprocessableEntity || e.Code != sandbar.Unsupported || e.Fix == "" {
			t.Errorf("%s: %d %s", action, status, text)
		}
	}
}

// A note that is damaged gives nobody access by a secret.
func TestDamagedNote(t *testing.T) {
	for text, guarded := range map[string]bool{"": false, "{}": false, "{": true, `{"secret":"zz"}`: true, `{"secret":"00"}`: true} {
		if o := originOfNote([]byte(text)); o.guarded != guarded || o.secret != [32]byte{} {
			t.Errorf("%q: %+v", text, o)
		}
	}
	r := newStates(t)
	made := r.create(`{"secret":"` + secret + `"}`)
	path := "/sandboxes/" + string(made.ID)
	if status, text := r.ask(token, "POST", path+"/pause", ""); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	file := filepath.Join(r.paused, string(made.ID), "state", "files.json")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, text := r.ask(token, "POST", path+"/resume", "")
	if e := errorOf(t, text); status != http.StatusGone || e.Fix == "" {
		t.Errorf("a damaged state: %d %s", status, text)
	}
	if len(r.engine.Paused(context.Background())) != 1 || len(r.engine.List(context.Background())) != 0 {
		t.Error("a sandbox that could not be resumed is not paused")
	}
	if err := r.engine.Stop(context.Background(), made.ID); err != nil {
		t.Error(err)
	}
}
