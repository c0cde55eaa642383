package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/protocol/wiretest"
)

// TestTables compares the answers to every outcome and every error code with testdata.
func TestTables(t *testing.T) {
	wiretest.Tables(t, "testdata/tables.golden", func(r sandbar.Result) string {
		return strings.TrimSpace(r.Outcome.String() + " " + describe(r.Outcome, sandbar.Limits{Timeout: 1e9, Output: 10}))
	}, func(e *sandbar.Error) string {
		return fmt.Sprintf("%d %s", rpcCodeOf(e.Code), strings.ReplaceAll(textOf(toolError(e)), "\n", "; "))
	})
}

// Every tool has a title, hints, a description, and schemas of its arguments and results.
func TestTools(t *testing.T) {
	c := newRig(t, Options{}).connect()
	l, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range l.Tools {
		names = append(names, tool.Name)
		if tool.Title == "" || tool.Description == "" || tool.InputSchema == nil || tool.OutputSchema == nil || tool.Annotations == nil ||
			tool.Annotations.DestructiveHint == nil || tool.Annotations.OpenWorldHint == nil {
			t.Errorf("%s lacks a part: %+v", tool.Name, tool)
			continue
		}
		if tool.Annotations.ReadOnlyHint && *tool.Annotations.DestructiveHint {
			t.Errorf("%s reads only, and destroys", tool.Name)
		}
		b, _ := json.Marshal(tool.InputSchema)
		var schema struct {
			Properties map[string]struct{ Description string }
		}
		json.Unmarshal(b, &schema)
		for name, p := range schema.Properties {
			if p.Description == "" && name != "content" && name != "ignore_case" {
				t.Errorf("%s: the argument %s has no description", tool.Name, name)
			}
		}
	}
	slices.Sort(names)
	want := "create_sandbox download edit_file expose_port list_files list_sandboxes read_file restore run_code run_command search_files snapshot stop_sandbox upload write_file"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("tools: %s, want %s", got, want)
	}
}

// run_code keeps variables, and has results, errors and images.
func TestRunCode(t *testing.T) {
	c := newRig(t, Options{}).connect()
	if got, o := c.call("run_code", object{"code": "x = 20; print('hé'); x + 1"}); got != "hé\n21\n" || o["stdout"] != "hé\n" || o["execution_count"] != 1.0 || o["outcome"] != "exited" {
		t.Errorf("%q %v", got, o)
	}
	if got, o := c.call("run_code", object{"code": "x"}); got != "20\n" || len(o["results"].([]any)) != 1 {
		t.Errorf("%q %v", got, o)
	}
	if got, _ := c.call("run_code", object{"code": "x", "context": "other"}); !strings.Contains(got, "NameError") {
		t.Errorf("another context: %q", got)
	}
	if got, o := c.call("run_code", object{"code": "x", "restart": true}); !strings.Contains(got, "NameError") || o["failed"] != true || o["error"].(object)["name"] != "NameError" {
		t.Errorf("%q %v", got, o)
	}
	if got, o := c.call("run_code", object{"code": "import os; os._exit(3)"}); o["lost"] != true || !strings.Contains(got, "variables are gone") {
		t.Errorf("%q %v", got, o)
	}
	if got, o := c.call("run_code", object{"code": "import time; time.sleep(100)", "timeout": 0.2}); o["outcome"] != "timeout" || !strings.Contains(got, "time limit of 200ms") {
		t.Errorf("%q %v", got, o)
	}
	if got, _ := c.call("run_code", object{"code": "echo $((6*7)) $A", "language": "bash", "env": object{"A": "b"}}); got != "42 b\n" {
		t.Errorf("%q", got)
	}
	// A value with an image, a table, and a format that no client shows.
	r := c.try("run_code", object{"code": `
class V:
    def _repr_mimebundle_(self, **_):
        return {"text/plain": "V", "image/png": "iVBORw0KGgo="}
class S:
    def _repr_svg_(self): return "<svg/>"
    def __repr__(self): return "S"
display(V()); display(S())`})
	images, links := 0, 0
	for _, x := range r.Content {
		switch x := x.(type) {
		case *sdk.ImageContent:
			if images++; x.MIMEType != "image/png" || !bytes.HasPrefix(x.Data, []byte("\x89PNG")) {
				t.Errorf("%+v", x)
			}
		case *sdk.ResourceLink:
			links++
			got, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: x.URI})
			if err != nil || got.Contents[0].Text != "<svg/>" {
				t.Errorf("%+v, %v", got, err)
			}
		}
	}
	if images != 1 || links != 1 {
		t.Errorf("%d images, %d links: %s", images, links, textOf(r))
	}
	for _, tt := range []struct {
		arguments object
		code      string
	}{
		{object{"code": "1", "language": "cobol"}, "unsupported"},
		{object{"code": "1", "timeout": -1}, "invalid"},
		{object{"code": "1", "timeout": 1e300}, "invalid"},
		{object{"code": "1", "sandbox": "sb_x"}, "not_found"},
		{object{"code": "1", "context": strings.Repeat("x", 101)}, "too_large"},
		{object{"code": strings.Repeat("#", 2<<20)}, "too_large"},
		{object{"code": 1}, "invalid"},
		{object{"code": "1", "cdoe": "1"}, "invalid"},
		{object{}, "invalid"},
	} {
		if code, text := c.refused("run_code", tt.arguments); code != tt.code {
			t.Errorf("%.100v: %s, want %s", tt.arguments, text, tt.code)
		}
	}
}

