package e2b

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// request asks for a build.
func (r *rig) request(body string) (q templateRequest) {
	r.t.Helper()
	status, text := r.plane("POST", "/v3/templates", body)
	if err := json.Unmarshal([]byte(text), &q); err != nil || status != 202 {
		r.t.Fatalf("%d %s", status, text)
	}
	return q
}

// built starts a build and waits for its end.
func (r *rig) built(q templateRequest, body string) buildStatus {
	r.t.Helper()
	if status, text := r.plane("POST", "/v2/templates/"+q.TemplateID+"/builds/"+q.BuildID, body); status != 202 {
		r.t.Fatalf("%d %s", status, text)
	}
	for {
		var b buildStatus
		status, text := r.plane("GET", "/templates/"+q.TemplateID+"/builds/"+q.BuildID+"/status?logsOffset=0", "")
		if err := json.Unmarshal([]byte(text), &b); err != nil || status != 200 {
			r.t.Fatalf("%d %s", status, text)
		}
		if b.Status != building {
			return b
		}
		time.Sleep(time.Millisecond)
	}
}

// Names with tags lead to builds of one template; a build that no name leads to is removed.
func TestTemplateNames(t *testing.T) {
	r := newRig(t, Options{}, savingDriver)
	first := r.request(`{"name":"Mine"}`)
	if b := r.built(first, `{"fromImage":"base","steps":[{"type":"ENV","args":["A","1"]}]}`); b.Status != ready || len(b.LogEntries) != 2 {
		t.Fatalf("%+v", b)
	}
	tagged := r.request(`{"name":"mine","tags":["v1","V2"]}`)
	if b := r.built(tagged, `{"fromTemplate":"mine","steps":[{"type":"ENV","args":["B","2"]}]}`); b.Status != ready {
		t.Fatalf("%+v", b)
	}
	if first.TemplateID != tagged.TemplateID || strings.Join(tagged.Tags, " ") != "v1 v2" || strings.Join(first.Tags, " ") != "default" {
		t.Errorf("%+v, %+v", first, tagged)
	}
	for template, want := range map[string]string{"mine": `{"A":"1","C":"3"}`, "mine:v1": `{"A":"1","B":"2","C":"3"}`, "mine:v2": `{"A":"1","B":"2","C":"3"}`} {
		c := r.create(`{"templateID":"` + template + `","envVars":{"C":"3"}}`)
		if _, text := r.ask("GET", "/envs", "", c.to("49983")...); text != want {
			t.Errorf("%s has %s", template, text)
		}
	}
	if b := r.built(r.request(`{"name":"mine"}`), `{"fromImage":"base"}`); b.Status != ready {
		t.Fatalf("%+v", b)
	}
	if n := len(r.engine.Paused(context.Background())); n != 2 {
		t.Errorf("there are %d builds, want 2", n)
	}
	if status, _ := r.plane("DELETE", "/templates/mine", ""); status != 204 || len(r.engine.Paused(context.Background())) != 0 {
		t.Errorf("%d, %d builds are left", status, len(r.engine.Paused(context.Background())))
	}
}

