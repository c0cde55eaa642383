package function

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/protocol/iii/bus"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/channel"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/settings"
)

// idle returns the functions without an engine, which no request of these tests reaches.
func idle(t testing.TB) map[string]bus.Function {
	t.Helper()
	c := settings.Default()
	c.MaxConcurrentSandboxes = 0 // every create fails at this check
	f, err := New(Options{Engine: testEngine(t), Config: c, Images: store{}})
	if err != nil {
		t.Fatal(err)
	}
	hub := channel.NewHub(channel.Options{})
	t.Cleanup(hub.Close)
	all := map[string]bus.Function{}
	for _, h := range f.Handlers(hub) {
		all[h.ID] = h
	}
	return all
}

const someID = `"sandbox_id":"11111111-2222-4333-8444-555555555555"`

// TestDecode tests the words of the original's decoder. A valid request reaches the first check
// after decoding.
func TestDecode(t *testing.T) {
	functions := idle(t)
	for _, c := range []struct{ function, data, want string }{
		{"create", `{}`, "missing field `image`"},
		{"create", `null`, "invalid type: null, expected struct CreateRequest"},
		{"create", `[]`, "invalid type: sequence, expected struct CreateRequest"},
		{"create", `"x"`, `invalid type: string "x", expected struct CreateRequest`},
		{"create", `{"image":42}`, "invalid type: integer `42`, expected a string"},
		{"create", `{"image":null}`, "invalid type: null, expected a string"},
		{"create", `{"image":true}`, "invalid type: boolean `true`, expected a string"},
		{"create", `{"image":1.5}`, "invalid type: floating point `1.5`, expected a string"},
		{"create", `{"image":["x"]}`, "invalid type: sequence, expected a string"},
		{"create", `{"image":{}}`, "invalid type: map, expected a string"},
		{"create", `{"image":"x","cpus":"2"}`, `invalid type: string "2", expected u32`},
		{"create", `{"image":"x","cpus":1.0}`, "invalid type: floating point `1.0`, expected u32"},
		{"create", `{"image":"x","cpus":-1}`, "invalid value: integer `-1`, expected u32"},
		{"create", `{"image":"x","cpus":4294967296}`, "invalid value: integer `4294967296`, expected u32"},
		{"create", `{"image":"x","idle_timeout_secs":-1}`, "invalid value: integer `-1`, expected u64"},
		{"create", `{"image":"x","network":"yes"}`, `invalid type: string "yes", expected a boolean`},
		{"create", `{"image":"x","env":null}`, "data did not match any variant of untagged enum EnvShape"},
		{"create", `{"image":"x","env":{"A":1}}`, "data did not match any variant of untagged enum EnvShape"},
		{"create", `{"image":"x","env":{"A":null}}`, "data did not match any variant of untagged enum EnvShape"},
		{"create", `{"image":"x","env":["A=1",2]}`, "data did not match any variant of untagged enum EnvShape"},
		// A wrong type is reported before a missing field, in the order of the names.
		{"create", `{"cpus":"x"}`, `invalid type: string "x", expected u32`},
		{"create", `{"name":1,"cpus":"x"}`, `invalid type: string "x", expected u32`},
		{"create", `{"image":"x","cpus":null,"memory_mb":null,"name":null,"network":null,"idle_timeout_secs":18446744073709551615,"env":{},"unknown":[1]}`, "S400"},
		{"exec", `{}`, "missing field `sandbox_id`"},
		{"exec", `{` + someID + `,"args":null}`, "invalid type: null, expected a sequence"},
		{"exec", `{` + someID + `,"args":[1]}`, "invalid type: integer `1`, expected a string"},
		{"exec", `{` + someID + `,"argv":"ls"}`, `invalid type: string "ls", expected a sequence`},
		{"exec", `{` + someID + `,"cmd":null}`, "invalid type: null, expected a string"},
		{"exec", `{` + someID + `,"timeout_ms":1e3}`, "invalid type: floating point `1e3`, expected u64"},
		{"exec", `{` + someID + `,"cmd":"true","stdin":null,"timeout_ms":null,"workdir":null}`, "S002"},
		{"exec", `{"sandbox_id":"nope","cmd":""}`, "S001"},
		{"exec", `{` + someID + `}`, "S001"},
		{"exec", `{` + someID + `,"cmd":" "}`, "S001"},
		{"exec", `{` + someID + `,"argv":[""]}`, "S001"},
		{"exec", `{` + someID + `,"cmd":"a","env":{"9bad":"x"}}`, "S001"},
		{"exec", `{` + someID + `,"cmd":"a","stdin":"!"}`, "S002"}, // the sandbox is checked first
		{"run", `{"image":"x","code":"y"}`, "missing field `lang`"},
		{"run", `{"image":"x","code":"y","lang":"z","files":[{"path":"p"}]}`, "missing field `content`"},
		{"run", `{"image":"x","code":"y","lang":"z","files":["p"]}`, `invalid type: string "p", expected struct RunFile`},
		{"run", `{"image":"x","code":"y","lang":"z","files":null}`, "invalid type: null, expected a sequence"},
		{"run", `{"image":"x","code":"y","lang":"z"}`, "S400"},
		{"list", `null`, "invalid type: null, expected struct ListRequest"},
		{"catalog::list", `null`, "invalid type: null, expected struct CatalogListRequest"},
		{"stop", `{` + someID + `,"wait":1}`, "invalid type: integer `1`, expected a boolean"},
		{"stop", `{` + someID + `}`, "S002"},
		{"fs::ls", `{` + someID + `}`, "missing field `path`"},
		{"fs::stat", `{"path":"/"}`, "missing field `sandbox_id`"},
		{"fs::mkdir", `{` + someID + `,"path":"/x","mode":null}`, "invalid type: null, expected a string"},
		{"fs::rm", `{` + someID + `,"path":"/x","recursive":null}`, "invalid type: null, expected a boolean"},
		{"fs::chmod", `{` + someID + `,"path":"/x"}`, "missing field `mode`"},
		{"fs::chmod", `{` + someID + `,"path":"/x","mode":420}`, "invalid type: integer `420`, expected a string"},
		{"fs::mv", `{` + someID + `,"src":"/x"}`, "missing field `dst`"},
		{"fs::grep", `{` + someID + `,"path":"/x","pattern":"p","max_matches":-1}`, "invalid value: integer `-1`, expected u64"},
		{"fs::sed", `{` + someID + `,"pattern":"p"}`, "missing field `replacement`"},
		{"fs::sed", `{` + someID + `,"pattern":"p","replacement":"r","path":null,"files":["/x"]}`, "S002"},
		{"fs::sed", `{"sandbox_id":"nope","pattern":"p","replacement":"r"}`, "S210"}, // checked before the sandbox
		{"fs::write", `{"sandbox_id":"nope","path":"/x"}`, "S001"},
		{"fs::write", `{` + someID + `,"path":"/x","content":1}`, "data did not match any variant of untagged enum WriteContent"},
		{"fs::write", `{` + someID + `,"path":"/x","content":{"channel_id":"c","access_key":"k"}}`, "data did not match any variant of untagged enum WriteContent"},
		{"fs::write", `{` + someID + `,"path":"/x","content":{"channel_id":"c","access_key":"k","direction":"up"}}`, "data did not match any variant of untagged enum WriteContent"},
		{"fs::write", `{` + someID + `,"path":"/x","content":{"channel_id":"c","access_key":"k","direction":"read","more":1},"content_b64":null}`, "S002"},
		{"fs::read", `{` + someID + `,"path":1}`, "invalid type: integer `1`, expected a string"},
	} {
		_, err := functions["sandbox::"+c.function].Handle(context.Background(), bus.Call{Data: json.RawMessage(c.data)})
		var wire *bus.Error
		var e *failure
		switch {
		case errors.As(err, &wire):
			if wire.Code != "invocation_failed" || wire.Message != "serialization error: "+c.want {
				t.Errorf("%s %s: %v", c.function, c.data, err)
			}
		case errors.As(err, &e):
			if string(e.code) != c.want {
				t.Errorf("%s %s: %v", c.function, c.data, err)
			}
		default:
			t.Errorf("%s %s: %v", c.function, c.data, err)
		}
	}
}

