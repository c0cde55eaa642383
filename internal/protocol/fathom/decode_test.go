package fathom

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/fathom/wire"
	"github.com/sandbar-dev/sandbar/engine/lang"
)

// testRanges are the limits of the protocol's known client, with small sizes.
func testRanges(t testing.TB) *ranges {
	t.Helper()
	languages, err := lang.New(lang.Default()...)
	if err != nil {
		t.Fatal(err)
	}
	return newRanges(
		sandbar.Limits{CPUShares: 512},
		sandbar.Limits{Timeout: 1500 * time.Microsecond, Memory: 16<<20 - 1, CPUShares: 2},
		sandbar.Limits{Timeout: 300 * time.Second, Memory: 1<<30 + 1, CPUShares: 262144, Output: 64 << 20},
		languages, Options{MaxCode: 100, MaxEnv: 50, MaxStdin: 20})
}

// valid returns the fields of a valid message, for tests to vary.
func valid() map[string]any {
	return map[string]any{
		"v": 1, "type": "execute", "id": "exec_1", "ts": "2025-12-27T11:30:00.000Z",
		"language": "python", "code": "print(1)",
		"limits": map[string]any{"timeout_ms": 30000, "memory_mb": 256},
	}
}

// vary returns the valid message with a field replaced by raw JSON, or left out if raw is empty. A
// dot in field selects a field of limits.
func vary(t testing.TB, field, raw string) []byte {
	t.Helper()
	m := valid()
	into := m
	if inner, ok := strings.CutPrefix(field, "limits."); ok {
		into, field = m["limits"].(map[string]any), inner
	}
	delete(into, field)
	if raw != "" {
		into[field] = json.RawMessage(raw)
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatalf("%s = %s: %v", field, raw, err)
	}
	return b
}