// Tags move between builds, also to an older one, and can be taken away. The lists have it.
func TestTags(t *testing.T) {
	r := newRig(t, Options{}, savingDriver)
	ids := map[string]string{}
	var template string
	for _, v := range []string{"v1", "v2"} {
		q := r.request(`{"name":"mine:` + v + `"}`)
		if b := r.built(q, `{"fromImage":"base","steps":[{"type":"ENV","args":["V","`+v+`"]}]}`); b.Status != ready {
			t.Fatalf("%+v", b)
		}
		ids[v], template = q.BuildID, q.TemplateID
	}
	is := func(name, want string) {
		t.Helper()
		c := r.create(`{"templateID":"` + name + `"}`)
		if _, text := r.ask("GET", "/envs", "", c.to("49983")...); text != `{"V":"`+want+`"}` {
			t.Errorf("%s has %s, want %s", name, text, want)
		}
	}
	assign := func(target, tags, want string) {
		t.Helper()
		status, text := r.plane("POST", "/templates/tags", `{"target":"`+target+`","tags":`+tags+`}`)
		var got struct {
			BuildID string
			Tags    []string
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil || status != 201 || got.BuildID != ids[want] {
			t.Errorf("%s: %d %s, want build %s", target, status, text, ids[want])
		}
	}
	assign("mine:v2", `["stable","latest"]`, "v2")
	is("mine:stable", "v2")
	assign("mine:v1", `["stable"]`, "v1")
	is("mine:stable", "v1")
	is("mine:latest", "v2")
	assign("mine:stable", `["default"]`, "v1")
	is("mine", "v1")
	assign("mine:v2", `["stable"]`, "v2")
	is("mine:stable", "v2")
	assign("mine:stable", `["stable"]`, "v2")
	for _, body := range []string{`{"target":"mine:v2","tags":["a b"]}`, `{"target":"mine:v2","tags":[]}`, `{"target":"mine:v2","tag":"x"}`} {
		if status, text := r.plane("POST", "/templates/tags", body); status != 400 {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	_, text := r.plane("GET", "/templates/"+template+"/tags", "")
	for _, tag := range []string{"v1", "v2", "stable", "latest", "default"} {
		if strings.Count(text, `"tag":"`+tag+`"`) != 1 {
			t.Errorf("%s is not there once: %s", tag, text)
		}
	}
	if status, text := r.plane("DELETE", "/templates/tags", `{"name":"mine","tags":["stable","none"]}`); status != 404 {
		t.Errorf("%d %s", status, text)
	}
	if status, text := r.plane("DELETE", "/templates/tags", `{"name":"mine","tags":["stable","default"]}`); status != 204 {
		t.Errorf("%d %s", status, text)
	}
	if status, _ := r.plane("POST", "/templates/tags", `{"target":"mine:stable","tags":["a"]}`); status != 404 {
		t.Errorf("a tag that was taken away: %d", status)
	}
	is("mine:v1", "v1")
	for _, path := range []string{"/templates", "/v2/templates", "/v2/templates?limit=1"} {
		_, text := r.plane("GET", path, "")
		var list []templateInfo
		if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) != 1 || list[0].TemplateID != template || list[0].BuildCount != 2 ||
			list[0].BuildID != ids["v2"] || strings.Join(list[0].Names, " ") != "mine" || list[0].CPUs < 1 {
			t.Errorf("%s: %s", path, text)
		}
	}
	if _, text := r.plane("GET", "/templates/mine:v1", ""); strings.Count(text, `"status":"ready"`) != 2 {
		t.Error(text)
	}
	if _, text := r.plane("GET", "/templates/"+template+"/builds/"+ids["v1"]+"/logs?direction=backward&limit=1", ""); !strings.Contains(text, "the template is ready") {
		t.Error(text)
	}
	if status, _ := r.plane("PATCH", "/v2/templates/mine:v1", `{"public":true}`); status != 501 {
		t.Errorf("a template is published: %d", status)
	}
	if status, text := r.plane("PATCH", "/v2/templates/mine:v1", `{"public":false}`); status != 200 {
		t.Errorf("%d %s", status, text)
	}
}

// A build that fails says at which step, and leaves nothing.
func TestTemplateFailures(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "uploads")
	r := newRig(t, Options{Dir: dir}, savingDriver)
	for steps, want := range map[string]string{
		`[{"type":"ENV","args":["A"]}]`:                                           "1",
		`[{"type":"ENV","args":["A","b","C=","d"]}]`:                              "1",
		`[{"type":"USER","args":["user"]},{"type":"USER","args":["other"]}]`:      "2",
		`[{"type":"VOLUME","args":["/x"]}]`:                                       "1",
		`[{"type":"RUN","args":[]}]`:                                              "1",
		`[{"type":"COPY","args":["../a","b"]}]`:                                   "1",
		`[{"type":"COPY","args":["/etc/passwd","b"]}]`:                            "1",
		`[{"type":"COPY","args":["a","b","","888"]}]`:                             "1",
		`[{"type":"COPY","args":["a","b"],"filesHash":"../../../../etc/passwd"}]`: "1",
	} {
		b := r.built(r.request(`{"name":"bad"}`), `{"fromImage":"base","steps":`+steps+`}`)
		if b.Status != failed || b.Reason == nil || b.Reason.Step != want {
			t.Errorf("%s: %+v", steps, b)
		}
	}
	if n := len(r.engine.List(context.Background())) + len(r.engine.Paused(context.Background())); n > 0 {
		t.Errorf("%d sandboxes are left", n)
	}
	q := r.request(`{"name":"files"}`)
	path := "/templates/" + q.TemplateID + "/files/" + strings.Repeat("a", 64)
	for _, want := range []bool{false, true} {
		var link struct {
			Present bool
			URL     string
			Headers map[string]string
		}
		_, text := r.plane("GET", path, "")
		if err := json.Unmarshal([]byte(text), &link); err != nil || link.Present != want || link.URL != r.url+path || link.Headers[keyHeader] != apiKey {
			t.Errorf("%s", text)
		}
		if status, text := r.plane("PUT", path, "content"); status != 200 {
			t.Errorf("%d %s", status, text)
		}
	}
	if status, _ := r.ask("PUT", path, "content"); status == 200 {
		t.Error("an upload needs no key")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Error(entries, err)
	}
	if status, text := r.plane("POST", "/v2/templates/"+q.TemplateID+"/builds/"+q.BuildID, `{"fromImage":"base"}`); status != 202 {
		t.Fatalf("%d %s", status, text)
	}
	if status, text := r.plane("POST", "/v2/templates/"+q.TemplateID+"/builds/"+q.BuildID, `{"fromImage":"base"}`); status != 409 {
		t.Errorf("%d %s", status, text)
	}
}
