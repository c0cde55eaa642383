package control

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
)

// endpoint matches one line of the package comment's list.
var endpoint = regexp.MustCompile(`(?m)^//\t(GET|POST|DELETE|ANY) +(\S+) `)

// TestPage tests that docs/sandboxes.md, docs/contexts.md or docs/previews.md has every endpoint of
// the package comment, and that docs/sandboxes.md has every code with its status.
func TestPage(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	page := read("../../../docs/sandboxes.md")
	pages := strings.ReplaceAll(page+read("../../../docs/contexts.md")+read("../../../docs/previews.md"), "{context}", "{c}")
	endpoints := endpoint.FindAllStringSubmatch(read("doc.go"), -1)
	if len(endpoints) < 15 {
		t.Errorf("the package comment lists %d endpoints", len(endpoints))
	}
	for _, e := range endpoints {
		method, path := e[1], strings.TrimPrefix(e[2], "…/contexts/{c}") // the page says "…/run"
		if !regexp.MustCompile("(?m)^\\| [^|]*\\b" + method + "\\b[^|]*" + regexp.QuoteMeta(path) + "[^|]*\\|").MatchString(pages) {
			t.Errorf("no row of %s %s", method, e[2])
		}
	}
	for _, code := range []sandbar.Code{sandbar.Invalid, sandbar.Unauthenticated, sandbar.Denied, sandbar.NotFound, sandbar.Exists, sandbar.Conflict, sandbar.TooLarge,
		sandbar.Unsupported, sandbar.Exhausted, sandbar.NoSpace, sandbar.Timeout, sandbar.Canceled, sandbar.Unavailable, sandbar.Gone, sandbar.Internal} {
		if row := regexp.MustCompile(fmt.Sprintf("(?m)^\\| [^|]*`%s`[^|]* \\| %d\\b", code, statusOf(code))); !row.MatchString(page) {
			t.Errorf("no row of the code %s with the status %d", code, statusOf(code))
		}
	}
}
