package e2b

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
	"github.com/sandbar-dev/sandbar/internal/protocol/wiretest"
)

// TestTables compares the answers to every outcome and every error code with testdata.
func TestTables(t *testing.T) {
	wiretest.Tables(t, "testdata/tables.golden", func(r sandbar.Result) string {
		e, err := endEventOf(r)
		if err != nil {
			code, _ := connectOf(sandbar.CodeOf(err))
			return "error " + code
		}
		b, _ := json.Marshal(e)
		return string(b)
	}, func(e *sandbar.Error) string {
		code, status := connectOf(e.Code)
		return fmt.Sprintf("%d %s %d", statusOf(e.Code), code, status)
	})
}

// errorOf checks that an error has the form of REST, and returns its message.
func errorOf(t *testing.T, status int, text string) string {
	t.Helper()
	var e errorBody
	if err := json.Unmarshal([]byte(text), &e); err != nil || e.Code != status || e.Message == "" {
		t.Errorf("%d %s has not the form of an error", status, text)
	}
	return e.Message
}

// Every refusal of the control plane has the form of the protocol.
func TestRefusals(t *testing.T) {
	r := newRig(t, Options{MaxTimeout: time.Hour}, nil)
	c := r.create(`{}`)
	key := []string{keyHeader, apiKey}
	for _, tt := range []struct {
		method, path, body string
		headers            []string
		status             int
	}{
		{"POST", "/v2/sandboxes", `{}`, []string{keyHeader, "other"}, 401},
		{"POST", "/v2/sandboxes", `{}`, []string{keyHeader, ""}, 401},
		{"POST", "/v2/sandboxes", `{}`, []string{keyHeader, apiKey, keyHeader, apiKey}, 401},
		{"GET", "/sandboxes", "", append(key, "Host", "evil.example"), 421},
		{"GET", "/sandboxes", "", append(key, "Origin", "http://evil.example"), 403},
		{"POST", "/v2/sandboxes", `{`, key, 400},
		{"POST", "/v2/sandboxes", `{"tiemout":1}`, key, 400},
		{"POST", "/v2/sandboxes", `{"timeout":"1"}`, key, 400},
		{"POST", "/v2/sandboxes", `{"timeout":3601}`, key, 400},
		{"POST", "/v2/sandboxes", `{"timeout":-1}`, key, 400},
		{"POST", "/v2/sandboxes", `{"metadata":{"a":1}}`, key, 400},
		{"POST", "/v2/sandboxes", `{"metadata":{"a":"` + strings.Repeat("x", 70<<10) + `"}}`, key, 413},
		{"POST", "/v2/sandboxes", strings.Repeat(" ", maxBody+1), key, 413},
		{"POST", "/v2/sandboxes", `{"envVars":{"A=B":"c"}}`, key, 400},
		{"POST", "/v2/sandboxes", `{"autoPause":true}`, key, 501},
		{"POST", "/v2/sandboxes", `{"autoResume":{"enabled":true}}`, key, 400},
		{"POST", "/v2/sandboxes", `{"mcp":{"a":{}}}`, key, 501},
		{"POST", "/v2/sandboxes", `{"iam":{"tokens":{"a":{}}}}`, key, 501},
		{"POST", "/v2/sandboxes", `{"volumeMounts":[{"name":"v","path":"/v"}]}`, key, 501},
		{"POST", "/v2/sandboxes", `{"network":{"allowOut":["*.example.com"],"denyOut":["0.0.0.0/0"]}}`, key, 501},
		{"POST", "/v2/sandboxes", `{"network":{"allowOut":["10.0.0.1"],"denyOut":["0.0.0.0/0"]}}`, key, 501}, // this driver has no network
		{"POST", "/v2/sandboxes", `{"network":{"denyOut":["10.0.0.0/33"]}}`, key, 400},
		{"POST", "/v2/sandboxes", `{"network":{"denyOut":["::ffff:10.0.0.0/104"]}}`, key, 400},
		{"POST", "/v2/sandboxes", `{"network":{"rules":{"a":[]}}}`, key, 501},
		{"POST", "/v2/sandboxes", `{"network":{"denyOut":["0.0.0.0/0"]},"allow_internet_access":true}`, key, 400},
		{"PUT", "/sandboxes", "", key, 405},
		{"GET", "/sandboxes/x", "", key, 404},
		{"DELETE", "/sandboxes/iaaaaaaaaaaaaaaaaaaaaaaaaaa", "", key, 404},
		{"POST", "/sandboxes/x/timeout", `{"timeout":1}`, key, 404},
		{"POST", "/sandboxes/" + c.SandboxID + "/timeout", `{"timeout":1.5}`, key, 400},
		{"POST", "/sandboxes/" + c.SandboxID + "/pause", `{}`, key, 501},
		{"POST", "/sandboxes/" + c.SandboxID + "/resume", `{}`, key, 409},
		{"POST", "/v2/sandboxes/" + c.SandboxID + "/connect", `{"a":1}`, key, 400},
		{"POST", "/sandboxes/" + c.SandboxID + "/snapshots", `{}`, key, 501},
		{"PUT", "/sandboxes/" + c.SandboxID + "/network", `{}`, key, 501}, // it has no network
		{"PUT", "/sandboxes/" + c.SandboxID + "/network", `{"rules":{"a":[]}}`, key, 501},
		{"PUT", "/sandboxes/" + c.SandboxID + "/network", `{"other":1}`, key, 400},
		{"PUT", "/sandboxes/x/network", `{}`, key, 404},
		{"GET", "/v2/sandboxes/" + c.SandboxID + "/logs?direction=up", "", key, 400},
		{"GET", "/v2/sandboxes/" + c.SandboxID + "/logs?level=loud", "", key, 400},
		{"GET", "/sandboxes/" + c.SandboxID + "/logs?limit=1001", "", key, 400},
		{"GET", "/sandboxes/x/logs", "", key, 404},
		{"POST", "/sandboxes/" + c.SandboxID + "/a/b", `{}`, key, 501},
		{"POST", "/v3/templates", `{}`, key, 400},
		{"POST", "/v3/templates", `{"name":"a/b"}`, key, 400},
		{"POST", "/v3/templates", `{"name":"base"}`, key, 400},
		{"POST", "/v3/templates", `{"name":"a","memoryMB":-1}`, key, 400},
		{"POST", "/v3/templates", `{"name":"a","tags":["b c"]}`, key, 400},
		{"POST", "/v3/templates", `{"name":"a","other":1}`, key, 400},
		{"GET", "/v3/templates", "", key, 405},
		{"GET", "/templates/none", "", key, 404},
		{"GET", "/v2/templates?limit=0", "", key, 400},
		{"GET", "/templates/none/builds/none/logs", "", key, 404},
		{"PATCH", "/templates/none", `{"public":false}`, key, 404},
		{"POST", "/templates/tags", `{"target":"none","tags":["a"]}`, key, 404},
		{"DELETE", "/templates/tags", `{"name":"none","tags":["a"]}`, key, 404},
		{"DELETE", "/templates/tags", `{"name":"none","tags":[]}`, key, 400},
		{"DELETE", "/templates/none", "", key, 404},
		{"GET", "/templates/none/tags", "", key, 404},
		{"GET", "/templates/aliases/none", "", key, 404},
		{"GET", "/templates/../files/" + strings.Repeat("0", 64), "", key, 404},
		{"PUT", "/templates/t00000000000000000000/files/..%2f..%2fx", "", key, 501},
		{"GET", "/templates/t00000000000000000000/files/" + strings.Repeat("0", 64), "", key, 501}, // there is no directory
		{"POST", "/v2/templates/none/builds/none", `{"fromImage":"base"}`, key, 404},
		{"POST", "/v2/templates/none/builds/none", `{}`, key, 400},
		{"POST", "/v2/templates/none/builds/none", `{"fromImage":"base","fromImageRegistry":{"type":"registry"}}`, key, 501},
		{"GET", "/templates/none/builds/none/status", "", key, 404},
		{"GET", "/v2/sandboxes?limit=0", "", key, 400},
		{"GET", "/v2/sandboxes?limit=1001", "", key, 400},
		{"GET", "/v2/sandboxes?state=dead", "", key, 400},
		{"GET", "/v2/sandboxes?nextToken=e", "", key, 400},
		{"GET", "/v2/sandboxes?order=up", "", key, 400},
		{"GET", "/v2/sandboxes?startedAfter=now", "", key, 400},
		{"GET", "/v2/sandboxes?metadata=a%3Db%26a%3Dc", "", key, 400},
		{"GET", "/v2/sandboxes?metadata=%25zz", "", key, 400},
	} {
		status, text := r.ask(tt.method, tt.path, tt.body, tt.headers...)
		if status != tt.status {
			t.Errorf("%s %s %.100s: %d %s, want %d", tt.method, tt.path, tt.body, status, text, tt.status)
		}
		errorOf(t, status, text)
	}
	if n := len(r.engine.List(context.Background())); n != 1 {
		t.Errorf("there are %d sandboxes, want 1", n)
	}
}

