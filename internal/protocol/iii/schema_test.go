package iii

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemas returns the specification's schemas and ours, by function: "spec sandbox::exec request".
var schemas = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	all := map[string]*jsonschema.Schema{}
	for whose, path := range map[string]string{"spec": "function/testdata/spec-schemas.json", "our": "function/schemas.json"} {
		functions, err := readSchemas(path)
		if err != nil {
			return nil, err
		}
		for name, f := range functions {
			for which, s := range map[string]any{"request": f.Request, "response": f.Response} {
				key := whose + " " + name + " " + which
				c := jsonschema.NewCompiler()
				at := "mem:///" + strings.ReplaceAll(key, " ", "/")
				if err := c.AddResource(at, s); err != nil {
					return nil, err
				}
				if all[key], err = c.Compile(at); err != nil {
					return nil, err
				}
			}
		}
	}
	return all, nil
})

type schemaPair struct {
	Request  any `json:"request_schema"`
	Response any `json:"response_schema"`
}

func readSchemas(path string) (map[string]schemaPair, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Functions []struct {
			Name string
			schemaPair
		}
	}
	if err := json.Unmarshal(b, &file); err != nil {
		return nil, err
	}
	all := map[string]schemaPair{}
	for _, f := range file.Functions {
		all[f.Name] = f.schemaPair
	}
	return all, nil
}

// checkSchema validates a payload or a result with the schemas of its function.
func checkSchema(t testing.TB, function, which, value string) {
	t.Helper()
	all, err := schemas()
	if err != nil {
		t.Fatal(err)
	}
	for _, whose := range []string{"spec", "our"} {
		s := all[whose+" "+function+" "+which]
		if s == nil {
			continue // not one of the sixteen
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(value)))
		if err != nil {
			t.Fatalf("%s: %v", function, err)
		}
		if err := s.Validate(v); err != nil {
			t.Errorf("the %s of %s is not as %s schema has it: %v\n%.500s", which, function, whose, err, value)
		}
	}
}

// TestSchemasHoldTheSpecs tests that the served schemas contain everything in the specification's.
func TestSchemasHoldTheSpecs(t *testing.T) {
	spec, err := readSchemas("function/testdata/spec-schemas.json")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := readSchemas("function/schemas.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(spec) != 16 || len(ours) != 16 {
		t.Errorf("%d and %d functions", len(spec), len(ours))
	}
	for name, s := range spec {
		for which, pair := range map[string][2]any{"request": {s.Request, ours[name].Request}, "response": {s.Response, ours[name].Response}} {
			if at := lacks(pair[0], pair[1], "#"); at != "" {
				t.Errorf("our %s schema of %s lacks %s", which, name, at)
			}
		}
	}
}

// lacks returns an element of want that got lacks; "" if there is none.
func lacks(want, got any, at string) string {
	w, ok := want.(map[string]any)
	if !ok {
		if !reflect.DeepEqual(want, got) {
			return at
		}
		return ""
	}
	g, ok := got.(map[string]any)
	if !ok {
		return at
	}
	for k, v := range w {
		if bad := lacks(v, g[k], at+"/"+k); bad != "" {
			return bad
		}
	}
	return ""
}

// TestInfoServesTheSchemas tests that engine::functions::info returns the schemas, and that their
// examples are valid.
func TestInfoServesTheSchemas(t *testing.T) {
	r, _ := newFaulty(t, Options{})
	c := r.connect()
	ours, err := readSchemas("function/schemas.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range ours {
		info := c.call("engine::functions::info", object{"function_id": name})
		if info["worker_name"] != "iii-sandbox" || info["description"] == "" ||
			!reflect.DeepEqual(info["request_schema"], pair.Request) || !reflect.DeepEqual(info["response_schema"], pair.Response) {
			t.Errorf("%s: %v", name, info)
		}
		examples, _ := pair.Request.(map[string]any)["examples"].([]any)
		for _, e := range examples {
			checkSchema(t, name, "request", text(e))
			m := c.invoke(name, text(e))
			if m.Error != nil && strings.HasPrefix(m.Error.Message, "serialization error") {
				t.Errorf("%s: %v", name, m.Error)
			}
		}
	}
	if n := len(c.call("engine::functions::list", object{"prefix": "sandbox::"})["functions"].([]any)); n != 16 {
		t.Errorf("%d functions are listed", n)
	}
}
