package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// public returns the import paths of the packages that other modules may import.
func public(all *tree) []string {
	var paths []string
	for _, s := range all.sources {
		p := module
		if s.pkg != "sandbar" {
			p += "/" + s.pkg
		}
		if !s.test && s.ast.Name.Name != "main" && !internal(p) && !slices.Contains(paths, p) {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return paths
}

// internal reports whether only this module can import a path.
func internal(importPath string) bool {
	own, ok := short(importPath)
	return ok && slices.Contains(strings.Split(own, "/"), "internal")
}

// No exported function, method, field, variable or type of a public package names an internal
// type: an importer could not write such a type down.
func TestPublicAPI(t *testing.T) {
	paths := public(load(t))
	for _, want := range []string{module, module + "/client", module + "/driver", module + "/engine", module + "/sandbox"} {
		if !slices.Contains(paths, want) {
			t.Fatalf("the public packages are %q, without %s", paths, want)
		}
	}
	packages := imported(t, paths)
	for _, p := range paths {
		w := walker{pkg: packages[p], seen: map[types.Type]bool{}}
		scope := w.pkg.Scope()
		for _, name := range scope.Names() {
			if o := scope.Lookup(name); o.Exported() {
				w.object(o)
			}
		}
		for _, found := range w.found {
			t.Errorf("%s: %s", p, found)
		}
	}
}

// imported loads packages from the compiler's export data.
func imported(t *testing.T, paths []string) map[string]*types.Package {
	t.Helper()
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Export"}, paths...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Logf("%s", e.Stderr)
		}
		t.Fatal(err)
	}
	exports := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
	}
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(p string) (io.ReadCloser, error) {
		if exports[p] == "" {
			return nil, fmt.Errorf("no export data of %s", p)
		}
		return os.Open(exports[p])
	})
	packages := map[string]*types.Package{}
	for _, p := range paths {
		if packages[p], err = from.Import(p); err != nil {
			t.Fatal(err)
		}
	}
	return packages
}

// walker visits the types that are reachable from the exported names of a package.
type walker struct {
	pkg   *types.Package
	at    []string
	seen  map[types.Type]bool
	found []string
}

func (w *walker) object(o types.Object) {
	w.at = append(w.at, o.Name())
	defer func() { w.at = w.at[:len(w.at)-1] }()
	if name, ok := o.(*types.TypeName); ok {
		w.named(name)
		return
	}
	w.visit(o.Type())
}

// named visits a type's definition and its exported methods.
func (w *walker) named(name *types.TypeName) {
	if w.seen[name.Type()] {
		return
	}
	w.seen[name.Type()] = true
	if a, ok := name.Type().(*types.Alias); ok {
		w.visit(a.Rhs())
		return
	}
	n := name.Type().(*types.Named)
	w.parameters(n.TypeParams())
	w.visit(n.Underlying())
	for m := range n.Methods() {
		if m.Exported() {
			w.object(m)
		}
	}
}

func (w *walker) parameters(list *types.TypeParamList) {
	for p := range list.TypeParams() {
		w.visit(p.Constraint())
	}
}

// use visits a reference to a named type. Types of other packages are visited with those.
func (w *walker) use(name *types.TypeName, args *types.TypeList) {
	for a := range args.Types() {
		w.visit(a)
	}
	switch {
	case name.Pkg() == nil:
	case internal(name.Pkg().Path()):
		w.found = append(w.found, strings.Join(w.at, ".")+" names "+name.Pkg().Path()+"."+name.Name())
	case name.Pkg() == w.pkg:
		w.object(name)
	}
}

func (w *walker) visit(t types.Type) {
	switch t := t.(type) {
	case *types.Alias:
		w.use(t.Obj(), t.TypeArgs())
	case *types.Named:
		w.use(t.Obj(), t.TypeArgs())
	case *types.Signature:
		w.parameters(t.TypeParams())
		w.visit(t.Params())
		w.visit(t.Results())
	case *types.Tuple:
		for v := range t.Variables() {
			w.visit(v.Type())
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() || f.Embedded() { // methods and fields of an embedded type are promoted
				w.object(f)
			}
		}
	case *types.Interface:
		for m := range t.ExplicitMethods() {
			w.object(m)
		}
		for e := range t.EmbeddedTypes() {
			w.visit(e)
		}
	case *types.Union:
		for term := range t.Terms() {
			w.visit(term.Type())
		}
	case *types.Map:
		w.visit(t.Key())
		w.visit(t.Elem())
	case interface{ Elem() types.Type }: // pointer, slice, array, channel
		w.visit(t.Elem())
	}
}

// Another module builds a program with each public package, and runs one with its own driver. The
// programs are in testdata/importer. That module replaces its requirement by this directory and
// needs no network.
func TestForeignModule(t *testing.T) {
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "importer"))); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	// The versions are those of this module, so the module cache has them.
	own := strings.Replace(string(mod), "module "+module, "module example.org/importer", 1) +
		"\nrequire " + module + " v0.0.0\nreplace " + module + " => " + root + "\n"
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"go.mod": []byte(own), "go.sum": sum} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tool := func(args ...string) string {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	tool("vet", "./...") // compiles, and links nothing
	if got, want := tool("run", "./driver"), "from another module\nexited <nil> <nil>\n"; got != want {
		t.Errorf("the program with its own driver wrote %q, want %q", got, want)
	}
}