// The lists have all sandboxes of the protocol once, in order, page by page, and no other.
func TestList(t *testing.T) {
	r := newRig(t, Options{}, nil)
	if _, err := r.engine.Create(t.Context(), sandbar.Spec{}); err != nil { // of another protocol
		t.Fatal(err)
	}
	var want []string
	for i := range 7 {
		want = append(want, r.create(`{"metadata":{"n":"`+strconv.Itoa(i%2)+`","x y":"ü&="}}`).SandboxID)
	}
	list := func(query string) (ids []string) {
		for next := ""; ; {
			resp := r.send("GET", "/v2/sandboxes?limit=2&"+query+"&nextToken="+next, "", keyHeader, apiKey)
			var page []described
			if err := json.NewDecoder(resp.Body).Decode(&page); err != nil || len(page) > 2 {
				t.Fatal(err, page)
			}
			resp.Body.Close()
			for _, d := range page {
				ids = append(ids, d.SandboxID)
				if d.AccessToken != "" {
					t.Error("a list has an access token")
				}
			}
			if next = resp.Header.Get("X-Next-Token"); next == "" {
				return ids
			}
		}
	}
	if got := list("order=asc"); !slices.Equal(got, want) {
		t.Errorf("oldest first: %q, want %q", got, want)
	}
	slices.Reverse(want)
	if got := list(""); !slices.Equal(got, want) {
		t.Errorf("newest first: %q, want %q", got, want)
	}
	form := url.Values{url.PathEscape("x y"): {url.PathEscape("ü&=")}, "n": {"1"}}
	if got := list("metadata=" + url.QueryEscape(form.Encode())); !slices.Equal(got, []string{want[1], want[3], want[5]}) {
		t.Errorf("with metadata: %q", got)
	}
	if got := list("state=paused"); len(got) > 0 {
		t.Errorf("paused: %q", got)
	}
}

