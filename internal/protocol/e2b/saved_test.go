package e2b

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

func savingDriver(d *faulty.Driver) { d.Saves = true }

// put writes a file of a sandbox, and has returns the content of one.
func (r *rig) put(c created, name, content string) {
	r.t.Helper()
	if status, text := r.ask("POST", "/files?path="+name, content, append(c.to("49983"), "Content-Type", "application/octet-stream")...); status != http.StatusOK {
		r.t.Fatalf("%d %s", status, text)
	}
}

func (r *rig) has(c created, name string) string {
	r.t.Helper()
	_, text := r.ask("GET", "/files?path="+name, "", c.to("49983")...)
	return text
}

// A sandbox of a snapshot has its files, and its own metadata. The snapshot outlives its sandbox,
// and can be used again until it is deleted.
func TestSnapshots(t *testing.T) {
	r := newRig(t, Options{}, savingDriver)
	c := r.create(`{"metadata":{"a":"source"},"envVars":{"A":"1","B":"2"}}`)
	r.put(c, "kept", "first")
	made := func(body string) (s snapshot) {
		t.Helper()
		status, text := r.plane("POST", "/sandboxes/"+c.SandboxID+"/snapshots", body)
		if err := json.Unmarshal([]byte(text), &s); err != nil || status != http.StatusCreated {
			t.Fatalf("%d %s", status, text)
		}
		return s
	}
	first := made(`{"name":"Mine"}`)
	r.put(c, "kept", "second")
	second := made(`{"name":"mine"}`)
	third := made(``)
	for _, body := range []string{`{"name":"a/b"}`, `{"name":"base"}`, `{"other":1}`} {
		if status, text := r.plane("POST", "/sandboxes/"+c.SandboxID+"/snapshots", body); status != 400 {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	r.plane("DELETE", "/sandboxes/"+c.SandboxID, "")
	for template, want := range map[string]string{first.ID: "first", second.ID: "second", "mine": "second", "mine:default": "second", third.ID: "second"} {
		n := r.create(`{"templateID":"` + template + `","metadata":{"a":"copy"},"envVars":{"B":"3"}}`)
		if got := r.has(n, "kept"); got != want || n.TemplateID != template {
			t.Errorf("%s: %q, %+v", template, got, n)
		}
		if _, text := r.ask("GET", "/envs", "", n.to("49983")...); text != `{"A":"1","B":"3"}` {
			t.Errorf("the environment is %s", text)
		}
		if _, text := r.plane("GET", "/sandboxes/"+n.SandboxID, ""); !strings.Contains(text, `"metadata":{"a":"copy"}`) {
			t.Error(text)
		}
	}
	list := func(query string) (ids []string) {
		for next := ""; ; {
			resp := r.send("GET", "/snapshots?limit=1&"+query+"&nextToken="+next, "", keyHeader, apiKey)
			var page []snapshot
			if err := json.NewDecoder(resp.Body).Decode(&page); err != nil || len(page) > 1 {
				t.Fatal(err, page)
			}
			resp.Body.Close()
			for _, s := range page {
				ids = append(ids, s.ID)
			}
			if next = resp.Header.Get("X-Next-Token"); next == "" {
				return ids
			}
		}
	}
	for query, want := range map[string][]string{"": {third.ID, second.ID, first.ID}, "sandboxID=" + c.SandboxID: {third.ID, second.ID, first.ID},
		"sandboxID=other": nil, "name=mine": {second.ID}, "name=other": nil} {
		if got := list(query); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	for _, want := range []int{204, 404} {
		if status, text := r.plane("DELETE", "/templates/"+second.ID, ""); status != want {
			t.Errorf("%d %s", status, text)
		}
	}
	if n := r.create(`{"templateID":"mine"}`); r.has(n, "kept") != "first" {
		t.Error("the name is not that of the older snapshot")
	}
}

// A driver that keeps the files alone refuses to copy a sandbox whose programs run.
func TestSnapshotOfPrograms(t *testing.T) {
	r := newRig(t, Options{}, savingDriver)
	c := r.create(`{}`)
	m := r.stream(c, "process.Process/Start", `{"process":{"cmd":"block-until","args":["never"]}}`)
	m.next()
	for _, action := range []string{"snapshots", "fork"} {
		status, text := r.plane("POST", "/sandboxes/"+c.SandboxID+"/"+action, `{}`)
		if status != 501 || !strings.Contains(text, "of which 1 run") {
			t.Errorf("%s: %d %s", action, status, text)
		}
	}
	m.body.Close()
}

// The copies of a fork have tokens of their own.
func TestFork(t *testing.T) {
	r := newRig(t, Options{}, savingDriver)
	c := r.create(`{"network":{"allowPublicTraffic":false},"metadata":{"a":"b"}}`)
	r.put(c, "kept", "x")
	status, text := r.plane("POST", "/sandboxes/"+c.SandboxID+"/fork", `{"count":2,"timeout":100}`)
	var all []forked
	if err := json.Unmarshal([]byte(text), &all); err != nil || status != 201 || len(all) != 2 {
		t.Fatalf("%d %s", status, text)
	}
	tokens := map[string]bool{c.AccessToken: true, c.TrafficToken: true}
	for _, f := range all {
		tokens[f.Sandbox.AccessToken], tokens[f.Sandbox.TrafficToken] = true, true
		if got := r.has(f.Sandbox, "kept"); got != "x" {
			t.Error(got)
		}
	}
	if len(tokens) != 6 {
		t.Errorf("tokens are shared: %v", tokens)
	}
	for _, body := range []string{`{"count":0}`, `{"count":101}`, `{"timeout":-1}`} {
		if status, text := r.plane("POST", "/sandboxes/"+c.SandboxID+"/fork", body); status != 400 {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}

// A creation succeeds also if the sandbox ends before its answer.
func TestEndsAtOnce(t *testing.T) {
	r := newRig(t, Options{}, nil)
	var creators sync.WaitGroup
	for range 8 {
		creators.Go(func() {
			for range 100 {
				if status, text := r.plane("POST", "/v2/sandboxes", `{"timeout":0}`); status != http.StatusCreated {
					t.Errorf("%d %s", status, text)
				}
			}
		})
	}
	creators.Wait()
}

// A sandbox is paused at its timeout if its client asks for that. A request resumes it only if the
// client asks for that too.
func TestAutoPause(t *testing.T) {
	for _, tt := range []struct {
		body    string
		resumes bool
	}{
		{`{"timeout":0,"autoPause":true,"autoPauseMemory":false}`, false},
		{`{"timeout":0,"autoPause":true,"autoResume":{"enabled":true}}`, true},
	} {
		r := newRig(t, Options{}, func(d *faulty.Driver) { d.Saves, d.Capabilities.SavesPrograms = true, tt.resumes })
		c := r.create(tt.body)
		for len(r.engine.Paused(context.Background())) == 0 {
			time.Sleep(time.Millisecond)
		}
		_, text := r.plane("GET", "/sandboxes/"+c.SandboxID, "")
		if !strings.Contains(text, `"onTimeout":"pause"`) || !strings.Contains(text, `"state":"paused"`) {
			t.Error(text)
		}
		// Requests at once resume it once.
		results := make(chan int)
		for range 4 {
			go func() {
				q, _ := http.NewRequest("GET", r.url+"/health", nil)
				for i, h := 0, c.to("49983"); i < len(h); i += 2 {
					q.Header.Set(h[i], h[i+1])
				}
				resp, err := http.DefaultClient.Do(q)
				if err != nil {
					results <- 0
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				results <- resp.StatusCode
			}()
		}
		want := map[bool]int{false: 502, true: 204}[tt.resumes]
		for range 4 {
			if status := <-results; status != want {
				t.Errorf("%s: %d, want %d", tt.body, status, want)
			}
		}
		if status, text := r.plane("POST", "/v2/sandboxes/"+c.SandboxID+"/connect", `{}`); status != map[bool]int{false: 201, true: 200}[tt.resumes] {
			t.Errorf("%d %s", status, text)
		}
	}
	r := newRig(t, Options{}, nil)
	for body, want := range map[string]int{`{"autoPause":true}`: 501, `{"autoResume":{"enabled":true}}`: 400, `{"autoPause":true,"autoPauseMemory":false,"autoResume":{"enabled":true}}`: 400} {
		if status, text := r.plane("POST", "/v2/sandboxes", body); status != want {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}
