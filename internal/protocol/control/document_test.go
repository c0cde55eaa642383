package control

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/engine"
)

var update = flag.Bool("update", false, "write docs/api.md")

// description is openapi.json, as far as the tests read it.
type description struct {
	Tags       []struct{ Name string }
	Paths      map[string]map[string]json.RawMessage
	Components struct {
		Schemas map[string]schema
	}
}

type operation struct {
	OperationID, Summary, Description string
	Tags                              []string
	Parameters                        []struct{ Name, In, Description string }
	RequestBody                       struct {
		Content map[string]struct {
			Schema   schema
			Examples map[string]struct{ Value any }
		}
	}
	Responses map[string]struct {
		Description string
		Content     map[string]struct{ Schema schema }
	}
}

type schema struct {
	Ref         string `json:"$ref"`
	Type        any
	Description string
	Properties  map[string]schema
	Required    []string
	Enum        []string
	Items       *schema
	OneOf       []any
}

// methods are the keys of operations in a path.
var methods = []string{"get", "head", "post", "put", "patch", "delete", "options"}

func readDescription(t *testing.T) (d description) {
	t.Helper()
	if err := json.Unmarshal(openapi, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// operations returns the operations of a path by method.
func operations(t *testing.T, path map[string]json.RawMessage) map[string]operation {
	t.Helper()
	all := map[string]operation{}
	for _, m := range methods {
		if raw, ok := path[m]; ok {
			var o operation
			if err := json.Unmarshal(raw, &o); err != nil {
				t.Fatal(err)
			}
			all[m] = o
		}
	}
	return all
}

// compile returns the compiled schema at a place of openapi.json.
func compile(t *testing.T, place string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(openapi))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("openapi.json#" + place)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDocumentIsOpenAPI tests openapi.json with the schema of the OpenAPI Initiative.
func TestDocumentIsOpenAPI(t *testing.T) {
	raw, err := os.ReadFile("testdata/openapi-3.1.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	meta, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("meta.json", meta); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("meta.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(openapi))
	if err == nil {
		err = s.Validate(doc)
	}
	if err != nil {
		t.Error(err)
	}
	for name := range readDescription(t).Components.Schemas {
		compile(t, "/components/schemas/"+name)
	}
}

// TestDocumentIsServed tests that the document has every path of the code with its methods, and no
// other.
func TestDocumentIsServed(t *testing.T) {
	r := newStates(t)
	id := string(r.create(`{}`).ID)
	fill := strings.NewReplacer("{id}", id, "{port}", "8000", "{context}", "none")
	// Not in the document: paths of programs and of another protocol, and the document itself.
	seen := map[kind]bool{web: true, preview: true, document: true}
	actions := map[string]bool{}
	for path, item := range readDescription(t).Paths {
		q, err := http.NewRequest("GET", "http://localhost/v1"+fill.Replace(path), nil)
		if err != nil {
			t.Fatal(err)
		}
		at, ok := route(q)
		if !ok {
			t.Errorf("%s leads nowhere", path)
			continue
		}
		seen[at.kind] = true
		if at.kind == executor {
			continue // its package has the same test
		}
		if _, action, ok := strings.Cut(path, "{context}/"); ok {
			actions[action] = true
		}
		var allowed []string
		for m := range operations(t, item) {
			allowed = append(allowed, strings.ToUpper(m))
		}
		slices.Sort(allowed)
		for _, m := range methods {
			m = strings.ToUpper(m)
			if slices.Contains(allowed, m) && (m == "DELETE" || strings.HasSuffix(path, "pause") || at.kind == watch || at.kind == happenings) {
				continue // other tests use them
			}
			status, text, h := r.askAll(token, m, "/v1"+fill.Replace(path), "")
			if slices.Contains(allowed, m) == (status == http.StatusMethodNotAllowed) || strings.Contains(text, "there is nothing at") {
				t.Errorf("%s %s: %d %s", m, path, status, text)
			}
			if allow := strings.Join(allowed, ", "); status == http.StatusMethodNotAllowed && h.Get("Allow") != allow {
				t.Errorf("%s allows %s, and the document has %s", path, h.Get("Allow"), allow)
			}
		}
	}
	for k := range kinds {
		if !seen[k] {
			t.Errorf("the document has no path of the kind %d", k)
		}
	}
	if got, want := slices.Sorted(maps.Keys(actions)), slices.Sorted(slices.Values(contextActions())); !slices.Equal(got, want) {
		t.Errorf("the actions on a context are %v, and the document has %v", want, got)
	}
	if status, text := r.ask(token, "GET", "/openapi.json", ""); status != 200 || text != string(openapi) {
		t.Errorf("/openapi.json: %d, %d bytes", status, len(text))
	}
}

// TestVersionedPaths tests that "/v1" precedes paths of sandboxes only, and changes nothing else.
func TestVersionedPaths(t *testing.T) {
	r := newRig(t, Options{}, nil)
	id := string(r.create(`{"secret":"` + secret + `"}`).ID)
	for path, want := range map[string]int{"/v1/sandboxes": 200, "/v1/sandboxes/" + id: 200, "/v1/sandboxes/" + id + "/executor/x%2fy": 200,
		"/v1/v1/sandboxes": 404, "/v1/r/" + id + "/": 404, "/v1/koyeb-sandbox/x": 404, "/v1/openapi.json": 404, "/%761/sandboxes/" + id + "/executor/x%2fy": 404} {
		if status, text := r.ask(token, "GET", path, ""); status != want {
			t.Errorf("%s: %d %s, want %d", path, status, text, want)
		}
	}
	if _, text := r.ask(token, "GET", "/v1/sandboxes/"+id+"/executor/x%2fy", ""); !strings.Contains(text, " /x%2fy?") {
		t.Errorf("the executor received %s", text)
	}
	for path, want := range map[string]int{"/v1/sandboxes/" + id + "/executor/x": 200, "/v1/sandboxes/" + id: 401, "/v1/sandboxes": 401} {
		if status, _ := r.ask(secret, "GET", path, ""); status != want {
			t.Errorf("%s with the sandbox's secret: %d, want %d", path, status, want)
		}
	}
}

// TestDocumentHasTheWireTypes tests that each schema has exactly the fields of its Go type.
func TestDocumentHasTheWireTypes(t *testing.T) {
	schemas := readDescription(t).Components.Schemas
	for name, v := range map[string]any{"Create": wire.Create{}, "Sandbox": wire.Sandbox{}, "Limits": wire.Limits{}, "List": wire.List{}, "Fork": wire.Fork{}, "Renew": wire.Renew{}, "Metrics": wire.Metrics{}, "Notification": wire.Notification{},
		"Dir": wire.Dir{}, "Entry": wire.Entry{}, "FileEvent": wire.FileEvent{}, "Preview": wire.Preview{}, "Previews": wire.Previews{},
		"CreateContext": wire.CreateContext{}, "Context": wire.Context{}, "Contexts": wire.Contexts{}, "Cell": wire.Cell{}, "Event": wire.Event{},
		"Status": wire.Status{}, "DriverState": wire.DriverState{}, "Load": wire.Load{}, "ReadyPool": wire.ReadyPool{}, "Executions": wire.Executions{}, "ClientLoad": wire.ClientLoad{}, "Usage": wire.Usage{}, "Quota": wire.Quota{},
		"Configuration": wire.Configuration{}, "Setting": wire.Setting{}, "Images": wire.Images{}, "Image": wire.Image{}, "Languages": wire.Languages{}, "Language": wire.Language{},
		"Error": wire.Problem{}, "ErrorDetail": wire.ErrorDetail{}} {
		got := slices.Sorted(maps.Keys(schemas[name].Properties))
		want := fieldsOf(reflect.TypeOf(v))
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s has %v, and the type has %v", name, got, want)
		}
	}
	for field, values := range map[string][]string{"type": texts(engine.EventTypes), "reason": texts(engine.EndReasons)} {
		if got := schemas["Notification"].Properties[field].Enum; !slices.Equal(got, values) {
			t.Errorf("%s of an event is one of %v, and the document has %v", field, values, got)
		}
	}
	var all []string
	for _, c := range sandbar.Codes {
		all = append(all, string(c))
	}
	if codes := schemas["ErrorDetail"].Properties["code"].Enum; !slices.Equal(slices.Sorted(slices.Values(codes)), slices.Sorted(slices.Values(all))) {
		t.Errorf("the codes are %v, and the document has %v", all, codes)
	}
}

// texts converts the values of a closed set.
func texts[T ~string](values []T) (all []string) {
	for _, v := range values {
		all = append(all, string(v))
	}
	return all
}

// fieldsOf returns the names of a struct's members in JSON.
func fieldsOf(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name != "":
			names = append(names, name)
		case f.Type.Kind() == reflect.Pointer:
			names = append(names, fieldsOf(f.Type.Elem())...)
		default:
			names = append(names, fieldsOf(f.Type)...)
		}
	}
	return names
}