// A sandbox ends at its time, which connect and refreshes only lengthen.
func TestTimeout(t *testing.T) {
	r := newRig(t, Options{}, nil)
	c := r.create(`{"timeout":100}`)
	end := func() time.Time {
		_, text := r.plane("GET", "/sandboxes/"+c.SandboxID, "")
		var d described
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		return d.EndAt
	}
	for _, tt := range []struct {
		path, body string
		status     int
		from, to   time.Duration
	}{
		{"/v2/sandboxes/" + c.SandboxID + "/connect", `{"timeout":10}`, 200, 90, 100},
		{"/sandboxes/" + c.SandboxID + "/connect", ``, 200, 90, 100},
		{"/v2/sandboxes/" + c.SandboxID + "/connect", `{"timeout":200}`, 200, 190, 200},
		{"/sandboxes/" + c.SandboxID + "/refreshes", `{"duration":10}`, 204, 190, 200},
		{"/sandboxes/" + c.SandboxID + "/timeout", `{"timeout":50}`, 204, 40, 50},
	} {
		if status, text := r.plane("POST", tt.path, tt.body); status != tt.status {
			t.Errorf("%s: %d %s", tt.path, status, text)
		}
		if left := time.Until(end()); left < tt.from*time.Second || left > tt.to*time.Second {
			t.Errorf("%s %s: %v are left", tt.path, tt.body, left)
		}
	}
	r.plane("POST", "/sandboxes/"+c.SandboxID+"/timeout", `{"timeout":0}`)
	for {
		if status, _ := r.plane("GET", "/sandboxes/"+c.SandboxID, ""); status == http.StatusNotFound {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if status, text := r.ask("GET", "/health", "", c.to("49983")...); status != 502 || !strings.Contains(text, "The sandbox was not found") {
		t.Errorf("health of a sandbox that has ended: %d %s", status, text)
	}
}

// A paused sandbox is listed, not reachable and not ended; connect resumes it with its tokens, also
// in another server.
func TestPause(t *testing.T) {
	r := newRig(t, Options{}, func(d *faulty.Driver) { d.Saves = true })
	c := r.create(`{"network":{"allowPublicTraffic":false}}`)
	if status, text := r.plane("POST", "/sandboxes/"+c.SandboxID+"/pause", `{"memory":false}`); status != 204 {
		t.Fatal(status, text)
	}
	for _, tt := range []struct {
		method, path string
		status       int
	}{{"POST", "/sandboxes/" + c.SandboxID + "/pause", 409}, {"POST", "/sandboxes/" + c.SandboxID + "/timeout", 409}, {"GET", "/sandboxes/" + c.SandboxID, 200}} {
		if status, text := r.plane(tt.method, tt.path, ""); status != tt.status && tt.method == "GET" {
			t.Errorf("%s: %d %s", tt.path, status, text)
		}
	}
	if status, _ := r.ask("GET", "/health", "", c.to("49983")...); status != 502 {
		t.Errorf("health of a paused sandbox: %d", status)
	}
	again := New(r.engine, Options{})
	defer again.Close()
	id, _ := again.names.ParseLabel(c.SandboxID)
	e, err := again.find(context.Background(), id)
	if err != nil || e.Token != c.AccessToken || e.Traffic != c.TrafficToken {
		t.Errorf("another server has %v, %v", e, err)
	}
	if _, text := r.plane("GET", "/v2/sandboxes?state=paused", ""); !strings.Contains(text, `"state":"paused"`) {
		t.Error(text)
	}
	status, text := r.plane("POST", "/v2/sandboxes/"+c.SandboxID+"/connect", `{"timeout":60}`)
	var resumed created
	if err := json.Unmarshal([]byte(text), &resumed); err != nil || status != 201 || resumed != c {
		t.Errorf("connect: %d %s, want %v", status, text, c)
	}
	if status, _ := r.ask("GET", "/health", "", c.to("49983")...); status != 204 {
		t.Errorf("health of a resumed sandbox: %d", status)
	}
}

// Requests into a sandbox reach it by headers and by host name, with the right token only.
func TestRouting(t *testing.T) {
	r := newRig(t, Options{Domain: "boxes.example"}, nil)
	c, other := r.create(`{}`), r.create(`{"network":{"allowPublicTraffic":false}}`)
	host := func(port, id string) []string { return []string{"Host", port + "-" + id + ".boxes.example"} }
	list := "/process.Process/List"
	for _, tt := range []struct {
		name, method, path string
		headers            []string
		status             int
	}{
		{"one header", "GET", "/health", []string{sandboxHeader, c.SandboxID}, 400},
		{"the other header", "GET", "/health", []string{portHeader, "49983"}, 400},
		{"an id twice", "GET", "/health", append(c.to("49983"), sandboxHeader, c.SandboxID), 400},
		{"no port", "GET", "/health", c.to("0"), 400},
		{"an unknown id", "GET", "/health", []string{sandboxHeader, "i" + strings.Repeat("a", 26), portHeader, "49983"}, 502},
		{"a malformed id", "GET", "/health", []string{sandboxHeader, "../x", portHeader, "49983"}, 502},
		{"another form of the id", "GET", "/health", []string{sandboxHeader, "sb_" + c.SandboxID[1:], portHeader, "49983"}, 502},
		{"by host name", "GET", "/health", host("49983", c.SandboxID), 204},
		{"an unknown host name", "GET", "/health", host("49983", "i"+strings.Repeat("a", 26)), 502},
		{"a host name without mark", "GET", "/health", host("49983", c.SandboxID[1:]), 421},
		{"no token", "POST", list, host("49983", c.SandboxID), 401},
		{"another's token", "POST", list, append(host("49983", c.SandboxID), tokenHeader, other.AccessToken), 401},
		{"the API key", "POST", list, append(host("49983", c.SandboxID), tokenHeader, apiKey), 401},
		{"two tokens", "POST", list, append(host("49983", c.SandboxID), tokenHeader, c.AccessToken, tokenHeader, "x"), 401},
		{"the token", "POST", list, append(host("49983", c.SandboxID), tokenHeader, c.AccessToken), 200},
		{"running code without a token", "POST", "/execute", host("49999", c.SandboxID), 401},
		{"contexts", "GET", "/contexts", host("49999", c.SandboxID), 200},
		{"private contexts", "GET", "/contexts", host("49999", other.SandboxID), 403},
		{"private contexts with the token", "GET", "/contexts", append(host("49999", other.SandboxID), trafficHeader, other.TrafficToken), 200},
		{"a closed port", "GET", "/", host("80", c.SandboxID), 502},
		{"a private port", "GET", "/", host("80", other.SandboxID), 403},
		{"a private port with another's token", "GET", "/", append(host("80", other.SandboxID), trafficHeader, c.AccessToken), 403},
		{"a control route", "POST", "/init", c.to("49983"), 501},
		{"another method", "GET", list, c.to("49983"), 405},
		{"files without any token", "GET", "/files?path=x", nil, 401},
		{"files with the token only", "GET", "/files?path=x", []string{tokenHeader, c.AccessToken}, 404},
		{"files with an unknown token", "GET", "/files?path=x", []string{tokenHeader, "x"}, 401},
	} {
		if status, text := r.ask(tt.method, tt.path, "", tt.headers...); status != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.name, status, text, tt.status)
		}
	}
	if status, _ := r.plane("GET", "/nothing", ""); status == http.StatusOK || status == http.StatusNotImplemented {
		t.Errorf("a path of another protocol: %d", status)
	}
}

