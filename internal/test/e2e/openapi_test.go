package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// replayed are all operations of the control API in an order in which each can succeed.
var replayed = []string{"getStatus", "getUsage", "examineHost", "getConfiguration", "listImages", "listLanguages", "createSandbox", "followEvents", "listSandboxes", "getSandbox", "measureSandbox", "renewSandbox", "executorHealth", "runCommand", "streamCommand", "startProcess", "listProcesses",
	"followProcess", "killProcess", "uploadFile", "statFile", "downloadFile", "writeFile", "readFile", "listNames", "deleteFile", "makeDirectory",
	"listDirectory", "watchFiles", "deleteDirectory", "bindPort", "unbindPort", "createPreview", "listPreviews", "deletePreview", "createContext",
	"listContexts", "runCell", "interruptContext", "restartContext", "deleteContext", "execCommand", "connectPort", "forkSandbox", "pauseSandbox",
	"resumeSandbox", "deleteSandbox"}

// apiOperation is an operation of the OpenAPI document.
type apiOperation struct {
	method, path string
	OperationID  string
	Parameters   []struct {
		Name, In string
		Example  any
	}
	RequestBody struct {
		Content map[string]struct {
			Examples map[string]struct{ Value any }
		}
	}
	Responses map[string]struct {
		Content map[string]json.RawMessage
	}
}

// Every operation of /openapi.json is replayed with its examples against a daemon. Statuses and
// bodies are those of the document.
func TestOpenAPI(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.Freezer, testenv.Python)
	d := newDaemon(t, t.TempDir())
	r := &replay{t: t, d: d, values: map[string]string{"port": "8000"}}
	text := r.get("/openapi.json")
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r.schemas = jsonschema.NewCompiler()
	r.schemas.AssertFormat()
	if err := r.schemas.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	all := operationsOf(t, text)
	for name := range all {
		if !slices.Contains(replayed, name) {
			t.Errorf("%s is not replayed", name)
		}
	}
	for _, name := range replayed {
		o, ok := all[name]
		if !ok {
			t.Errorf("the document lacks %s", name)
			continue
		}
		r.play(o)
		r.refuse(o)
	}
	d.endClean(t)
}

func operationsOf(t *testing.T, text string) map[string]apiOperation {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	all := map[string]apiOperation{}
	for path, item := range doc.Paths {
		for method, raw := range item {
			o := apiOperation{method: strings.ToUpper(method), path: path}
			if method == "parameters" {
				continue
			}
			if err := json.Unmarshal(raw, &o); err != nil {
				t.Fatal(err)
			}
			all[o.OperationID] = o
		}
	}
	return all
}

// replay has what the operations share.
type replay struct {
	t       *testing.T
	d       *daemon
	schemas *jsonschema.Compiler
	values  map[string]string // of parameters: those of the last creation
	bearer  string            // the token of requests; "": the daemon's own
	// before, if not nil, is called with each request of an operation before it is sent.
	before func(o apiOperation, url string, body []byte, header []string)
}

func (r *replay) get(path string) string {
	r.t.Helper()
	resp := r.send("GET", "http://"+r.d.addr+path, nil)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		r.t.Fatalf("%s: %d %s, %v", path, resp.StatusCode, b, err)
	}
	return string(b)
}

func (r *replay) send(method, url string, body io.Reader, header ...string) *http.Response {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	r.t.Cleanup(cancel)
	q, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		r.t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+cmp.Or(r.bearer, token))
	for i := 0; i < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(q)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp
}

// play sends an operation's examples, or one request if it has none.
func (r *replay) play(o apiOperation) {
	r.t.Helper()
	bodies := map[string]any{}
	for _, c := range o.RequestBody.Content {
		for name, e := range c.Examples {
			bodies[name] = e.Value
		}
	}
	if len(bodies) == 0 {
		bodies["no body"] = nil
	}
	for _, name := range slices.Sorted(maps.Keys(bodies)) {
		r.playOne(o, name, bodies[name])
	}
}