// TestDecodeFields tests valid, missing, mistyped and out-of-range values of every field. By
// default a refusal is INVALID_REQUEST; it names the field and the allowed values.
func TestDecodeFields(t *testing.T) {
	r := testRanges(t)
	text := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	for _, tt := range []struct {
		field, raw string
		wrong      string // parts of the message, separated by |; "" if accepted
	}{
		{"v", `1`, ""}, {"v", `1.0`, ""}, {"v", `1e0`, ""},
		{"v", ``, "v is missing|version 1"},
		{"v", `null`, "v is missing|version 1"},
		{"v", `"1"`, "v must be an integer|version 1"},
		{"v", `true`, "v must be an integer|version 1"},
		{"v", `[1]`, "v must be an integer|version 1"},
		{"v", `1.5`, "v must be an integer|version 1"},
		{"v", `2`, "v is 2|version 1"},
		{"v", `0`, "v is 0|version 1"},
		{"v", `-1`, "v is -1|version 1"},
		{"v", `1e400`, "v is 1e400|version 1"},
		{"v", `18446744073709551617`, "v is 18446744073709551617|version 1"}, // 2^64 + 1

		{"type", `"execute"`, ""}, {"type", `"ping"`, ""}, {"type", `"cancel"`, ""},
		{"type", ``, "type is missing|execute, cancel, ping"},
		{"type", `null`, "type is missing"},
		{"type", `1`, "type must be a string|not a number"},
		{"type", `"Execute"`, `type "Execute" is unknown|execute, cancel, ping`},
		{"type", `"ack"`, `type "ack" is unknown`},
		{"type", `""`, `type "" is unknown`},

		{"id", `"x"`, ""}, {"id", `"🦀 ../ \u0000 \u2028"`, ""},
		{"id", `"` + strings.Repeat("i", 256) + `"`, ""},
		{"id", ``, "id is missing|1 to 256"},
		{"id", `null`, "id is missing"},
		{"id", `7`, "id must be a string|not a number"},
		{"id", `{}`, "id must be a string|not an object"},
		{"id", `""`, "id is empty|1 to 256"},
		{"id", `"` + strings.Repeat("i", 257) + `"`, "id has 257 bytes|1 to 256"},

		{"ts", ``, ""}, {"ts", `null`, ""}, {"ts", `"yesterday"`, ""}, {"ts", `""`, ""},
		{"ts", `1735299000`, "ts must be a string|not a number"},

		{"language", `"python"`, ""}, {"language", `"javascript"`, ""}, {"language", `"shell"`, ""}, {"language", `"elixir"`, ""},
		{"language", ``, "language is missing"},
		{"language", `null`, "language is missing"},
		{"language", `false`, "language must be a string|not a boolean"},

		{"code", `""`, ""}, {"code", `"\u0000"`, ""}, {"code", text(100), ""},
		{"code", ``, "code is missing"},
		{"code", `null`, "code is missing"},
		{"code", `["print(1)"]`, "code must be a string|not an array"},
		{"code", text(101), "code has 101 bytes|limit is 100"},
		{"code", `"` + strings.Repeat("é", 51) + `"`, "code has 102 bytes|limit is 100"},

		{"stdin", ``, ""}, {"stdin", `null`, ""}, {"stdin", `""`, ""}, {"stdin", `"\u0000\n"`, ""},
		{"stdin", `1`, "stdin must be a string|not a number"},
		{"stdin", `"123456789012345678901"`, "stdin has 21 bytes|limit is 20"},

		{"env", ``, ""}, {"env", `null`, ""}, {"env", `{}`, ""}, {"env", `{"A":"","B":"x=y\n"}`, ""},
		{"env", `[]`, "env must be an object of strings|not an array"},
		{"env", `"A=1"`, "env must be an object of strings|not a string"},
		{"env", `{"A":"x","KEY":1}`, `env."KEY" must be a string|not a number`},
		{"env", `{"KEY":null}`, `env."KEY" must be a string|not null`},
		{"env", `{"KEY":{"a":"b"}}`, `env."KEY" must be a string|not an object`},
		{"env", `{"":"x"}`, `the name ""`},
		{"env", `{"A=B":"x"}`, `the name "A=B"`},
		{"env", `{"A\u0000":"x"}`, `the name "A\x00"`},
		{"env", `{"A":"x\u0000"}`, `env."A" holds a NUL`},
		{"env", `{"` + strings.Repeat("N", 20) + `":"` + strings.Repeat("v", 30) + `"}`, ""},
		{"env", `{"` + strings.Repeat("N", 20) + `":"` + strings.Repeat("v", 31) + `"}`, "env|has 51 bytes|limit is 50"},

		{"limits", ``, "limits is missing|timeout_ms (2 to 300000)|memory_mb (16 to 1024)"},
		{"limits", `null`, "limits is missing"},
		{"limits", `30000`, "limits must be an object|not a number"},
		{"limits", `{}`, "limits.timeout_ms is missing|2 to 300000"},
		{"limits", `{"timeout_ms":1000}`, "limits.memory_mb is missing|16 to 1024"},
		{"limits", `{"timeout_ms":1000,"memory_mb":16,"gpu":"yes"}`, ""},

		{"limits.timeout_ms", `2`, ""}, {"limits.timeout_ms", `300000`, ""},
		{"limits.timeout_ms", `30000.0`, ""}, {"limits.timeout_ms", `3e4`, ""},
		{"limits.timeout_ms", `null`, "limits.timeout_ms is missing"},
		{"limits.timeout_ms", `"30000"`, "limits.timeout_ms must be an integer|2 to 300000|not a string"},
		{"limits.timeout_ms", `30000.5`, "limits.timeout_ms is 30000.5|must be an integer|2 to 300000"},
		{"limits.timeout_ms", `0`, "limits.timeout_ms is 0|2 to 300000"},
		{"limits.timeout_ms", `-0`, "limits.timeout_ms is -0|2 to 300000"},
		{"limits.timeout_ms", `-1`, "limits.timeout_ms is -1|2 to 300000"},
		{"limits.timeout_ms", `1`, "limits.timeout_ms is 1;|2 to 300000"},
		{"limits.timeout_ms", `300001`, "limits.timeout_ms is 300001|2 to 300000"},
		{"limits.timeout_ms", `1e308`, "limits.timeout_ms is 1e308|2 to 300000"},
		{"limits.timeout_ms", `1e400`, "limits.timeout_ms is 1e400|2 to 300000"},
		{"limits.timeout_ms", `-1e400`, "limits.timeout_ms is -1e400|2 to 300000"},
		{"limits.timeout_ms", `1e-400`, "limits.timeout_ms is 1e-400|2 to 300000"},
		{"limits.timeout_ms", `9223372036854775807`, "2 to 300000"},
		{"limits.timeout_ms", `9223372036854775808`, "2 to 300000"},
		{"limits.timeout_ms", `9223372036855`, "2 to 300000"},  // × 10^6 overflows an int64
		{"limits.timeout_ms", `18446744073709`, "2 to 300000"}, // × 10^6 wraps around to a small number
		{"limits.timeout_ms", strings.Repeat("9", 500), "99999…|2 to 300000"},

		{"limits.memory_mb", `16`, ""}, {"limits.memory_mb", `1024`, ""},
		{"limits.memory_mb", `15`, "limits.memory_mb is 15|16 to 1024"},
		{"limits.memory_mb", `1025`, "limits.memory_mb is 1025|16 to 1024"},
		{"limits.memory_mb", `-256`, "16 to 1024"},
		{"limits.memory_mb", `8796093022208`, "16 to 1024"}, // × 2^20 wraps around to 0
		{"limits.memory_mb", `true`, "limits.memory_mb must be an integer|not a boolean"},

		{"limits.cpu_shares", ``, ""}, {"limits.cpu_shares", `null`, ""}, {"limits.cpu_shares", `2`, ""}, {"limits.cpu_shares", `262144`, ""},
		{"limits.cpu_shares", `1`, "limits.cpu_shares is 1|2 to 262144"},
		{"limits.cpu_shares", `0`, "limits.cpu_shares is 0|2 to 262144"},
		{"limits.cpu_shares", `[]`, "limits.cpu_shares must be an integer|not an array"},

		{"limits.max_output_bytes", ``, ""}, {"limits.max_output_bytes", `null`, ""}, {"limits.max_output_bytes", `1`, ""},
		{"limits.max_output_bytes", `0`, "limits.max_output_bytes is 0|1 to 67108864"},
		{"limits.max_output_bytes", `-1`, "limits.max_output_bytes is -1|1 to 67108864"},
		{"limits.max_output_bytes", `67108865`, "1 to 67108864"},

		{"unknown", `{"deep":[1,2,{"a":null}]}`, ""},
		{"Code", `7`, ""}, // not the field code: names are compared exactly
		{"ID", `7`, ""},
	} {
		_, bad := decode(vary(t, tt.field, tt.raw), r)
		checkRefusal(t, tt.field+" = "+tt.raw, bad, wire.CodeInvalidRequest, tt.wrong)
	}
}