// odd are values that are wrong in most places.
var odd = []any{nil, true, "", "x", "a/b", "..", strings.Repeat("x", 129), strings.Repeat("s", 16), strings.Repeat("s", 15), "with a space in it", "unlimited", "never",
	-1, 0, 1, 0.5, 101, 1e15, float64(1 << 53), float64(1<<53 + 2), []any{}, []any{"a"}, map[string]any{}, map[string]any{"A": "b"}, map[string]any{"A": 1}}

// generated returns a generator of bodies of an object schema: its properties and others, with
// right and wrong values.
func generated(schemas map[string]schema, name string) *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		o := map[string]any{}
		for _, field := range slices.Sorted(maps.Keys(schemas[name].Properties)) {
			if !rapid.Bool().Draw(t, field) {
				continue
			}
			p := schemas[name].Properties[field]
			inner := strings.TrimPrefix(p.Ref, "#/components/schemas/")
			switch {
			case rapid.IntRange(0, 7).Draw(t, "wrong") == 0:
				o[field] = rapid.SampledFrom(odd).Draw(t, "odd")
			case inner != "" && len(schemas[inner].Properties) > 0:
				o[field] = generated(schemas, inner).Draw(t, inner)
			case inner != "":
				o[field] = rapid.SampledFrom([]any{0, 1, 7, "unlimited", 1e6}).Draw(t, inner)
			case p.Type == "boolean":
				o[field] = rapid.Bool().Draw(t, "boolean")
			case p.Type == "object":
				o[field] = rapid.MapOf(rapid.StringMatching("[A-Z]{1,3}"), rapid.String()).Draw(t, "map")
			default:
				o[field] = rapid.StringMatching("[a-z]{16,20}").Draw(t, "string")
			}
		}
		if rapid.IntRange(0, 15).Draw(t, "more") == 0 {
			o["unknown"] = 1
		}
		return o
	})
}

