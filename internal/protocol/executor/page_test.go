package executor

import (
	"os"
	"regexp"
	"testing"
)

// TestPage tests that docs/executor.md has a row for every endpoint, with its methods.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/executor.md")
	if err != nil {
		t.Fatal(err)
	}
	for path, route := range newRoutes() {
		if !regexp.MustCompile("(?m)^\\| `" + route.method + "[^|]* " + path + "(\\?[a-z]+=)?` \\|").Match(page) {
			t.Errorf("%s %s has no row", route.method, path)
		}
	}
}
