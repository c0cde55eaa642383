package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/server/config"
)

// The schema is a valid JSON schema and accepts the same requests as the tool.
func TestToolSchema(t *testing.T) {
	code, stdout, stderr := invocation{args: []string{"tool", "--schema"}, environ: []string{"SANDBAR_ALLOWED_DRIVERS=local"}}.run(t)
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(stdout))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("tool.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("tool.json")
	if err != nil {
		t.Fatal(err)
	}
	for request, fine := range map[string]bool{
		`{"code": "print(1)"}`: true,
		`{"code": "x", "language": "shell", "timeout": 1.5, "args": ["a"], "env": {"A": "b"}, "stdin": "in", "driver": "local"}`: true,
		`{}`:                             false,
		`{"code": 1}`:                    false,
		`{"code": "x", "timeout": 0}`:    false,
		`{"code": "x", "timeout": "5"}`:  false,
		`{"code": "x", "args": "a"}`:     false,
		`{"code": "x", "env": {"A": 1}}`: false,
		`{"code": "x", "colour": "red"}`: false,
	} {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(request))
		if err != nil {
			t.Fatal(err)
		}
		bySchema, byTool := schema.Validate(value) == nil, true
		if _, err := decodeTool([]byte(request)); err != nil {
			byTool = false
		}
		if bySchema != fine || byTool != fine {
			t.Errorf("%s: the schema says %v, the tool %v, want %v", request, bySchema, byTool, fine)
		}
	}
}

// A request that is too large is refused, and reading stops at the maximum.
func TestToolRequestTooLarge(t *testing.T) {
	cfg := &config.Config{MaxCode: 10, MaxEnv: 10}
	r := &endlessInput{}
	_, err := readToolRequest(r, cfg)
	if sandbar.CodeOf(err) != sandbar.TooLarge || r.read > 16<<20 {
		t.Errorf("%v after %d bytes", err, r.read)
	}
	long := `{"code": "", "stdin": "` + strings.Repeat("x", maxToolStdin+1) + `"}`
	if _, err := decodeTool([]byte(long)); sandbar.CodeOf(err) != sandbar.TooLarge {
		t.Error(err)
	}
}

type endlessInput struct{ read int }

func (e *endlessInput) Read(p []byte) (int, error) {
	e.read += len(p)
	return len(p), nil
}

// The answer to every request is one line of JSON.
func FuzzTool(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"code": "x"}`, `{"code": "x", "timeout": 1e300}`, `{"code": null}`, "\xff", `{"code": "x"} x`, `{"env": {"": ""}}`, `{"timeout": -0.0}`, "[[[[", `{"code":"\ud800"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, request []byte) {
		_, err := decodeTool(request)
		if err == nil {
			return
		}
		var out bytes.Buffer
		a := &app{stdout: &out}
		if code := cli.ExitCode(a.answer(toolAnswer{}, err, true)); code != cli.ExitUsage {
			t.Errorf("exit code %d", code)
		}
		var answer toolAnswer
		if err := json.Unmarshal(out.Bytes(), &answer); err != nil || answer.Error == nil || !strings.HasPrefix(answer.Answer, "Error: ") || bytes.Count(out.Bytes(), []byte("\n")) != 1 {
			t.Errorf("%s: %v", out.String(), err)
		}
	})
}