func (r *replay) playOne(o apiOperation, name string, value any) {
	r.t.Helper()
	u := "http://" + r.d.addr + "/v1" + o.path
	for k, v := range r.values {
		u = strings.ReplaceAll(u, "{"+k+"}", v)
	}
	query := url.Values{}
	for _, p := range o.Parameters {
		if p.In == "query" && p.Example != nil {
			query.Set(p.Name, fmt.Sprint(p.Example))
		}
	}
	if query.Has("id") {
		query.Set("id", r.values["process"])
	}
	if r.bearer != "" {
		query.Del("tenant") // a parameter for the operator
	}
	var body []byte
	switch v := value.(type) {
	case nil:
	case string:
		body = []byte(v)
	case map[string]any:
		if _, ok := v["id"]; ok {
			v["id"] = r.values["process"]
		}
		body, _ = json.Marshal(v)
	}
	var header []string
	switch o.OperationID {
	case "execCommand":
		header = []string{"Connection", "Upgrade", "Upgrade", "sandbar-exec"}
	case "connectPort":
		header = []string{"Connection", "Upgrade", "Upgrade", "tcp"}
		r.listen()
	}
	if r.before != nil {
		r.before(o, u+"?"+query.Encode(), body, header)
	}
	resp := r.send(o.method, u+"?"+query.Encode(), bytes.NewReader(body), header...)
	defer resp.Body.Close()
	answer, ok := o.Responses[fmt.Sprint(resp.StatusCode)]
	if !ok {
		text, _ := io.ReadAll(resp.Body)
		r.t.Errorf("%s, %s: the status %d is not in the document: %s", o.OperationID, name, resp.StatusCode, text)
		return
	}
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
		return
	case o.OperationID == "followEvents":
		r.checkEvent(resp)
		return
	case o.OperationID == "watchFiles":
		r.send("PUT", "http://"+r.d.addr+"/v1/sandboxes/"+r.values["id"]+"/executor/files?path=seen", strings.NewReader("x")).Body.Close()
		line := make([]byte, 4096)
		n, err := resp.Body.Read(line)
		if err != nil {
			r.t.Errorf("%s: %v", o.OperationID, err)
		}
		first, _, _ := strings.Cut(string(line[:n]), "\n")
		r.check(o, answer.Content, resp, first)
		return
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Errorf("%s: %v", o.OperationID, err)
	}
	r.check(o, answer.Content, resp, string(text))
	r.keep(o, text)
}

// checkEvent compares the first event of a stream with the document.
func (r *replay) checkEvent(resp *http.Response) {
	r.t.Helper()
	s, err := r.schemas.Compile("openapi.json#/components/schemas/Notification")
	if err != nil {
		r.t.Fatal(err)
	}
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		data, ok := strings.CutPrefix(in.Text(), "data: ")
		if !ok {
			continue
		}
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(data))
		if err == nil {
			err = s.Validate(v)
		}
		if err != nil {
			r.t.Errorf("%s: %v", data, err)
		}
		return
	}
	r.t.Error("the stream has no event")
}

// refuse sends an operation to a sandbox that does not exist. The answer is an error as the
// document describes it.
func (r *replay) refuse(o apiOperation) {
	r.t.Helper()
	if !strings.Contains(o.path, "{id}") {
		return
	}
	u := "http://" + r.d.addr + "/v1" + strings.NewReplacer("{id}", "nobody", "{port}", "1", "{context}", "none").Replace(o.path)
	resp := r.send(o.method, u, nil)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusNotFound || resp.Header.Get("Content-Type") != "application/problem+json" {
		r.t.Errorf("%s of no sandbox: %d %s, %v", o.OperationID, resp.StatusCode, text, err)
		return
	}
	s, err := r.schemas.Compile("openapi.json#/components/schemas/Error")
	if err != nil {
		r.t.Fatal(err)
	}
	if v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text)); o.method != "HEAD" && (err != nil || s.Validate(v) != nil) {
		r.t.Errorf("%s of no sandbox: %s: %v, %v", o.OperationID, text, err, s.Validate(v))
	}
}

// listen makes a program listen on the port.
func (r *replay) listen() {
	r.t.Helper()
	base := "http://" + r.d.addr + "/v1/sandboxes/" + r.values["id"] + "/executor/"
	r.send("POST", base+"start_process", strings.NewReader(`{"cmd":"python3 -m http.server 8000"}`)).Body.Close()
	resp := r.send("POST", base+"run", strings.NewReader(`{"cmd":"until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000))'; do sleep 0.1; done 2>/dev/null"}`))
	resp.Body.Close()
}

// check compares a response with the document.
func (r *replay) check(o apiOperation, content map[string]json.RawMessage, resp *http.Response, text string) {
	r.t.Helper()
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if len(content) == 0 {
		if text != "" {
			r.t.Errorf("%s: the document has no body: %s", o.OperationID, text)
		}
		return
	}
	if content[media] == nil {
		r.t.Errorf("%s: %s is not in the document", o.OperationID, media)
		return
	}
	lines := []string{text}
	switch media {
	case "application/x-ndjson":
		lines = strings.Split(strings.TrimSpace(text), "\n")
	case "application/json":
	default:
		return
	}
	escape := strings.NewReplacer("~", "~0", "/", "~1").Replace
	s, err := r.schemas.Compile("openapi.json#/paths/" + url.PathEscape(escape(o.path)) + "/" + strings.ToLower(o.method) + "/responses/" +
		fmt.Sprint(resp.StatusCode) + "/content/" + url.PathEscape(escape(media)) + "/schema")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, line := range lines {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
		if err == nil {
			err = s.Validate(v)
		}
		if err != nil {
			r.t.Errorf("%s: %s: %v", o.OperationID, line, err)
		}
	}
}

// keep remembers the ids of what an operation has made.
func (r *replay) keep(o apiOperation, text []byte) {
	var made struct{ ID string }
	name := map[string]string{"createSandbox": "id", "startProcess": "process", "createContext": "context"}[o.OperationID]
	if json.Unmarshal(text, &made) == nil && name != "" {
		r.values[name] = made.ID
	}
}