func checkRefusal(t *testing.T, what string, bad *refusal, code Code, wrong string) {
	t.Helper()
	switch {
	case wrong == "" && bad != nil:
		t.Errorf("%s: refused: %+v", what, *bad)
	case wrong != "" && bad == nil:
		t.Errorf("%s: accepted, want a refusal with %q", what, wrong)
	case wrong != "":
		for part := range strings.SplitSeq(wrong, "|") {
			if !strings.Contains(bad.message, part) {
				t.Errorf("%s: the message is %q, want one with %q", what, bad.message, part)
			}
		}
		if bad.code != code {
			t.Errorf("%s: code %s, want %s", what, bad.code, code)
		}
	}
}

func TestDecodeLanguage(t *testing.T) {
	for _, raw := range []string{`"rust"`, `"Python"`, `""`, `"python\n"`} {
		_, bad := decode(vary(t, "language", raw), testRanges(t))
		checkRefusal(t, raw, bad, wire.CodeLanguageNotSupported, "is not available|available are elixir, javascript, python, shell")
	}
}

// TestDecodeSyntax tests messages that are not JSON, or not the JSON that this protocol allows.
func TestDecodeSyntax(t *testing.T) {
	r := testRanges(t)
	ping := `{"v":1,"type":"ping","x":`
	for _, tt := range []struct{ name, msg, wrong string }{
		{"object", ping + `0}`, ""},
		{"white space", " \t\r\n" + ping + "0} \n", ""},
		{"depth allowed", ping + strings.Repeat("[", 31) + strings.Repeat("]", 31) + "}", ""},
		{"pair of surrogates", ping + `"\ud83d\ude00"}`, ""},
		{"escaped backslash", ping + `"\\ud800"}`, ""},
		{"huge number in an ignored field", ping + `1e400}`, ""},
		{"duplicate, last wins", `{"v":2,"type":"x","v":1,"type":"ping"}`, ""},
		{"brackets in strings", ping + `"` + strings.Repeat("[{", 100) + `"}`, ""},
		{"quote in a string", ping + `"\"[\\"}`, ""},

		{"empty", ``, "not valid JSON"},
		{"white space only", "  \n", "not valid JSON"},
		{"not JSON", `hello`, "not valid JSON at byte 1"},
		{"cut off", ping + `"`, "not valid JSON"},
		{"trailing garbage", ping + `0} x`, "not valid JSON"},
		{"two objects", ping + `0}` + ping + `0}`, "not valid JSON"},
		{"trailing comma", ping + `0,}`, "not valid JSON"},
		{"comment", ping + `0 /* no */}`, "not valid JSON"},
		{"single quotes", `{'v':1}`, "not valid JSON"},
		{"NaN", ping + `NaN}`, "not valid JSON"},
		{"Infinity", ping + `-Infinity}`, "not valid JSON"},
		{"leading zero", ping + `01}`, "not valid JSON"},
		{"control character in a string", ping + "\"\n\"}", "not valid JSON"},
		{"bad escape", ping + `"\x41"}`, "not valid JSON"},
		{"cut escape", ping + `"\u12"}`, "not valid JSON"},
		{"NUL after the end", ping + "0}\x00", "not valid JSON"},
		{"array", `[` + ping + `0}]`, "not a JSON object"},
		{"null", `null`, "not a JSON object"},
		{"string", `"ping"`, "not a JSON object"},
		{"number", `1`, "not a JSON object"},
		{"byte order mark", "\xef\xbb\xbf" + ping + `0}`, "byte order mark"},
		{"UTF-16", "\xff\xfe{\x00}\x00", "not valid UTF-8"},
		{"invalid UTF-8", ping + "\"\xff\"}", "not valid UTF-8"},
		{"half a character", ping + "\"\xe2\x82\"}", "not valid UTF-8"},
		{"encoded surrogate", ping + "\"\xed\xa0\x80\"}", "not valid UTF-8"},
		{"lone high surrogate", ping + `"\ud83d"}`, "unpaired surrogate"},
		{"high surrogate and text", ping + `"\ud83dx"}`, "unpaired surrogate"},
		{"two high surrogates", ping + `"\ud83d\ud83d"}`, "unpaired surrogate"},
		{"lone low surrogate", ping + `"\ude00"}`, "unpaired surrogate"},
		{"surrogate in a name", `{"\ud800":1}`, "unpaired surrogate"},
		{"too deep", ping + strings.Repeat("[", 32) + strings.Repeat("]", 32) + "}", "deeper than 32"},
		{"far too deep", strings.Repeat(`{"a":`, 100_000), "deeper than 32"},
		{"too many members", ping + `[0` + strings.Repeat(",0", 1<<16) + "]}", "more than 65536 members"},
	} {
		_, bad := decode([]byte(tt.msg), r)
		checkRefusal(t, tt.name, bad, wire.CodeInvalidRequest, tt.wrong)
		if bad != nil && bad.id != "" {
			t.Errorf("%s: the refusal has the id %q", tt.name, bad.id)
		}
	}
}

