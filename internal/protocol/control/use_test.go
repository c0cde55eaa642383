package control

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// TestMetrics tests that the answer is what the driver measures, and that a measurement is no use.
func TestMetrics(t *testing.T) {
	d := faulty.New()
	var fails atomic.Bool
	d.Use = func() (driver.Use, error) {
		if fails.Load() {
			return driver.Use{}, sandbar.Errorf(sandbar.Unsupported, "nothing counts")
		}
		return driver.Use{CPUTime: 1500 * time.Microsecond, Memory: 7 << 20, Cache: 3, Files: 2, Processes: 4}, nil
	}
	r := newRig(t, Options{}, d)
	s := r.create(`{"name":"m"}`)
	status, text := r.ask(token, "GET", "/v1/sandboxes/m/metrics", "")
	var m wire.Metrics
	if err := json.Unmarshal([]byte(text), &m); err != nil || status != 200 || m.Time.IsZero() || m.CPUTimeMS != 1.5 || m.Memory != 7<<20 || m.Cache != 3 || m.Files != 2 || m.Processes != 4 {
		t.Errorf("%d %s (%v)", status, text, err)
	}
	if i, err := r.engine.Get(context.Background(), s.ID); err != nil || !i.Info().LastUsed.Equal(s.LastUsed) {
		t.Errorf("the measurement was a use: %v, before %v (%v)", i.Info().LastUsed, s.LastUsed, err)
	}
	if status, text := r.ask(token, "GET", "/v1/sandboxes/m/metrics?x=1", ""); status != 400 || errorOf(t, text).Field != "x" {
		t.Errorf("%d %s", status, text)
	}
	fails.Store(true)
	if status, text := r.ask(token, "GET", "/v1/sandboxes/m/metrics", ""); status != 422 || errorOf(t, text).Code != sandbar.Unsupported {
		t.Errorf("a driver that cannot measure: %d %s", status, text)
	}
}

// TestRenew tests that a renewal restarts the idle time, and that another idle timeout applies from
// then on.
func TestRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		e, err := engine.New(engine.Config{Driver: d, AllowDegraded: true, IdleTimeout: time.Hour, MaxLifetime: 24 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		server := New(e, Options{IdleTimeout: time.Hour})
		ask := func(method, path, body string) (s wire.Sandbox, status int) {
			t.Helper()
			w := httptest.NewRecorder()
			server.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
			decodeInto(w.Body.String(), &s)
			return s, w.Code
		}
		s, _ := ask("POST", "/v1/sandboxes", `{"idle_timeout":60}`)
		if !s.Expires.Equal(s.Created.Add(24 * time.Hour)) {
			t.Errorf("created %v, expires %v", s.Created, s.Expires)
		}
		path := "/v1/sandboxes/" + string(s.ID)
		for range 3 {
			time.Sleep(50 * time.Second)
			if got, status := ask("POST", path+"/renew", ""); status != 200 || got.IdleTimeout != 60 || !got.LastUsed.Equal(time.Now()) {
				t.Errorf("%d %+v", status, got)
			}
		}
		if got, status := ask("POST", path+"/renew", `{"idle_timeout":600}`); status != 200 || got.IdleTimeout != 600 || !got.Expires.Equal(s.Expires) {
			t.Errorf("%d %+v", status, got)
		}
		time.Sleep(599 * time.Second)
		if _, status := ask("GET", path, ""); status != 200 {
			t.Errorf("before the new timeout: %d", status)
		}
		ask("POST", path+"/renew", `{"idle_timeout":5}`)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if _, status := ask("GET", path, ""); status != http.StatusNotFound {
			t.Errorf("after a shorter timeout: %d", status)
		}
		server.Close()
		if err := e.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestBadRenew tests that a timeout out of range changes nothing.
func TestBadRenew(t *testing.T) {
	r := newRig(t, Options{}, nil)
	id := string(r.create(`{"idle_timeout":60}`).ID)
	for _, body := range []string{`{"idle_timeout":601}`, `{"idle_timeout":0.5}`, `{"idle_timeout":"unlimited"}`, `{"idle_timeout":-1}`, `{"idle":1}`, `[]`} {
		if status, text := r.ask(token, "POST", "/v1/sandboxes/"+id+"/renew", body); status != 400 || errorOf(t, text).Code != sandbar.Invalid {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	if status, text := r.ask(token, "GET", "/v1/sandboxes/"+id, ""); status != 200 || !strings.Contains(text, `"idle_timeout":60,`) {
		t.Errorf("%d %s", status, text)
	}
}

// TestRenewedStaysAcrossPause tests that the new idle timeout is kept with a paused sandbox.
func TestRenewedStaysAcrossPause(t *testing.T) {
	r := newStates(t)
	id := string(r.create(`{"idle_timeout":60}`).ID)
	for _, step := range []string{"renew", "pause", "resume"} {
		body := ""
		if step == "renew" {
			body = `{"idle_timeout":120}`
		}
		status, text := r.ask(token, "POST", "/v1/sandboxes/"+id+"/"+step, body)
		if status != 200 || !strings.Contains(text, `"idle_timeout":120,`) {
			t.Errorf("%s: %d %s", step, status, text)
		}
		if step == "pause" {
			if status, text := r.ask(token, "POST", "/v1/sandboxes/"+id+"/renew", ""); status != 409 {
				t.Errorf("a paused one: %d %s", status, text)
			}
		}
	}
}
