package arch

import (
	"go/ast"
	"slices"
	"testing"
)

// httputil.ReverseProxy forwards informational responses (1xx) and clears headers that were set
// before. So the only proxy to sandboxes is that of package ports, which confines their responses.
// That of package peers is between daemons, and that of package cluster is before the API server of
// tests. Each must let a response begin before the end of the request: see ports.Forward.
func TestProgramsAnswerThroughOneProxy(t *testing.T) {
	allowed := []string{"internal/protocol/ports", "internal/server/peers", "internal/test/testenv/cluster"}
	all := load(t)
	found := 0
	for _, s := range all.sources {
		for _, i := range s.ast.Imports {
			if i.Path.Value != `"net/http/httputil"` {
				continue
			}
			if !mentions(s.ast, "EnableFullDuplex") && !mentions(s.ast, "Forward") {
				t.Errorf("%s: a reverse proxy without full duplex", all.position(i))
			}
			if s.test {
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

// mentions reports whether a file refers to a method or function of a name.
func mentions(f *ast.File, name string) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == name {
			found = true
		}
		return !found
	})
	return found
}