// withoutNull removes members that are null: they count as absent.
func withoutNull(o map[string]any) {
	maps.DeleteFunc(o, func(_ string, v any) bool { return v == nil })
	for _, v := range o {
		if inner, ok := v.(map[string]any); ok {
			withoutNull(inner)
		}
	}
}

// TestBodiesAsTheSchemaSays tests that a body is decoded exactly if its schema allows it.
func TestBodiesAsTheSchemaSays(t *testing.T) {
	schemas := readDescription(t).Components.Schemas
	for name, decode := range map[string]func([]byte) error{
		"Create":        func(b []byte) error { _, err := decodeCreate(b); return err },
		"Renew":         func(b []byte) error { _, err := decodeRenew(b); return err },
		"CreateContext": func(b []byte) error { _, err := decodeContext(b); return err },
		"Cell":          func(b []byte) error { _, err := decodeCell(b); return err },
	} {
		t.Run(name, func(t *testing.T) {
			s := compile(t, "/components/schemas/"+name)
			allowed, refused := 0, 0
			rapid.Check(t, func(t *rapid.T) {
				raw, err := json.Marshal(generated(schemas, name).Draw(t, name))
				if err != nil {
					t.Fatal(err)
				}
				v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
				if err != nil {
					t.Fatal(err)
				}
				withoutNull(v.(map[string]any))
				invalid, err := s.Validate(v), decode(raw)
				if (invalid == nil) != (err == nil) {
					t.Fatalf("%s: the schema says %v, and the code %v", raw, invalid, err)
				}
				if err == nil {
					allowed++
				} else {
					refused++
				}
			})
			if allowed < 5 || refused < 5 {
				t.Errorf("%d bodies were allowed and %d refused", allowed, refused)
			}
		})
	}
}