// TestDecodeID tests that a refusal has the message's id if that is usable, so that the client can
// assign the refusal.
func TestDecodeID(t *testing.T) {
	r := testRanges(t)
	for _, tt := range []struct{ name, msg, id string }{
		{"wrong version", `{"v":2,"type":"execute","id":"a"}`, "a"},
		{"no version", `{"type":"execute","id":"a"}`, "a"},
		{"no type", `{"v":1,"id":"a"}`, "a"},
		{"unknown type", `{"v":1,"type":"x","id":"a"}`, "a"},
		{"no language", `{"v":1,"type":"execute","id":"a"}`, "a"},
		{"last of two", `{"v":1,"type":"execute","id":"a","id":"b"}`, "b"},
		{"last of two is bad", `{"v":1,"type":"execute","id":"a","id":5}`, ""},
		{"escaped", `{"v":1,"type":"x","id":"\u0061\ud83d\ude00"}`, "a😀"},
		{"too long", `{"v":1,"type":"cancel","id":"` + strings.Repeat("x", 257) + `"}`, ""},
		{"number", `{"v":1,"type":"cancel","id":7}`, ""},
		{"other case", `{"v":1,"type":"cancel","Id":"a"}`, ""},
	} {
		_, bad := decode([]byte(tt.msg), r)
		if bad == nil || bad.id != tt.id || bad.code != wire.CodeInvalidRequest {
			t.Errorf("%s: %+v, want INVALID_REQUEST with the id %q", tt.name, bad, tt.id)
		}
	}
}

