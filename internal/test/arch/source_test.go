package arch

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// module is the path of the module; "sandbar" stands for its root package.
const module = "github.com/sandbar-dev/sandbar"

// source is one Go file.
type source struct {
	path string // below the module's root, with slashes
	pkg  string // short name of its package: "sandbar", "driver", "engine/lang"
	test bool
	ast  *ast.File
}

// imports returns the import paths of the file.
func (s source) imports() []string {
	var paths []string
	for _, spec := range s.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err == nil {
			paths = append(paths, p)
		}
	}
	return paths
}

// short returns the short name of an import path of this module, and false for others.
func short(importPath string) (string, bool) {
	if importPath == module {
		return "sandbar", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// tree is the content of the repository without generated and fetched files.
type tree struct {
	fset    *token.FileSet
	sources []source
	files   map[string][]byte // text files by path, Go sources included
	dirs    map[string]bool
	binary  map[string]bool // files that are no text
}

// position returns the position of a node, for messages.
func (t *tree) position(n ast.Node) string {
	return t.fset.Position(n.Pos()).String()
}

var loadOnce = sync.OnceValues(readTree)

func load(t *testing.T) *tree {
	t.Helper()
	all, err := loadOnce()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// made are the files and directories of Git and make.
var made = map[string]bool{".git": true, ".cache": true, "bin": true, "internal/agent/embedded/sandbar-agent": true, "internal/agent/porter/embedded/sandbar-porter": true,
	"internal/server/console/dist": true}

func readTree() (*tree, error) {
	root, err := testenv.ModuleRoot()
	if err != nil {
		return nil, err
	}
	t := &tree{fset: token.NewFileSet(), files: map[string][]byte{}, dirs: map[string]bool{}, binary: map[string]bool{}}
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch {
		case made[rel] && d.IsDir():
			return fs.SkipDir
		case made[rel] || strings.HasSuffix(rel, ".test") || strings.HasSuffix(rel, ".out"):
			return nil
		case d.IsDir():
			t.dirs[rel] = true
			return nil
		case d.Type().IsRegular():
			return t.readFile(name, rel)
		}
		return nil
	})
	return t, err
}

func (t *tree) readFile(name, rel string) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if bytes.IndexByte(b, 0) >= 0 {
		t.binary[rel] = true
		return nil
	}
	t.files[rel] = b
	if !strings.HasSuffix(rel, ".go") || strings.Contains("/"+rel, "/testdata/") {
		return nil
	}
	return t.parse(rel, b)
}

// parse adds a Go file.
func (t *tree) parse(rel string, b []byte) error {
	f, err := parser.ParseFile(t.fset, rel, b, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	pkg := path.Dir(rel)
	if pkg == "." {
		pkg = "sandbar"
	}
	t.sources = append(t.sources, source{path: rel, pkg: pkg, test: strings.HasSuffix(rel, "_test.go"), ast: f})
	return nil
}

// table returns the cells of the Markdown table below a heading of ARCHITECTURE.md, without the
// header.
func (t *tree) table(tb testing.TB, heading string) [][]string {
	tb.Helper()
	text := string(t.files["ARCHITECTURE.md"])
	_, text, found := strings.Cut(text, "\n## "+heading+"\n")
	if !found {
		tb.Fatalf("ARCHITECTURE.md has no section %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var rows [][]string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	if len(rows) < 3 {
		tb.Fatalf("section %q of ARCHITECTURE.md has no table", heading)
	}
	return rows[2:] // without the header and its separator
}

// quoted returns the names between backquotes in a cell.
func quoted(cell string) []string {
	var names []string
	for i, part := range strings.Split(cell, "`") {
		if i%2 == 1 {
			names = append(names, part)
		}
	}
	return names
}