func TestRunCommand(t *testing.T) {
	c := newRig(t, Options{}).connect()
	got, o := c.call("run_command", object{"command": "pwd; cat; echo $A >&2; exit 3", "stdin": "in\n", "env": object{"A": "b"}, "dir": "/tmp"})
	either := strings.Replace(got, "b\n", "", 1) // the order of two streams is not certain
	if either != "/tmp\nin\n[exit code 3]" || len(either) != len(got)-2 || o["exit_code"] != 3.0 || o["stdout"] != "/tmp\nin\n" || o["stderr"] != "b\n" {
		t.Errorf("%q %v", got, o)
	}
	if got, _ := c.call("run_command", object{"command": "true"}); got != "[exit code 0, no output]" {
		t.Errorf("%q", got)
	}
	if got, o := c.call("run_command", object{"command": "kill -9 $$"}); o["outcome"] != "signaled" || o["signal"] != 9.0 {
		t.Errorf("%q %v", got, o)
	}
	for _, tt := range []struct {
		arguments object
		code      string
	}{
		{object{"command": ""}, "invalid"},
		{object{"command": strings.Repeat(":", maxCommand+1)}, "too_large"},
		{object{"command": "true", "dir": "/nowhere"}, "not_found"},
		{object{"command": "true", "env": object{"a=b": ""}}, "invalid"},
		{object{"command": "true", "timeout": 1e6}, "invalid"},
	} {
		if code, text := c.refused("run_command", tt.arguments); code != tt.code {
			t.Errorf("%.100v: %s, want %s", tt.arguments, text, tt.code)
		}
	}
}

// Output that is too long for a result is in a file, complete.
func TestLongOutput(t *testing.T) {
	c := newRig(t, Options{}).connect()
	got, o := c.call("run_command", object{"command": "seq 1 20000"})
	file, _ := o["output_file"].(string)
	if len(got) > maxText+500 || o["cut"] != true || !strings.Contains(got, "read_file with path "+file+" and offset 16384") || !strings.HasSuffix(got, "19999\n20000\n") {
		t.Errorf("%d bytes, %v: %.200q", len(got), file, got)
	}
	_, o = c.call("read_file", object{"path": file, "offset": 100_000})
	if text, _ := o["text"].(string); !strings.HasSuffix(text, "20000\n") || o["size"] != 108894.0 {
		t.Errorf("%v", o)
	}
	// The end of the program by the limit is said, too.
	if got, o := c.call("run_command", object{"command": "yes"}); o["outcome"] != "output_limit" || !strings.Contains(got, "wrote more than") {
		t.Errorf("%.100q %v", got, o["outcome"])
	}
}

// Progress has all output while the program runs, for clients that ask for it.
func TestProgress(t *testing.T) {
	c := newRig(t, Options{}).connect()
	for tool, arguments := range map[string]object{
		"run_command": {"command": "echo first; until [ -e go ]; do sleep 0.01; done; printf '\\303'; sleep 0.01; printf '\\251\\n'"},
		"run_code":    {"code": "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('é')"},
	} {
		c.call("run_command", object{"command": "rm -f go"})
		p := &sdk.CallToolParams{Name: tool, Arguments: arguments}
		p.SetProgressToken(tool)
		done := make(chan error, 1)
		go func() {
			_, err := c.CallTool(t.Context(), p)
			done <- err
		}()
		all := ""
		for all != "first\n" {
			all += <-c.progress
		}
		c.call("write_file", object{"path": "go", "content": ""})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		for all != "first\né\n" {
			all += <-c.progress
		}
	}
}