// TestDecodeAll decodes the specification's example, and messages with all fields.
func TestDecodeAll(t *testing.T) {
	for _, tt := range []struct {
		msg  string
		want request
	}{
		{`{"v":1,"type":"execute","id":"exec_a1b2c3d4","ts":"2025-12-27T11:30:00.000Z","language":"python","code":"print('hello world')",
		   "stdin":null,"env":{"API_KEY":"..."},"limits":{"timeout_ms":30000,"memory_mb":256,"cpu_shares":512,"max_output_bytes":1048576}}`,
			request{kind: "execute", id: "exec_a1b2c3d4", run: execute{language: "python", code: "print('hello world')",
				env: map[string]string{"API_KEY": "..."}, limits: limits{timeoutMS: 30000, memoryMB: 256, outputBytes: 1 << 20}}}},
		{`{"v":1,"type":"execute","id":"\u00e9","language":"shell","code":"cat","stdin":"a\u0000b","env":{"A":"1","A":"2"},"limits":
		   {"memory_mb":16,"timeout_ms":7,"cpu_shares":513}}`,
			request{kind: "execute", id: "é", run: execute{language: "shell", code: "cat", stdin: "a\x00b",
				env: map[string]string{"A": "2"}, limits: limits{timeoutMS: 7, memoryMB: 16, cpuShares: 513}}}},
		{`{"v":1,"type":"cancel","id":"x","ts":"2025-12-27T11:30:05.000Z"}`, request{kind: "cancel", id: "x"}},
		{`{"v":1,"type":"ping","ts":"2025-12-27T11:30:00.000Z"}`, request{kind: "ping"}},
		{`{"v":1,"type":"ping","id":7}`, request{kind: "ping"}}, // a ping has no id, so this is an unknown field
	} {
		got, bad := decode([]byte(tt.msg), testRanges(t))
		if bad != nil {
			t.Errorf("%s: refused: %+v", tt.msg, *bad)
			continue
		}
		if d := cmp.Diff(tt.want, got, cmp.AllowUnexported(request{}, execute{}, limits{})); d != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.msg, d)
		}
	}
}

// TestDecodeTellsNoSecrets tests that refusals contain no values that may be secret.
func TestDecodeTellsNoSecrets(t *testing.T) {
	const secret = "hunter2"
	for field, raw := range map[string]string{
		"code":  `["` + secret + `"]`,
		"stdin": `["` + secret + `"]`,
		"env":   `{"PASSWORD":"` + secret + `","x=":"` + secret + `"}`,
	} {
		if _, bad := decode(vary(t, field, raw), testRanges(t)); bad == nil || strings.Contains(bad.message, secret) {
			t.Errorf("%s: %+v", field, bad)
		}
	}
	if _, bad := decode([]byte(`{"code":"`+secret+`" "`), testRanges(t)); bad == nil || strings.Contains(bad.message, secret) {
		t.Errorf("malformed: %+v", bad)
	}
}

// TestDecodeKeepsNothing tests that a request does not reference the read buffer, which is reused.
func TestDecodeKeepsNothing(t *testing.T) {
	m := valid()
	maps.Copy(m, map[string]any{"stdin": "input", "env": map[string]string{"A": "value"}})
	msg, _ := json.Marshal(m)
	got, bad := decode(msg, testRanges(t))
	if bad != nil {
		t.Fatal(bad.message)
	}
	again, _ := decode(bytes.Clone(msg), testRanges(t))
	for i := range msg {
		msg[i] = '#'
	}
	if d := cmp.Diff(again, got, cmp.AllowUnexported(request{}, execute{}, limits{})); d != "" {
		t.Errorf("changed with the buffer: %s", d)
	}
}