// Malformed streams end with one error, and have no effect.
func TestEnvelopes(t *testing.T) {
	r := newRig(t, Options{}, nil)
	c := r.create(`{}`)
	for _, tt := range []struct{ name, body, code string }{
		{"nothing", "", "invalid_argument"},
		{"half a head", "\x00\x00", "invalid_argument"},
		{"a length without a message", "\x00\x00\x00\x00\x05{}", "invalid_argument"},
		{"a giant length", "\x00\xff\xff\xff\xff{}", "invalid_argument"},
		{"compressed", "\x01\x00\x00\x00\x02{}", "unimplemented"},
		{"an unknown flag", "\x80\x00\x00\x00\x02{}", "invalid_argument"},
		{"the end", "\x02\x00\x00\x00\x02{}", "invalid_argument"},
		{"no JSON", "\x00\x00\x00\x00\x01{", "invalid_argument"},
		{"another type", "\x00\x00\x00\x00\x0d{\"process\":[]}"[:5] + `{"process":[]}`[:13], "invalid_argument"},
		{"no command", "\x00\x00\x00\x00\x02{}", "invalid_argument"},
		{"a NUL", string(appendEnvelope(nil, 0, []byte(`{"process":{"cmd":"print","args":["a\u0000"]}}`))), "invalid_argument"},
		{"a relative home", string(appendEnvelope(nil, 0, []byte(`{"process":{"cmd":"print","cwd":"~root"}}`))), "invalid_argument"},
		{"a giant terminal", string(appendEnvelope(nil, 0, []byte(`{"process":{"cmd":"print"},"pty":{"size":{"cols":0,"rows":99999}}}`))), "invalid_argument"},
	} {
		all := r.raw(c, "process.Process/Start", tt.body).rest()
		if len(all) != 1 || !strings.Contains(all[0], `"code":"`+tt.code+`"`) {
			t.Errorf("%s: %q, want %s", tt.name, all, tt.code)
		}
	}
	for method, body := range map[string]string{"process.Process/SendSignal": `{"process":{"pid":1},"signal":"SIGNAL_HUP"}`, "process.Process/Update": `[]`,
		"filesystem.Filesystem/Stat": `{"path":"a\u0000"}`, "filesystem.Filesystem/ListDir": `{"path":"/","depth":-1}`, "filesystem.Filesystem/MakeDir": `{"path":5}`} {
		if status, text := r.call(c, method, body); status != 400 || !strings.Contains(text, `"code":"invalid_argument"`) {
			t.Errorf("%s: %d %s", method, status, text)
		}
	}
	if status, text := r.call(c, "process.Process/SendInput", `{"input":{"stdin":"`+strings.Repeat("a", maxMessage)+`"}}`); status != 400 || !strings.Contains(text, "larger than") {
		t.Errorf("a giant message: %d %s", status, text)
	}
	if n := r.driver.Counts(); slices.Contains(r.driver.Events(), "start") {
		t.Errorf("a program was started: %v", n)
	}
}