// A cancelled call ends its program, and the session goes on.
func TestCancel(t *testing.T) {
	r := newRig(t, Options{})
	c := r.connect()
	for tool, arguments := range map[string]object{
		"run_command": {"command": "echo started; sleep 1000"},
		"run_code":    {"code": "print('started', flush=True)\nimport time; time.sleep(1000)"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		p := &sdk.CallToolParams{Name: tool, Arguments: arguments}
		p.SetProgressToken(tool)
		done := make(chan error, 1)
		go func() {
			_, err := c.CallTool(ctx, p)
			done <- err
		}()
		if got := <-c.progress; got != "started\n" {
			t.Fatalf("%q", got)
		}
		cancel()
		if err := <-done; err == nil {
			t.Error("no error")
		}
		if got, _ := c.call("run_command", object{"command": "until ! ps -eo args | grep -q '[s]leep 1000'; do sleep 0.01; done; echo none"}); got != "none\n" {
			t.Errorf("%q", got)
		}
	}
	if got, _ := c.call("run_code", object{"code": "1+1"}); got != "2\n" {
		t.Errorf("after an interrupted cell: %q", got)
	}
}

func TestFiles(t *testing.T) {
	c := newRig(t, Options{}).connect()
	c.call("write_file", object{"path": "src/a.py", "content": "one\ntwo\none\n", "mode": "755"})
	c.call("write_file", object{"path": "src/b.txt", "content": "ONE é\n"})
	c.call("write_file", object{"path": "src/b.txt", "content": "two\n", "append": true})
	if got, o := c.call("read_file", object{"path": "src/b.txt"}); got != "ONE é\ntwo\n" || o["text"] != got || o["bytes"] != 11.0 {
		t.Errorf("%q %v", got, o)
	}
	// A part ends at a character, and never nowhere.
	if _, o := c.call("read_file", object{"path": "src/b.txt", "limit": 5}); o["text"] != "ONE " || o["next_offset"] != 4.0 {
		t.Errorf("%v", o)
	}
	if _, o := c.call("read_file", object{"path": "src/b.txt", "offset": 4, "limit": 1}); !strings.HasPrefix(o["text"].(string), "é") {
		t.Errorf("%v", o)
	}
	if code, text := c.refused("edit_file", object{"path": "src/a.py", "old": "one", "new": "1"}); code != "invalid" || !strings.Contains(text, "2 times") {
		t.Errorf("%s", text)
	}
	if _, o := c.call("edit_file", object{"path": "src/a.py", "old": "one\ntwo", "new": "1\n2"}); o["replaced"] != 1.0 {
		t.Errorf("%v", o)
	}
	c.call("edit_file", object{"path": "src/a.py", "old": "n", "new": "N", "all": true})
	if got, _ := c.call("run_command", object{"command": "cat src/a.py; stat -c %a src/a.py"}); got != "1\n2\noNe\n755\n" {
		t.Errorf("%q", got)
	}
	if got, o := c.call("list_files", object{"path": "src"}); len(o["entries"].([]any)) != 2 || !strings.Contains(got, "a.py") {
		t.Errorf("%q %v", got, o)
	}
	if _, o := c.call("list_files", object{"path": "src", "limit": 1}); o["more"] != true {
		t.Errorf("%v", o)
	}
	if got, _ := c.call("list_files", object{"path": "src", "after": "a.py"}); strings.Contains(got, "a.py") || !strings.Contains(got, "b.txt") {
		t.Errorf("%q", got)
	}
	if got, _ := c.call("list_files", object{"recursive": true}); !strings.Contains(got, "src/b.txt") {
		t.Errorf("%q", got)
	}
	if got, o := c.call("search_files", object{"pattern": "^one", "ignore_case": true}); got != "src/a.py:3:oNe\nsrc/b.txt:1:ONE é\n" || o["more"] != false {
		t.Errorf("%q %v", got, o)
	}
	if got, _ := c.call("search_files", object{"pattern": "one", "ignore_case": true, "glob": "*.txt", "path": "src", "limit": 1}); got != "b.txt:1:ONE é\n" {
		t.Errorf("%q", got)
	}
	data := bytes.Repeat([]byte{0, 1, 0xff}, 1<<20)
	c.call("upload", object{"path": "d/x.bin", "data": base64.StdEncoding.EncodeToString(data)})
	c.call("upload", object{"path": "d/x.bin", "data": base64.StdEncoding.EncodeToString(data), "append": true})
	var got []byte
	for offset := 0.0; ; {
		r := c.try("download", object{"path": "d/x.bin", "offset": offset, "limit": maxDownload})
		got = append(got, r.Content[0].(*sdk.EmbeddedResource).Resource.Blob...)
		next, more := structureOf(t, r)["next_offset"].(float64)
		if !more {
			break
		}
		offset = next
	}
	if !bytes.Equal(got, append(data, data...)) {
		t.Errorf("%d bytes came back", len(got))
	}
	c.call("upload", object{"path": "i.png", "data": base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n\x00"))})
	if r := c.try("read_file", object{"path": "i.png"}); r.Content[0].(*sdk.ImageContent).MIMEType != "image/png" {
		t.Errorf("%+v", r)
	}
	for _, tt := range []struct {
		tool      string
		arguments object
		code      string
	}{
		{"read_file", object{"path": "none"}, "not_found"},
		{"read_file", object{"path": "src"}, "conflict"},
		{"read_file", object{"path": "d/x.bin"}, "conflict"},
		{"read_file", object{"path": "src/b.txt", "offset": 100}, "invalid"},
		{"read_file", object{"path": "src/b.txt", "limit": maxRead + 1}, "invalid"},
		{"read_file", object{"path": strings.Repeat("x", maxPath+1)}, "too_large"},
		{"write_file", object{"path": "x", "content": strings.Repeat("x", maxContent+1)}, "too_large"},
		{"write_file", object{"path": "x", "content": "", "mode": "9"}, "invalid"},
		{"write_file", object{"path": "src", "content": ""}, "conflict"},
		{"edit_file", object{"path": "src/a.py", "old": "", "new": "x"}, "invalid"},
		{"edit_file", object{"path": "src/a.py", "old": "none", "new": "x"}, "invalid"},
		{"edit_file", object{"path": "d/x.bin", "old": "a", "new": "x"}, "too_large"},
		{"list_files", object{"path": "none"}, "not_found"},
		{"list_files", object{"recursive": true, "after": "a"}, "invalid"},
		{"search_files", object{"pattern": "("}, "invalid"},
		{"search_files", object{"pattern": "a", "glob": "["}, "invalid"},
		{"search_files", object{"pattern": "a", "path": "none"}, "not_found"},
		{"upload", object{"path": "x", "data": "?"}, "invalid"},
		{"upload", object{"path": "x", "data": base64.StdEncoding.EncodeToString(make([]byte, maxUpload+1))}, "too_large"},
		{"download", object{"path": "src"}, "conflict"},
	} {
		if code, text := c.refused(tt.tool, tt.arguments); code != tt.code {
			t.Errorf("%s %.100v: %s, want %s", tt.tool, tt.arguments, text, tt.code)
		}
	}
}

// The files of a session's sandboxes are resources; others do not exist.
func TestResources(t *testing.T) {
	r := newRig(t, Options{})
	c, other := r.connect(), r.connect()
	_, o := c.call("write_file", object{"path": "a b.txt", "content": "text"})
	id := o["sandbox"].(string)
	uri := uriOf(sandbar.ID(id), sandbar.DefaultDir+"/a b.txt")
	got, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
	if err != nil || got.Contents[0].Text != "text" {
		t.Errorf("%+v, %v", got, err)
	}
	l, err := c.ListResourceTemplates(t.Context(), nil)
	if err != nil || len(l.ResourceTemplates) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
	for _, tt := range []struct {
		c    *client
		uri  string
		code string
	}{
		{other, uri, "not_found"},
		{c, uri + "x", "not_found"},
		{c, "sandbar://" + id + "/tmp", "conflict"},
		{c, uri + "?a=b", "invalid"},
		{c, "sandbar://" + id + "/dev/zero", "conflict"},
	} {
		if _, err := tt.c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: tt.uri}); err == nil || !strings.Contains(err.Error(), tt.code) {
			t.Errorf("%s: %v, want %s", tt.uri, err, tt.code)
		}
	}
}

// A session has its own sandboxes, bounded in number, and all of them end with it.
func TestSandboxes(t *testing.T) {
	r := newRig(t, Options{MaxSandboxes: 3})
	c, other := r.connect(), r.connect()
	if _, o := c.call("list_sandboxes", object{}); len(o["sandboxes"].([]any)) != 0 {
		t.Errorf("%v", o)
	}
	_, o := c.call("run_command", object{"command": "echo main > f"})
	main := o["sandbox"].(string)
	_, o = c.call("create_sandbox", object{"name": "second", "env": object{"A": "b"}, "memory_mib": 128, "network": "none"})
	second := o["sandbox"].(string)
	if o["memory_mib"] != 128.0 || o["name"] != "second" || o["default"] != false {
		t.Errorf("%v", o)
	}
	if got, _ := c.call("run_command", object{"command": "echo $A; ls", "sandbox": second}); got != "b\n" {
		t.Errorf("%q", got)
	}
	_, o = c.call("create_sandbox", object{"default": true})
	if got, x := c.call("run_command", object{"command": "ls"}); x["sandbox"] != o["sandbox"] {
		t.Errorf("%q %v", got, x)
	}
	if code, text := c.refused("create_sandbox", object{}); code != "exhausted" {
		t.Error(text)
	}
	if code, text := other.refused("run_command", object{"command": "ls", "sandbox": main}); code != "not_found" {
		t.Error(text)
	}
	if code, text := other.refused("stop_sandbox", object{"sandbox": main}); code != "not_found" {
		t.Error(text)
	}
	c.call("stop_sandbox", object{"sandbox": second})
	if code, text := c.refused("stop_sandbox", object{"sandbox": second}); code != "not_found" {
		t.Error(text)
	}
	if got, o := c.call("list_sandboxes", object{}); len(o["sandboxes"].([]any)) != 2 || !strings.Contains(got, main) {
		t.Errorf("%q", got)
	}
	if _, o := c.call("expose_port", object{"port": 8000, "sandbox": main}); o["url"] != "http://"+main+".example/" {
		t.Errorf("%v", o)
	}
	// A sandbox that ended by itself: the error says so once, and the next call makes another.
	_, o = c.call("run_command", object{"command": "true"})
	if err := r.engine.Stop(t.Context(), sandbar.ID(o["sandbox"].(string))); err != nil {
		t.Fatal(err)
	}
	if code, text := c.refused("run_command", object{"command": "true"}); code != "gone" {
		t.Error(text)
	}
	c.call("run_command", object{"command": "true"})
	for _, arguments := range []object{{"network": "all"}, {"memory_mib": -1}, {"memory_mib": 1 << 50}, {"disk_mib": -1}, {"cpus": -1}, {"memory_mib": 1}} {
		c.call("stop_sandbox", object{"sandbox": r.any(c)})
		if code, text := c.refused("create_sandbox", arguments); code != "invalid" {
			t.Errorf("%v: %s", arguments, text)
		}
		c.call("run_command", object{"command": "true"})
	}
	if code, _ := c.refused("create_sandbox", object{"driver": "other"}); code != "unsupported" {
		t.Error(code)
	}
	for _, port := range []int{0, -1, 65536} {
		if code, text := c.refused("expose_port", object{"port": port}); code != "invalid" {
			t.Error(text)
		}
	}
}

// any returns the id of a sandbox of a session.
func (r *rig) any(c *client) string {
	r.t.Helper()
	_, o := c.call("list_sandboxes", object{})
	return o["sandboxes"].([]any)[0].(object)["sandbox"].(string)
}

// The number of sessions is bounded.
func TestSessions(t *testing.T) {
	r := newRig(t, Options{MaxSessions: 1})
	first := r.connect()
	first.call("run_command", object{"command": "true"})
	here, there := sdk.NewInMemoryTransports()
	if _, err := r.server.sdk.Connect(t.Context(), there, nil); err != nil {
		t.Fatal(err)
	}
	second := newClient(t, here)
	if code, text := second.refused("run_command", object{"command": "true"}); code != "exhausted" {
		t.Error(text)
	}
	second.Close()
	first.Close()
	for len(r.engine.List(context.Background())) > 0 { // the first session's sandbox is removed
		select {
		case <-t.Context().Done():
			t.Fatal("a sandbox is left")
		default:
		}
	}
}