func TestRanges(t *testing.T) {
	unlimited := newRanges(sandbar.Limits{}, sandbar.Limits{Timeout: time.Nanosecond},
		sandbar.Limits{Timeout: sandbar.Unlimited, Memory: sandbar.Unlimited, CPUShares: sandbar.Unlimited, Output: sandbar.Unlimited}, nil, Options{})
	for name, s := range map[string]intRange{"timeout": unlimited.timeoutMS, "memory": unlimited.memoryMB,
		"shares": unlimited.cpuShares, "output": unlimited.outputBytes} {
		if s.min != 1 || s.max < 1<<40 {
			t.Errorf("%s without a limit is %v", name, s)
		}
	}
	// Values within a span do not overflow in the engine's units.
	if d := time.Duration(unlimited.timeoutMS.max) * time.Millisecond; d <= 0 {
		t.Errorf("the longest timeout is %v", d)
	}
	if m := unlimited.memoryMB.max * mebibyte; m <= 0 {
		t.Errorf("the most memory is %d", m)
	}
	r := testRanges(t)
	if worst := int64(len(vary(t, "code", `"`+strings.Repeat(`\u0061`, int(r.maxCode))+`"`))); worst > r.maxFrame() {
		t.Errorf("a message of %d bytes is valid, and at most %d are read", worst, r.maxFrame())
	}
}

// FuzzDecode tests that the decoder does not panic, returns either a request or a refusal, and that
// the refusal can be encoded.
func FuzzDecode(f *testing.F) {
	seeds, err := filepath.Glob("testdata/decode/*.json")
	if err != nil || len(seeds) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, name := range seeds {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.TrimSuffix(b, []byte("\n")))
	}
	r := testRanges(f)
	f.Fuzz(func(t *testing.T, msg []byte) {
		req, bad := decode(msg, r)
		if bad != nil {
			checkErrorMessage(t, appendError(nil, newExecID(bad.id), time.Now(), bad.code, bad.message), bad)
			return
		}
		if !json.Valid(msg) || !utf8.Valid(msg) {
			t.Fatalf("accepted %q", msg)
		}
		again, bad := decode(encodeRequest(t, req), r)
		if bad != nil {
			t.Fatalf("%q was accepted, the same encoded anew refused: %s", msg, bad.message)
		}
		if d := cmp.Diff(req, again, cmp.AllowUnexported(request{}, execute{}, limits{})); d != "" {
			t.Fatalf("%q: encoded anew it is something else: %s", msg, d)
		}
	})
}

func checkErrorMessage(t *testing.T, b []byte, bad *refusal) {
	t.Helper()
	var m struct {
		ID, Code, Message string
		Retryable         *bool
	}
	if !utf8.Valid(b) || json.Unmarshal(b, &m) != nil {
		t.Fatalf("the error is malformed: %q", b)
	}
	if m.ID != bad.id || m.Code != string(bad.code) || m.Message == "" || m.Retryable == nil || len(bad.id) > maxID || len(m.Message) > 1000 {
		t.Fatalf("the error is %s, for %+v", b, bad)
	}
}

// encodeRequest encodes a request as a client would.
func encodeRequest(t *testing.T, r request) []byte {
	t.Helper()
	m := map[string]any{"v": Version, "type": r.kind}
	if r.kind != wire.Ping {
		m["id"] = r.id
	}
	if r.kind == wire.Execute {
		lim := map[string]int64{"timeout_ms": r.run.limits.timeoutMS, "memory_mb": r.run.limits.memoryMB}
		if r.run.limits.cpuShares != 0 {
			lim["cpu_shares"] = r.run.limits.cpuShares
		}
		if r.run.limits.outputBytes != 0 {
			lim["max_output_bytes"] = r.run.limits.outputBytes
		}
		m["language"], m["code"], m["stdin"], m["env"], m["limits"] = r.run.language, r.run.code, r.run.stdin, r.run.env, lim
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