func TestParseUUID(t *testing.T) {
	const want = "0123abcd-4567-89ab-cdef-0123456789ab"
	for _, s := range []string{want, strings.ToUpper(want), "{" + want + "}", "urn:uuid:" + want, strings.ReplaceAll(want, "-", "")} {
		if got, err := parseID(s); got.UUID() != want || err != nil {
			t.Errorf("%s: %s, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "nope", want[1:], want + "0", "{" + want, want + "}", "(" + want + ")", "urn:uuid:" + want[1:],
		strings.ReplaceAll(want, "-", ":"), strings.Replace(want, "a", "g", 1), "0123abcd4-567-89ab-cdef-0123456789ab",
		strings.ReplaceAll(want, "-", "")[1:] + "-", strings.Repeat("a", 1<<20)} {
		if got, err := parseID(s); err == nil {
			t.Errorf("%.60s: %s", s, got)
		} else if len(err.Error()) > 2000 {
			t.Errorf("the error has %d bytes", len(err.Error()))
		}
	}
}

func TestModes(t *testing.T) {
	for s, want := range map[string]uint32{"": 0, "0": 0, "000": 0, "644": 0o644, "0644": 0o644, "1777": 0o1777, "00755": 0o755, "4755": 0o4755} {
		got, err := parseMode(s)
		if err != nil || got != want {
			t.Errorf("%q: %o, %v", s, got, err)
		}
		if back := fileMode(got); len(showMode(back)) != 4 || back == 0 {
			t.Errorf("%q: %v, %s", s, back, showMode(back))
		} else if n, err := parseMode(showMode(back)); n != want || err != nil {
			t.Errorf("%q became %s", s, showMode(back))
		}
	}
	for s, meant := range map[string]string{"0o755": "0755", "0O644": "0644", "9": "", "rwx": "", "0x1ff": "", "-1": "", "+7": "", "7 ": "", "0o": "", "99999999999999999999": ""} {
		if n, err := parseMode(s); err == nil {
			t.Errorf("%q is %o", s, n)
		}
		if got, ok := repairMode(s); got != meant || ok != (meant != "") {
			t.Errorf("%q was meant as %q", s, got)
		}
	}
}

func TestLossy(t *testing.T) {
	for in, want := range map[string]string{"plain ä": "plain ä", "\xff": "\ufffd", "a\xc3": "a\ufffd", "\xe2\x82": "\ufffd", "\xe2\x82x": "\ufffdx",
		"\xf0\x9f\x98\xff\xffz": "\ufffd\ufffd\ufffdz", "\xed\xa0\x80": "\ufffd\ufffd\ufffd", "": ""} {
		if got := lossy([]byte(in)); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestBaseName(t *testing.T) {
	for path, want := range map[string]string{"/a/b": "b", "/a/b/": "b", "/a/b/.": "b", "a": "a", "/": "/", "//": "//", "/..": "/..", "/a/..": "/a/..", ".": ".", "/.": "/.", "/a/./": "a"} {
		if got := baseName(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

func FuzzRequests(f *testing.F) {
	f.Add(`{"image":"x","env":{"A":"b"},"cpus":1}`)
	f.Add(`{` + someID + `,"path":"/x","content":{"channel_id":"c","access_key":"k","direction":"read"}}`)
	f.Add(`{` + someID + `,"cmd":"a 'b","args":[],"pattern":"(","replacement":"","files":["x"]}`)
	functions := idle(f)
	f.Fuzz(func(t *testing.T, data string) {
		if !json.Valid([]byte(data)) {
			return
		}
		for name, fn := range functions {
			_, err := fn.Handle(context.Background(), bus.Call{Data: json.RawMessage(data)})
			if err == nil {
				continue
			}
			var wire *bus.Error
			if !errors.As(err, &wire) && !json.Valid([]byte(err.Error())) {
				t.Errorf("%s %q: %v", name, data, err)
			}
		}
	})
}

func FuzzModes(f *testing.F) {
	f.Add("0644")
	f.Add("0o755")
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseMode(s); err == nil && n > 0o7777 {
			t.Errorf("%q is %o", s, n)
		}
		if m, ok := repairMode(s); ok {
			if _, err := parseMode(m); err != nil {
				t.Errorf("%q was meant as %q, which is none", s, m)
			}
		}
	})
}
