package executor

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDocument tests that the description of the control API has every endpoint with its methods,
// and no other.
func TestDocument(t *testing.T) {
	raw, err := os.ReadFile("../control/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	routes := newRoutes()
	for path, item := range d.Paths {
		name, ok := strings.CutPrefix(path, "/sandboxes/{id}/executor")
		if !ok {
			continue
		}
		r, ok := routes[name]
		if !ok {
			t.Errorf("%s is not an endpoint", path)
			continue
		}
		delete(routes, name)
		for _, m := range strings.Split(r.allowed(), ", ") {
			// HEAD of /health is for load balancers, which have no description.
			if item[strings.ToLower(m)] == nil && !(name == "/health" && m == "HEAD") {
				t.Errorf("%s has no %s", path, m)
			}
		}
		for m := range item {
			if m != "parameters" && !slices.Contains(strings.Split(r.allowed(), ", "), strings.ToUpper(m)) {
				t.Errorf("%s has %s, which is not allowed", path, m)
			}
		}
	}
	for name := range routes {
		t.Errorf("the document lacks %s", name)
	}
}