// parameter is a query parameter of the document.
type parameter struct {
	Name, In string
	Schema   struct {
		Type      string
		Enum      []string
		Minimum   *int
		Maximum   *int
		MinLength int
		MaxItems  int
	}
}

// right and wrong values of a parameter, as the document describes it. wrong is "" if it says
// nothing about values.
func (p parameter) values(good map[string]string) (right, wrong string) {
	right = good[p.Name]
	switch s := p.Schema; {
	case len(s.Enum) > 0:
		return s.Enum[0], "none-of-these"
	case s.Type == "integer":
		return fmt.Sprint(*s.Minimum), fmt.Sprint(*s.Maximum + 1)
	case s.Type == "boolean":
		return "true", "perhaps"
	case s.MaxItems > 0:
		return right, strings.TrimSuffix(strings.Repeat(right+"&"+p.Name+"=", s.MaxItems+1), "&"+p.Name+"=")
	}
	return right, ""
}

// TestQueriesAsTheDocumentSays tests each query parameter of the document: its values are accepted,
// others are refused, and so are repetitions of one that is no list, and parameters that the
// document lacks.
func TestQueriesAsTheDocumentSays(t *testing.T) {
	r := newStates(t)
	id := string(r.create(`{"name":"box"}`).ID)
	good := map[string]string{"label": "a=b", "driver": "faulty", "name": "box", "sandbox": "box", "type": "sandbox", "path": ".", "state": "running", "tenant": "other"}
	good["after"] = "oldest"
	next := "1." + id
	tested := 0
	for path, item := range readDescription(t).Paths {
		for m, raw := range item {
			var o struct{ Parameters []parameter }
			if m != "get" || strings.Contains(path, "/executor/") || json.Unmarshal(raw, &o) != nil {
				continue
			}
			url := "/v1" + strings.NewReplacer("{id}", id, "{port}", "8000").Replace(path)
			if strings.HasSuffix(path, "/exec") || strings.HasSuffix(path, "/ports/{port}") {
				continue // an upgrade is required first
			}
			ask := func(query string) (status int) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				q, err := http.NewRequestWithContext(ctx, "GET", "http://"+r.addr+url+"?"+query, nil)
				if err != nil {
					t.Fatal(err)
				}
				q.Header.Set("Authorization", "Bearer "+token)
				resp, err := new(http.Transport{DisableKeepAlives: true}).RoundTrip(q)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close() // some answers have no end
				return resp.StatusCode
			}
			var names []string
			for _, p := range o.Parameters {
				if p.In != "query" {
					continue
				}
				tested++
				names = append(names, p.Name)
				values := maps.Clone(good)
				switch {
				case path == "/sandboxes":
					values["after"] = next
				case strings.HasSuffix(path, "/dir"):
					values["after"] = "x"
				}
				right, wrong := p.values(values)
				if status := ask(p.Name + "=" + right); status == http.StatusBadRequest {
					t.Errorf("GET %s?%s=%s is refused", path, p.Name, right)
				}
				if wrong != "" {
					if status := ask(p.Name + "=" + wrong); status != http.StatusBadRequest {
						t.Errorf("GET %s?%s=%.40s: %d", path, p.Name, wrong, status)
					}
				}
				if status := ask(p.Name + "=" + right + "&" + p.Name + "=" + right); (status == http.StatusBadRequest) != (p.Schema.Type != "array") {
					t.Errorf("GET %s with %s twice: %d", path, p.Name, status)
				}
			}
			if status := ask("unknown=1"); len(names) > 0 && status != http.StatusBadRequest {
				t.Errorf("GET %s?unknown=1: %d", path, status)
			}
		}
	}
	if tested < 12 {
		t.Errorf("%d parameters", tested)
	}
}

