package arch

import "testing"

// httputil.ReverseProxy forwards informational responses (1xx) and clears headers that were set
// before. Only the proxy of package ports, which confines the responses of sandboxes, uses it.
func TestProgramsAnswerThroughOneProxy(t *testing.T) {
	const only = "internal/protocol/ports"
	all := load(t)
	found := 0
	for _, s := range all.sources {
		for _, i := range s.ast.Imports {
			if i.Path.Value != `"net/http/httputil"` || s.test {
				continue
			}
			if found++; s.pkg != only {
				t.Errorf("%s: a reverse proxy besides that of %s", all.position(i), only)
			}
		}
	}
	if found != 1 {
		t.Errorf("%d files import httputil", found)
	}
}
