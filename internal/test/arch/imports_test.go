package arch

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// rule is a row of the import table.
type rule struct {
	pattern  string   // a package, or a path whose last element is "*"
	may      []string // what the package may import
	tests    []string // what its tests may import in addition
	anything bool     // it may import all packages but those for tests
	used     bool
}

// everyTest is the row for the tests of all packages.
const everyTest = "*_test.go"

func importRules(t *testing.T, all *tree) map[string]*rule {
	t.Helper()
	rules := map[string]*rule{}
	for _, row := range all.table(t, "What may import what") {
		if len(row) != 4 || len(quoted(row[0])) == 0 {
			t.Errorf("row %q does not have the columns package, may import, its tests also, because", row)
			continue
		}
		if row[3] == "" {
			t.Errorf("row %q gives no reason", row)
		}
		for _, pattern := range quoted(row[0]) {
			if rules[pattern] != nil {
				t.Errorf("%s stands in the table twice", pattern)
			}
			rules[pattern] = &rule{pattern: pattern, may: quoted(row[1]), tests: quoted(row[2]), anything: strings.HasPrefix(row[1], "anything")}
		}
	}
	return rules
}

// find returns the row of a package: its own, else a matching one with "*".
func find(rules map[string]*rule, pkg string) *rule {
	if r := rules[pkg]; r != nil {
		return r
	}
	return rules[path.Dir(pkg)+"/*"]
}

// standard reports whether an import path is of the standard library: its first element has no dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// covers reports whether the names of a cell allow an import. A package of this module is named
// exactly, or with "*" as the last element; another name also covers the packages below it.
func covers(names []string, importPath string) bool {
	if own, ok := short(importPath); ok {
		return slices.Contains(names, own) || slices.Contains(names, path.Dir(own)+"/*")
	}
	return slices.ContainsFunc(names, func(n string) bool {
		return importPath == n || strings.HasPrefix(importPath, n+"/")
	})
}

// forbidden returns why a file may not import a path, "" if it may.
func forbidden(rules map[string]*rule, pkg string, test bool, importPath string) string {
	r := find(rules, pkg)
	own, _ := short(importPath)
	switch {
	case r == nil:
		return "its package has no row in the table"
	case standard(importPath):
		return ""
	case strings.HasPrefix(own, "cmd/"):
		return "nothing imports a command"
	case covers(r.may, importPath) || r.anything && !covers(rules[everyTest].may, importPath):
		return ""
	case !test:
		return fmt.Sprintf("%s may import %s", r.pattern, list(r.may))
	case own == pkg || covers(r.tests, importPath) || covers(rules[everyTest].may, importPath):
		return ""
	}
	return fmt.Sprintf("tests of %s may import, in addition to %s, only %s", r.pattern, list(r.may), list(append(slices.Clip(r.tests), rules[everyTest].may...)))
}

func list(names []string) string {
	if len(names) == 0 {
		return "the standard library"
	}
	return strings.Join(names, ", ")
}

func TestImports(t *testing.T) {
	all := load(t)
	rules := importRules(t, all)
	if rules[everyTest] == nil {
		t.Fatalf("the table has no row %s", everyTest)
	}
	rules[everyTest].used = true
	for _, s := range all.sources {
		if r := find(rules, s.pkg); r != nil {
			r.used = true
		}
		if find(rules, s.pkg) == nil {
			t.Errorf("%s: package %s has no row in the import table of ARCHITECTURE.md", s.path, s.pkg)
			continue
		}
		for _, p := range s.imports() {
			if why := forbidden(rules, s.pkg, s.test, p); why != "" {
				t.Errorf("%s must not import %s: %s (ARCHITECTURE.md, \"What may import what\")", s.path, p, why)
			}
		}
	}
	for _, r := range rules {
		if !r.used {
			t.Errorf("the import table has a row for the missing package %s", r.pattern)
		}
	}
}

// The rule of the table, on a small table.
func TestForbidden(t *testing.T) {
	rules := map[string]*rule{
		everyTest:             {pattern: everyTest, may: []string{"internal/test/testenv", "example.org/cmp"}},
		"sandbar":             {pattern: "sandbar"},
		"engine":              {pattern: "engine", may: []string{"sandbar"}, tests: []string{"internal/fake"}},
		"internal/protocol/*": {pattern: "internal/protocol/*", may: []string{"engine", "example.org/ws"}},
		"cmd/sandbar":         {pattern: "cmd/sandbar", anything: true},
	}
	tests := []struct {
		pkg  string
		test bool
		path string
		ok   bool
	}{
		{"sandbar", false, "encoding/json", true},
		{"sandbar", false, "example.org/cmp", false},
		{"sandbar", true, "example.org/cmp/options", true},
		{"sandbar", true, "example.org/cmpother", false},
		{"sandbar", true, module, true},
		{"engine", false, module, true},
		{"engine", false, module + "/internal/fake", false},
		{"engine", true, module + "/internal/fake", true},
		{"engine", true, module + "/internal/protocol/a", false},
		{"internal/protocol/a", false, module + "/engine", true},
		{"internal/protocol/a", false, module + "/internal/protocol/b", false},
		{"internal/protocol/a", false, module + "/cmd/sandbar", false},
		{"internal/protocol/a/b", false, module + "/engine", false},
		{"cmd/sandbar", false, module + "/internal/protocol/b", true},
		{"cmd/sandbar", false, module + "/internal/test/testenv", false},
		{"cmd/sandbar", true, module + "/internal/test/testenv", true},
		{"unheard", false, module, false},
	}
	for _, tt := range tests {
		why := forbidden(rules, tt.pkg, tt.test, tt.path)
		if (why == "") != tt.ok {
			t.Errorf("%s (test %v) imports %s: %q, want allowed = %v", tt.pkg, tt.test, tt.path, why, tt.ok)
		}
	}
}

// Released binaries do not link packages for tests.
func TestNoTestCodeInCommands(t *testing.T) {
	all := load(t)
	imports := map[string][]string{}
	for _, s := range all.sources {
		if !s.test {
			imports[s.pkg] = append(imports[s.pkg], s.imports()...)
		}
	}
	for _, cmd := range []string{"cmd/sandbar", "cmd/sandbar-agent"} {
		if len(imports[cmd]) == 0 {
			t.Errorf("there is no command %s", cmd)
		}
		seen := map[string]bool{}
		var visit func(pkg, way string)
		visit = func(pkg, way string) {
			if seen[pkg] {
				return
			}
			seen[pkg] = true
			for _, p := range imports[pkg] {
				if p == "testing" {
					t.Errorf("%s links package testing: %s", cmd, way)
				}
				if own, ok := short(p); ok {
					visit(own, way+" → "+own)
				}
			}
		}
		visit(cmd, cmd)
	}
}
