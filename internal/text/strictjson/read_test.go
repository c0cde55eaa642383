package strictjson_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
)

type object struct {
	Name  string
	On    bool
	Args  []string
	Env   map[string]string
	Count int
	Inner string
}

func (o *object) read(raw string) error {
	return strictjson.Object("the request", []byte(raw), strictjson.Text("name", &o.Name), strictjson.Truth("on", &o.On), strictjson.List("args", &o.Args),
		strictjson.Texts("env", &o.Env), strictjson.Value("count", "a number", &o.Count),
		strictjson.Field{Name: "inner", Set: func(raw json.RawMessage) error {
			return strictjson.Member("inner", raw, strictjson.Text("name", &o.Inner))
		}},
		strictjson.Field{Name: "never", Set: func(json.RawMessage) error { return errors.New("may not be set") }})
}

func TestObject(t *testing.T) {
	var got object
	if err := got.read(` {"name": "n", "on": true, "args": ["a", ""], "env": {"A": "b"}, "count": 3, "inner": {"name": "i"}, "never": null} `); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(object{"n", true, []string{"a", ""}, map[string]string{"A": "b"}, 3, "i"}, got); diff != "" {
		t.Error(diff)
	}
}

// Whatever is wrong is told with the member's name, and without a value.
func TestMistakes(t *testing.T) {
	for raw, want := range map[string][2]string{
		``:                            {"", "the request is not a JSON object (send one JSON object)"},
		`[]`:                          {"", "the request is not a JSON object (send one JSON object)"},
		`null`:                        {"", "the request is not a JSON object (send one JSON object)"},
		`{`:                           {"", "the request is not a JSON object (send one JSON object)"},
		`{"name": secret}`:            {"", "the request is not valid JSON at byte 8 (send one JSON object)"},
		`{"name": "n"} {}`:            {"", "the request has something after its JSON object (send one JSON object)"},
		"{\"name\": \"\xff\"}":        {"", "the request is not valid UTF-8"},
		`{"name": "\ud800"}`:          {"", "the request has an unpaired surrogate in a string at byte 11 (send text)"},
		`{"nmae": "secret"}`:          {"nmae", `"nmae" is not known (did you mean name?)`},
		`{"banana": 1}`:               {"banana", `"banana" is not known (known are name, on, args, env, count, inner, never)`},
		`{"name": 1}`:                 {"name", "name must be a string"},
		`{"on": "yes"}`:               {"on", "on must be true or false"},
		`{"args": "secret"}`:          {"args", "args must be a list of strings"},
		`{"count": "3"}`:              {"count", "count must be a number"},
		`{"env": []}`:                 {"env", "env must be an object of strings"},
		`{"env": {"A": 1}}`:           {"env", `env."A" must be a string`},
		`{"env": {"A": "", "A": ""}}`: {"env", `env."A" is given twice (give it once)`},
		`{"name": "", "name": ""}`:    {"name", `"name" is given twice (give it once)`},
		`{"inner": 1}`:                {"inner", "inner is not a JSON object (send one JSON object)"},
		`{"inner": {"nam": ""}}`:      {"inner.nam", `"inner.nam" is not known (did you mean inner.name?)`},
		`{"inner": {"name": 1}}`:      {"inner.name", "inner.name must be a string"},
		`{"never": 1}`:                {"never", "never may not be set"},
	} {
		t.Run(raw, func(t *testing.T) {
			err := new(object).read(raw)
			e := sandbar.AsError(err)
			if e == nil || e.Code != sandbar.Invalid || e.Field != want[0] || err.Error() != want[1] {
				t.Errorf("%+v; want %q", e, want)
			}
		})
	}
}