func startOf(args ...string) string {
	b, _ := json.Marshal(startRequest{Process: processConfig{Cmd: args[0], Args: args[1:]}})
	return string(b)
}

// Programs end with the events of the protocol.
func TestProcess(t *testing.T) {
	r := newRig(t, Options{}, nil)
	c := r.create(`{"envVars":{"A":"b"}}`)
	for _, tt := range []struct {
		args   []string
		stdout string
		end    string
	}{
		{[]string{"print", "stdout", "hi"}, "hi\n", `{"event":{"end":{"exited":true,"status":"exit status 0"}}}`},
		{[]string{"exit", "3"}, "", `{"event":{"end":{"exitCode":3,"exited":true,"status":"exit status 3","error":"exit status 3"}}}`},
		{[]string{"signal", "15"}, "", `{"event":{"end":{"exitCode":-1,"status":"signal: terminated","error":"signal: terminated"}}}`},
		{[]string{"env", "A"}, "A=b\n", `{"event":{"end":{"exited":true,"status":"exit status 0"}}}`},
		{[]string{"env", "E2B_SANDBOX_ID"}, "E2B_SANDBOX_ID=" + c.SandboxID + "\n", `{"event":{"end":{"exited":true,"status":"exit status 0"}}}`},
		{[]string{"no-such-program"}, "", `{"event":{"end":{"exitCode":127,"exited":true,"status":"exit status 127","error":"exit status 127"}}}`},
	} {
		stdout, end := outputOf(t, r.stream(c, "process.Process/Start", startOf(tt.args...)).rest())
		if stdout != tt.stdout || end[0] != tt.end || end[1] != "{}" {
			t.Errorf("%q: %q, %q", tt.args, stdout, end)
		}
	}
	for user, ok := range map[string]bool{"user": true, "root": true, "": true, "nobody": false} {
		all := r.stream(c, "process.Process/Start", startOf("exit", "0"), "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":"))).rest()
		if refused := strings.Contains(all[0], "unauthenticated"); refused == ok {
			t.Errorf("the user %q: %q", user, all)
		}
	}
	all := r.stream(c, "process.Process/Start", startOf("sleep", "1h"), "Connect-Timeout-Ms", "50").rest()
	if !strings.Contains(all[len(all)-1], `"code":"deadline_exceeded"`) {
		t.Errorf("at the time limit: %q", all)
	}
	if _, text := r.call(c, "process.Process/List", "{}"); text != "{}" {
		t.Errorf("running: %s", text)
	}
}

// A program outlives its stream; others can follow it, write to it and end it, and its end can be
// read later.
func TestFollow(t *testing.T) {
	r := newRig(t, Options{}, nil)
	c := r.create(`{}`)
	first := r.stream(c, "process.Process/Start", `{"process":{"cmd":"echo-stdin"},"tag":"mine"}`)
	text, _ := first.next()
	var m processMessage
	if err := json.Unmarshal([]byte(text), &m); err != nil || m.Event.Start == nil {
		t.Fatal(text, err)
	}
	pid := strconv.Itoa(m.Event.Start.PID)
	second := r.stream(c, "process.Process/Connect", `{"process":{"tag":"mine"}}`)
	second.next()
	first.body.Close()
	input := base64.StdEncoding.EncodeToString([]byte("hi"))
	for _, call := range [][2]string{{"SendInput", `{"process":{"pid":` + pid + `},"input":{"stdin":"` + input + `"}}`}, {"CloseStdin", `{"process":{"tag":"mine"}}`}} {
		if status, text := r.call(c, "process.Process/"+call[0], call[1]); status != 200 {
			t.Errorf("%s: %d %s", call[0], status, text)
		}
	}
	if stdout, end := outputOf(t, second.rest()); stdout != "hi" || !strings.Contains(end[0], "exit status 0") {
		t.Errorf("the follower got %q, %q", stdout, end)
	}
	if late := r.stream(c, "process.Process/Connect", `{"process":{"pid":`+pid+`}}`).rest(); len(late) != 3 {
		t.Errorf("after the end: %q", late)
	}
	for _, call := range [][2]string{{"SendInput", `{"process":{"pid":` + pid + `},"input":{"stdin":""}}`}, {"SendSignal", `{"process":{"pid":` + pid + `},"signal":"SIGNAL_SIGKILL"}`},
		{"Update", `{"process":{"pid":` + pid + `},"pty":{"size":{"cols":1,"rows":1}}}`}} {
		if status, text := r.call(c, "process.Process/"+call[0], call[1]); status != 404 || !strings.Contains(text, `"code":"not_found"`) {
			t.Errorf("%s after the end: %d %s", call[0], status, text)
		}
	}
}

// A client that does not read blocks its program and uses bounded memory; it is cut off, and the
// program goes on. Another client gets every byte.
func TestSlowClient(t *testing.T) {
	const size = 32 << 20
	r := newRig(t, Options{StallTimeout: 5 * time.Second}, nil)
	c := r.create(`{}`)
	stuck := r.stream(c, "process.Process/Start", `{"process":{"cmd":"flood","args":["stdout","`+strconv.Itoa(size)+`"]},"tag":"flood"}`)
	stuck.next()
	if n := r.driver.Written(); n > size/2 {
		t.Errorf("the program has written %d bytes that nobody has read", n)
	}
	stdout, end := outputOf(t, r.stream(c, "process.Process/Connect", `{"process":{"tag":"flood"}}`).rest())
	if !strings.Contains(end[0], "exit status 0") || len(stdout) < size/2 || len(stdout) > size {
		t.Errorf("the other client got %d bytes, %q", len(stdout), end)
	}
	if all, err := io.ReadAll(stuck.body); err == nil {
		t.Errorf("the stuck client was not cut off: %d bytes", len(all))
	}
}

// The input that a program does not read is bounded.
func TestInput(t *testing.T) {
	i := newInput()
	ctx, cancel := context.WithCancel(t.Context())
	if err := i.add(ctx, make([]byte, maxInput)); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() { failed <- i.add(ctx, []byte("more")) }()
	cancel()
	if err := <-failed; sandbar.CodeOf(err) != sandbar.Canceled {
		t.Errorf("more than the bound: %v", err)
	}
	go func() { failed <- i.add(context.Background(), []byte("more")) }()
	got, err := io.ReadAll(io.LimitReader(i, maxInput+4))
	if err != nil || !bytes.HasSuffix(got, []byte("\x00more")) || <-failed != nil {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	i.shut()
	if err := i.add(context.Background(), []byte("x")); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("after the program's end: %v", err)
	}
}

// The watchers of a sandbox are bounded, and end with it.
func TestWatchers(t *testing.T) {
	r := newRig(t, Options{}, nil)
	c := r.create(`{}`)
	var a watcherAnswer
	for i := range maxWatchers + 5 {
		status, text := r.call(c, "filesystem.Filesystem/CreateWatcher", `{"path":"."}`)
		if i < maxWatchers {
			if err := json.Unmarshal([]byte(text), &a); status != 200 || err != nil {
				t.Fatal(status, text)
			}
		} else if status != 429 || !strings.Contains(text, `"code":"resource_exhausted"`) {
			t.Errorf("watcher %d: %d %s", i, status, text)
		}
	}
	for _, want := range []int{200, 404} {
		if status, text := r.call(c, "filesystem.Filesystem/RemoveWatcher", `{"watcherId":"`+a.ID+`"}`); status != want {
			t.Errorf("%d %s, want %d", status, text, want)
		}
	}
	if status, _ := r.call(c, "filesystem.Filesystem/GetWatcherEvents", `{"watcherId":"`+a.ID+`"}`); status != 404 {
		t.Errorf("events of a removed watcher: %d", status)
	}
	if status, text := r.call(c, "filesystem.Filesystem/CreateWatcher", `{"path":"."}`); status != 200 {
		t.Errorf("after a removal: %d %s", status, text)
	}
}

// A graceful shutdown waits for commands, and ends watches and followers with an error.
func TestShutdown(t *testing.T) {
	r := newRig(t, Options{}, nil)
	c := r.create(`{}`)
	running := r.stream(c, "process.Process/Start", `{"process":{"cmd":"block-until","args":["go"]},"tag":"a"}`)
	running.next()
	follower := r.stream(c, "process.Process/Connect", `{"process":{"tag":"a"}}`)
	follower.next()
	watch := r.stream(c, "filesystem.Filesystem/WatchDir", `{"path":"."}`)
	watch.next()
	done := make(chan error)
	go func() { done <- r.server.Shutdown(context.Background()) }()
	for name, m := range map[string]messages{"follower": follower, "watch": watch} {
		if all := m.rest(); !strings.Contains(all[len(all)-1], `"code":"unavailable"`) {
			t.Errorf("the %s ended with %q", name, all)
		}
	}
	if status, text := r.plane("POST", "/v2/sandboxes", `{}`); status != 503 {
		t.Errorf("create during the shutdown: %d %s", status, text)
	}
	r.driver.Open("go")
	if all := running.rest(); !strings.Contains(all[0], "exit status 0") {
		t.Errorf("the command ended with %q", all)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The death of a sandbox ends its streams with an error that makes clients look whether it lives.
func TestDeath(t *testing.T) {
	r := newRig(t, Options{}, nil)
	c := r.create(`{}`)
	m := r.stream(c, "process.Process/Start", startOf("block-until", "never"))
	m.next()
	if !r.driver.DieAll() {
		t.Fatal("nothing died")
	}
	if all := m.rest(); len(all) != 1 || !strings.Contains(all[0], `"code":"unavailable"`) {
		t.Errorf("%q", all)
	}
}

func sign(path, operation, user, token, expiry string) string {
	text := path + ":" + operation + ":" + user + ":" + token
	if expiry != "" {
		text += ":" + expiry
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// A signature opens one path, for one operation, until its expiry.
func TestSignatures(t *testing.T) {
	r := newRig(t, Options{}, nil)
	c := r.create(`{}`)
	if status, text := r.ask("POST", "/files?path=a", "text", append(c.to("49983"), "Content-Type", "application/octet-stream")...); status != 200 {
		t.Fatal(status, text)
	}
	past, future := strconv.FormatInt(time.Now().Unix()-10, 10), strconv.FormatInt(time.Now().Unix()+100, 10)
	for _, tt := range []struct {
		name, path, user, expiry, signature, token string
		status                                     int
	}{
		{"right", "a", "", "", sign("a", "read", "", c.AccessToken, ""), "", 200},
		{"with user and expiry", "a", "user", future, sign("a", "read", "user", c.AccessToken, future), "", 200},
		{"expired", "a", "", past, sign("a", "read", "", c.AccessToken, past), "", 401},
		{"a longer expiry", "a", "", future, sign("a", "read", "", c.AccessToken, past), "", 401},
		{"an expiry without a signature of it", "a", "", future, sign("a", "read", "", c.AccessToken, ""), "", 401},
		{"no number", "a", "", "x", sign("a", "read", "", c.AccessToken, "x"), "", 401},
		{"another path", "b", "", "", sign("a", "read", "", c.AccessToken, ""), "", 401},
		{"for writing", "a", "", "", sign("a", "write", "", c.AccessToken, ""), "", 401},
		{"another user", "a", "root", "", sign("a", "read", "user", c.AccessToken, ""), "", 401},
		{"by the API key", "a", "", "", sign("a", "read", "", apiKey, ""), "", 401},
		{"by no token", "a", "", "", sign("a", "read", "", "", ""), "", 401},
		{"with a wrong token", "a", "", "", sign("a", "read", "", c.AccessToken, ""), "x", 401},
		{"an unknown user", "a", "eve", "", sign("a", "read", "eve", c.AccessToken, ""), "", 401},
	} {
		q := url.Values{"path": {tt.path}, "signature": {tt.signature}}
		if tt.user != "" {
			q.Set("username", tt.user)
		}
		if tt.expiry != "" {
			q.Set("signature_expiration", tt.expiry)
		}
		headers := []string{}
		if tt.token != "" {
			headers = append(headers, tokenHeader, tt.token)
		}
		for _, more := range [][]string{nil, {sandboxHeader, c.SandboxID, portHeader, "49983"}} { // found by its signature, too
			if status, text := r.ask("GET", "/files?"+q.Encode(), "", append(more, headers...)...); status != tt.status {
				t.Errorf("%s: %d %s, want %d", tt.name, status, text, tt.status)
			}
		}
	}
}

// Bad uploads are refused, and leave no file.
func TestUploads(t *testing.T) {
	r := newRig(t, Options{MaxFile: 1000}, nil)
	c := r.create(`{}`)
	form := func(parts ...string) string { return "--b\r\n" + strings.Join(parts, "\r\n--b\r\n") + "\r\n--b--\r\n" }
	file := func(name, text string) string {
		return "Content-Disposition: form-data; name=\"file\"; filename=\"" + name + "\"\r\n\r\n" + text
	}
	const octets, multi = "application/octet-stream", "multipart/form-data; boundary=b"
	for _, tt := range []struct {
		name, query, kind, body string
		headers                 []string
		status                  int
	}{
		{"no type", "path=x", "", "x", nil, 400},
		{"no path", "", octets, "x", nil, 400},
		{"a NUL", "path=a%00", octets, "x", nil, 400},
		{"too large", "path=x", octets, strings.Repeat("x", 1001), nil, 413},
		{"no gzip", "path=x", octets, "x", []string{"Content-Encoding", "gzip"}, 400},
		{"an unknown encoding", "path=x", octets, "x", []string{"Content-Encoding", "br"}, 400},
		{"metadata", "path=x", octets, "x", []string{"X-Metadata-A", "b"}, 501},
		{"an incomplete form", "path=x", multi, "--b\r\n" + file("x", "y"), nil, 400},
		{"no form", "path=x", multi, "x", nil, 400},
		{"a path twice", "", multi, form(file("x1", "a"), file("/home/user/x1", "b")), nil, 400},
		{"an unknown user", "path=x&username=eve", octets, "x", nil, 401},
		{"another part", "path=x", multi, form("Content-Disposition: form-data; name=\"other\"\r\n\r\nx"), nil, 200},
	} {
		headers := append(append(c.to("49983"), "Content-Type", tt.kind), tt.headers...)
		if status, text := r.ask("POST", "/files?"+tt.query, tt.body, headers...); status != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.name, status, text, tt.status)
		}
		if status, _ := r.ask("GET", "/files?path=x", "", c.to("49983")...); status != 404 {
			t.Errorf("%s: there is a file", tt.name)
		}
	}
}

func TestEncodings(t *testing.T) {
	for accept, want := range map[string]string{"": "identity", "gzip": "gzip", "gzip, deflate, br": "identity", "identity": "identity", "*": "identity",
		"gzip;q=0": "identity", "gzip;q=0.5": "gzip", "identity;q=0, gzip": "gzip", "identity;q=0": "none", "br, *;q=0": "none", "identity;q=0.0, *": "gzip"} {
		got, ok := encodingOf(&http.Request{Header: http.Header{"Accept-Encoding": {accept}}})
		switch {
		case !ok:
			got = "none"
		case got == "":
			got = "identity"
		}
		if got != want {
			t.Errorf("%q: %s, want %s", accept, got, want)
		}
	}
}

func TestResolve(t *testing.T) {
	for name, want := range map[string]string{"": home, "~": home, "~/a": home + "/a", "a/../b": home + "/b", ".": home, "/": "/", "/a//b/": "/a/b", "../../etc": "/etc"} {
		if got, err := resolve(name); got != want || err != nil {
			t.Errorf("%q: %q, %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"a\x00", "~root/x", strings.Repeat("a", 5000)} {
		if _, err := resolve(name); sandbar.CodeOf(err) != sandbar.Invalid {
			t.Errorf("%.20q: %v", name, err)
		}
	}
}
