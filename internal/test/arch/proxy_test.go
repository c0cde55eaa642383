package arch

import (
	"slices"
	"testing"
)

// httputil.ReverseProxy forwards informational responses (1xx) and clears headers that were set
// before. So the only proxy to sandboxes is that of package ports, which confines their responses.
// That of package peers is between daemons, and that of package cluster is before the API server of
// tests.
func TestProgramsAnswerThroughOneProxy(t *testing.T) {
	allowed := []string{"internal/protocol/ports", "internal/server/peers", "internal/test/testenv/cluster"}
	all := load(t)
	found := 0
	for _, s := range all.sources {
		for _, i := range s.ast.Imports {
			if i.Path.Value != `"net/http/httputil"` || s.test {
				continue
			}
			if found++; !slices.Contains(allowed, s.pkg) {
				t.Errorf("%s: a reverse proxy besides those of %v", all.position(i), allowed)
			}
		}
	}
	if found != len(allowed) {
		t.Errorf("%d files import httputil", found)
	}
}
