package arch

import "testing"

// httputil.ReverseProxy passes informational answers on and clears the header that
// was set before. The one that confines what a program answers is the only one.
func TestProgramsAnswerThroughOneProxy(t *testing.T) {
	const only = "internal/protocol/control"
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
