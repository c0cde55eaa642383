package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// The SDK from PyPI works with the executor: all functions of both of its clients.
func TestKoyebSDK(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.PyKoyeb)
	for mode, least := range map[string]int{"sync": 49, "async": 49} {
		t.Run(mode, func(t *testing.T) {
			x := newExecutor(t, nil)
			runChecks(t, mode, least, "EXECUTOR_URL=http://"+x.addr, "EXECUTOR_PROXY="+x.proxy, "EXECUTOR_SECRET="+x.secret)
		})
	}
}

// Sandbox.create() of the SDK works with a daemon behind a control plane of five routes.
func TestKoyebCreate(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.PyKoyeb)
	d := newDaemon(t, t.TempDir())
	for mode, least := range map[string]int{"create": 48, "create-async": 48} {
		t.Run(mode, func(t *testing.T) {
			plane := newControlPlane(t, d)
			runChecks(t, mode, least, "KOYEB_API_HOST="+plane.URL, "KOYEB_API_TOKEN=any")
		})
	}
	if err := d.stop(); err != nil {
		t.Errorf("the daemon ended with %v; it said:\n%s", err, d.said())
	}
}

// runChecks runs testdata/koyeb/checks.py, which must report at least so many
// checks and no failure.
func runChecks(t *testing.T, mode string, least int, env ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // of checks in emulated machines
	defer cancel()
	cmd := exec.CommandContext(ctx, "/usr/bin/python3", filepath.Join("testdata", "koyeb", "checks.py"), mode)
	cmd.Env = append(append(environ(), "PYTHONPATH="+testenv.KoyebPath(), "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*"), env...)
	out, err := cmd.CombinedOutput()
	if n := bytes.Count(out, []byte("ok ")); err != nil || n < least {
		t.Errorf("%v; %d checks held, want %d and more:\n%s", err, n, least, out)
	}
}

// controlPlane is the part of a cloud's API that the SDK needs to create sandboxes; it creates
// them in a daemon.
type controlPlane struct {
	t      *testing.T
	daemon *daemon

	mu       sync.Mutex
	apps     int
	services map[string]service // by the ids of service, deployment and app
}

type service struct{ Sandbox, App, Secret string }

func newControlPlane(t *testing.T, d *daemon) *httptest.Server {
	p := &controlPlane{t: t, daemon: d, services: map[string]service{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/apps", p.createApp)
	mux.HandleFunc("POST /v1/services", p.createService)
	mux.HandleFunc("GET /v1/services/{id}", p.getService)
	mux.HandleFunc("GET /v1/deployments/{id}", p.getDeployment)
	mux.HandleFunc("DELETE /v1/apps/{id}", p.deleteApp)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

type object = map[string]any

func (p *controlPlane) createApp(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.apps++
	reply(w, object{"app": object{"id": fmt.Sprintf("app-%d", p.apps)}})
}

func (p *controlPlane) createService(w http.ResponseWriter, r *http.Request) {
	var body struct {
		AppID      string `json:"app_id"`
		Definition struct {
			Name string
			Env  []struct{ Key, Value string }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		p.t.Error(err)
	}
	s := service{App: body.AppID}
	env := map[string]string{}
	for _, e := range body.Definition.Env {
		if e.Key == "SANDBOX_SECRET" {
			s.Secret = e.Value
		} else {
			env[e.Key] = e.Value
		}
	}
	var made struct{ ID string }
	p.ask(http.MethodPost, "/sandboxes", object{"name": body.Definition.Name, "env": env, "secret": s.Secret}, http.StatusCreated, &made)
	s.Sandbox = made.ID
	p.mu.Lock()
	defer p.mu.Unlock()
	p.services["service-"+s.App], p.services["deployment-"+s.App], p.services[s.App] = s, s, s
	reply(w, object{"service": object{"id": "service-" + s.App}})
}

func (p *controlPlane) find(w http.ResponseWriter, r *http.Request) (service, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.services[r.PathValue("id")]
	if !ok {
		http.Error(w, "{}", http.StatusNotFound)
	}
	return s, ok
}

func (p *controlPlane) getService(w http.ResponseWriter, r *http.Request) {
	if s, ok := p.find(w, r); ok {
		reply(w, object{"service": object{"id": r.PathValue("id"), "app_id": s.App, "name": "x", "active_deployment_id": "deployment-" + s.App}})
	}
}

func (p *controlPlane) getDeployment(w http.ResponseWriter, r *http.Request) {
	if s, ok := p.find(w, r); ok {
		reply(w, object{"deployment": object{"id": r.PathValue("id"), "status": "HEALTHY",
			"metadata":   object{"sandbox": object{"public_url": "http://" + p.daemon.addr, "routing_key": s.Sandbox}},
			"definition": object{"env": []object{{"key": "SANDBOX_SECRET", "value": s.Secret}}}}})
	}
}

func (p *controlPlane) deleteApp(w http.ResponseWriter, r *http.Request) {
	if s, ok := p.find(w, r); ok {
		p.ask(http.MethodDelete, "/sandboxes/"+s.Sandbox, nil, http.StatusNoContent, nil)
		reply(w, object{})
	}
}

// ask calls the daemon's own API.
func (p *controlPlane) ask(method, path string, body any, want int, answer any) {
	b, err := json.Marshal(body)
	if err != nil {
		p.t.Error(err)
	}
	r, err := http.NewRequest(method, "http://"+p.daemon.addr+path, bytes.NewReader(b))
	if err != nil {
		p.t.Error(err)
		return
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Error(err)
		return
	}
	defer resp.Body.Close()
	var got bytes.Buffer
	got.ReadFrom(resp.Body)
	if resp.StatusCode != want {
		p.t.Errorf("%s %s: %s: %s", method, path, resp.Status, strings.TrimSpace(got.String()))
		return
	}
	if answer != nil {
		if err := json.Unmarshal(got.Bytes(), answer); err != nil {
			p.t.Error(err)
		}
	}
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}