// TestAPIPage tests that docs/api.md is the page of openapi.json. With -update it writes the page.
func TestAPIPage(t *testing.T) {
	const name = "../../../docs/api.md"
	want := pageOf(t, readDescription(t))
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil || string(got) != want {
		t.Errorf("docs/api.md differs from openapi.json (%v); go test ./internal/protocol/control -run TestAPIPage -update writes it", err)
	}
}

// pageOf renders the document as a page.
func pageOf(t *testing.T, d description) string {
	var b strings.Builder
	b.WriteString(apiIntroduction)
	for _, tag := range d.Tags {
		fmt.Fprintf(&b, "\n## %s\n\n| request | body | answer |\n|---|---|---|\n", strings.ToUpper(tag.Name[:1])+tag.Name[1:])
		for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
			all := operations(t, d.Paths[path])
			for _, m := range methods {
				o, ok := all[m]
				if !ok || o.Tags[0] != tag.Name {
					continue
				}
				fmt.Fprintf(&b, "| `%s %s`: %s | %s | %s |\n", strings.ToUpper(m), path, o.Summary+queryOf(o), bodyOf(o), answersOf(o))
			}
		}
	}
	b.WriteString("\n# Bodies\n")
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		s := d.Components.Schemas[name]
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", name, wrap(s.Description))
		if len(s.Properties) == 0 {
			continue
		}
		b.WriteString("\n| field | type | |\n|---|---|---|\n")
		for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
			p := s.Properties[field]
			must := ""
			if slices.Contains(s.Required, field) {
				must = ", always present"
			}
			fmt.Fprintf(&b, "| `%s` | %s%s | %s |\n", field, typeName(p), must, p.Description)
		}
	}
	return b.String()
}

const apiIntroduction = `# The control API

This page is generated from the OpenAPI 3.1 document that the daemon serves at ` + "`/openapi.json`" + `. All
paths are below ` + "`/v1`" + `; paths of sandboxes also work without it. [sandboxes.md](sandboxes.md) has the
rules, the errors and examples.
`

func queryOf(o operation) string {
	var names []string
	for _, p := range o.Parameters {
		if p.In == "query" {
			names = append(names, "`"+p.Name+"`: "+p.Description)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, "; ") + ")"
}

func bodyOf(o operation) string {
	for media, c := range o.RequestBody.Content {
		if name := typeName(c.Schema); name != "any" {
			return name
		}
		return media
	}
	return ""
}

func answersOf(o operation) string {
	var all []string
	for _, status := range slices.Sorted(maps.Keys(o.Responses)) {
		r := o.Responses[status]
		if status == "default" {
			continue
		}
		text := status + ": " + r.Description
		for media, c := range r.Content {
			if name := typeName(c.Schema); strings.HasPrefix(name, "[") {
				text += ", " + name
			} else if media != "application/json" {
				text += ", " + media
			}
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

func typeName(s schema) string {
	switch {
	case s.Ref != "":
		name := strings.TrimPrefix(s.Ref, "#/components/schemas/")
		return "[" + name + "](#" + strings.ToLower(name) + ")"
	case s.Items != nil:
		return "list of " + typeName(*s.Items)
	case s.Type == nil:
		return "any"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(s.Type), " ", " or "), "[]")
}

// wrap breaks a text at 100 columns.
func wrap(s string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(s) {
		switch {
		case i == 0:
		case column+1+len(word) > 100:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
