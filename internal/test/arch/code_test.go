package arch

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	all := load(t)
	said := map[string]bool{}
	for _, s := range all.sources {
		if !s.test {
			said[s.pkg] = said[s.pkg] || s.ast.Doc != nil
		}
	}
	for pkg, ok := range said {
		if !ok {
			t.Errorf("package %s has no package comment", pkg)
		}
	}
}

func TestEveryExportedNameHasAComment(t *testing.T) {
	all := load(t)
	for _, s := range all.sources {
		if s.test {
			continue
		}
		for _, d := range s.ast.Decls {
			for _, name := range uncommented(d) {
				t.Errorf("%s: exported %s has no comment", all.position(d), name)
			}
		}
	}
}

// uncommented returns the exported names of a declaration without a doc comment. A group of
// constants or variables needs only one comment.
func uncommented(d ast.Decl) []string {
	var names []string
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Doc == nil && d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))) {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() && spec.Doc == nil && (d.Doc == nil || d.Lparen.IsValid()) {
					names = append(names, spec.Name.Name)
				}
			case *ast.ValueSpec:
				for _, n := range spec.Names {
					if n.IsExported() && spec.Doc == nil && spec.Comment == nil && d.Doc == nil {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	return names
}

// receiver returns the name of a method's receiver type.
func receiver(d *ast.FuncDecl) string {
	x := d.Recv.List[0].Type
	for {
		switch t := x.(type) {
		case *ast.StarExpr:
			x = t.X
		case *ast.IndexExpr:
			x = t.X
		case *ast.IndexListExpr:
			x = t.X
		case *ast.Ident:
			return t.Name
		default:
			return ""
		}
	}
}

// A package must not act because it is linked, so it has no init functions. Test files may have
// them: only init functions run on the main thread before the testing package does.
func TestNoInitFunctions(t *testing.T) {
	all := load(t)
	for _, s := range all.sources {
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && !s.test && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: init function; wire it where it is needed", all.position(f))
			}
		}
	}
}

var unsafeName = regexp.MustCompile(`_unsafe(_[a-z0-9]+)*\.go$`)

// The names of files mark code that can break memory safety, so that reviewers find it. Test files
// are exempt.
func TestUnsafeStandsInFilesNamedSo(t *testing.T) {
	all := load(t)
	for _, s := range all.sources {
		if s.test {
			continue
		}
		named := unsafeName.MatchString(s.path)
		found := unsafeUses(all, s)
		if len(found) > 0 && !named {
			t.Errorf("%s belongs in a file named *_unsafe.go or *_unsafe_GOOS.go: %s", s.path, strings.Join(found, "; "))
		}
		if len(found) == 0 && named {
			t.Errorf("%s is named unsafe but uses neither unsafe, raw system calls nor linkname", s.path)
		}
	}
}

var rawCalls = []string{"Syscall", "Syscall6", "SyscallN", "SyscallNoError", "RawSyscall", "RawSyscall6", "RawSyscallNoError"}

// unsafeUses returns the imports of unsafe, the raw system calls and the linkname directives of a
// file.
func unsafeUses(all *tree, s source) []string {
	var found []string
	if slices.Contains(s.imports(), "unsafe") {
		found = append(found, "imports unsafe")
	}
	for _, c := range calls(s, "syscall", "golang.org/x/sys/unix", "golang.org/x/sys/windows") {
		if slices.Contains(rawCalls, c.name) {
			found = append(found, "raw system call at "+all.position(c.node))
		}
	}
	for _, g := range s.ast.Comments {
		for _, c := range g.List {
			if strings.HasPrefix(c.Text, "//go:linkname") {
				found = append(found, "go:linkname at "+all.position(c))
			}
		}
	}
	return found
}

// call is a call of a function of an imported package, or another reference to it.
type call struct {
	name string
	node ast.Node
}

// calls returns the references to names of the given packages.
func calls(s source, importPaths ...string) []call {
	local := map[string]bool{} // the names of the imports in this file
	for _, spec := range s.ast.Imports {
		p := strings.Trim(spec.Path.Value, `"`)
		if !slices.Contains(importPaths, p) {
			continue
		}
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		local[name] = true
	}
	var found []call
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && local[x.Name] {
				found = append(found, call{sel.Sel.Name, sel})
			}
		}
		return true
	})
	return found
}

// starters are the functions that start a program.
var starters = map[string][]string{
	"os":                       {"StartProcess"},
	"os/exec":                  {"Command", "CommandContext"},
	"syscall":                  {"ForkExec", "StartProcess", "Exec", "CreateProcess", "CreateProcessAsUser"},
	"golang.org/x/sys/unix":    {"Exec"},
	"golang.org/x/sys/windows": {"CreateProcess", "CreateProcessAsUser"},
}

// startsPrograms reports whether a file can start a program.
func startsPrograms(s source) bool {
	for pkg, names := range starters {
		for _, c := range calls(s, pkg) {
			if slices.Contains(names, c.name) {
				return true
			}
		}
	}
	return makesCmd(s)
}

// makesCmd reports whether a file has a composite literal of exec.Cmd.
func makesCmd(s source) bool {
	found := false
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if lit, ok := n.(*ast.CompositeLit); ok {
			if sel, ok := lit.Type.(*ast.SelectorExpr); ok && sel.Sel.Name == "Cmd" {
				found = found || slices.ContainsFunc(calls(s, "os/exec"), func(c call) bool { return c.node == sel })
			}
		}
		return true
	})
	return found
}

// A table in ARCHITECTURE.md lists every file that starts a program.
func TestProgramsAreStartedWhereTheTableSays(t *testing.T) {
	all := load(t)
	listed := map[string]bool{}
	for _, row := range all.table(t, "Where programs are started") {
		if len(row) != 2 || row[1] == "" {
			t.Errorf("row %q does not have the columns file, what it starts", row)
			continue
		}
		for _, name := range quoted(row[0]) {
			listed[name] = true
		}
	}
	starts := map[string]bool{}
	for _, s := range all.sources {
		if s.test || !startsPrograms(s) {
			continue
		}
		starts[s.path] = true
		if !listed[s.path] {
			t.Errorf("%s starts programs but is missing in the table of ARCHITECTURE.md, \"Where programs are started\"", s.path)
		}
	}
	for name := range listed {
		if !starts[name] {
			t.Errorf("the table lists %s, which does not start programs", name)
		}
	}
}

// Only testenv.Need skips tests, so that the runner knows the reason of each skip.
func TestOnlyTestenvSkips(t *testing.T) {
	all := load(t)
	for _, s := range all.sources {
		if s.pkg == "internal/test/testenv" || !slices.Contains(s.imports(), "testing") || s.path == "internal/test/testenv/runner/runner_test.go" {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
				t.Errorf("%s: %s; use testenv.Need", all.position(sel), sel.Sel.Name)
			}
			return true
		})
	}
	script := regexp.MustCompile(`(?m)^(\[[^\]]*\]\s*)*skip\b.*$`)
	for name, text := range all.files {
		if !strings.Contains("/"+name, "/testdata/") || (path.Ext(name) != ".txtar" && path.Ext(name) != ".txt") {
			continue
		}
		for _, line := range script.FindAllString(string(text), -1) {
			t.Errorf("%s: %q; use testenv.Need in the test that runs the script", name, line)
		}
	}
}

// The detectors above, on code that breaks the rules. The wall clock is only passed to guests:
// after a clock change nothing may end early or late. Go's times are independent of clock changes
// as long as they are not converted to numbers.
func TestTimePassesByAClockThatDoesNotJump(t *testing.T) {
	guests := regexp.MustCompile(`^internal/(wasm/|warm/python/|agent/client/renew\.go$)`)
	all := load(t)
	for _, s := range all.sources {
		if s.test || guests.MatchString(s.path) {
			continue
		}
		for _, n := range clockNumbers(s) {
			t.Errorf("%s makes a number of the time now; keep the time.Time, or store it in an atomic.Pointer", all.position(n))
		}
	}
}

// clockNumbers finds time.Now().Unix(), and the like.
func clockNumbers(s source) (found []ast.Node) {
	ast.Inspect(s.ast, func(n ast.Node) bool {
		outer, ok := n.(*ast.SelectorExpr)
		if !ok || !slices.Contains([]string{"Unix", "UnixNano", "UnixMilli", "UnixMicro", "Round"}, outer.Sel.Name) {
			return true
		}
		if now, ok := outer.X.(*ast.CallExpr); ok {
			if f, ok := now.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Now" {
				found = append(found, n)
			}
		}
		return true
	})
	return found
}

func TestDetectors(t *testing.T) {
	parse := func(name, text string) (*tree, source) {
		all := &tree{fset: token.NewFileSet(), files: map[string][]byte{}}
		if err := all.parse(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
		return all, all.sources[0]
	}
	t.Run("comments", func(t *testing.T) {
		_, s := parse("a.go", `// Package a is.
package a
type T struct{}
func (T) M() {}
func (t) Hidden() {}
// F does.
func F() {}
func G[P any]() {}
// Constants.
const (A = 1; B = 2)
var V = 1
var W = 2 // commented
// Types.
type (
	U int
	// X is.
	X int
)
type Q[P any] struct{}
func (*Q[P]) N() {}
`)
		var got []string
		for _, d := range s.ast.Decls {
			got = append(got, uncommented(d)...)
		}
		want := []string{"T", "M", "G", "V", "U", "Q", "N"}
		if !slices.Equal(got, want) {
			t.Errorf("without a comment: %q, want %q", got, want)
		}
	})
	t.Run("unsafe", func(t *testing.T) {
		for text, want := range map[string]bool{
			`package a; import "unsafe"`: true,
			`package a; import u "golang.org/x/sys/unix"; func f() { u.RawSyscall(1, 2, 3, 4) }`: true,
			`package a; import "syscall"; var f = syscall.Syscall6`:                              true,
			"package a\n//go:linkname f runtime.f\nfunc f()":                                     true,
			`package a; import "syscall"; var f = syscall.Kill`:                                  false,
		} {
			all, s := parse("a.go", text)
			if got := len(unsafeUses(all, s)) > 0; got != want {
				t.Errorf("%q: unsafe = %v, want %v", text, got, want)
			}
		}
	})
	t.Run("clock", func(t *testing.T) {
		for text, want := range map[string]bool{
			`package a; import "time"; var n = time.Now().UnixNano()`:                              true,
			`package a; import "time"; var n = time.Now().Round(0)`:                                true,
			`package a; import "time"; var n = time.Since(time.Now())`:                             false,
			`package a; import "io/fs"; func f(i fs.FileInfo) int64 { return i.ModTime().Unix() }`: false,
		} {
			_, s := parse("a.go", text)
			if got := len(clockNumbers(s)) > 0; got != want {
				t.Errorf("%q: number of the time now = %v, want %v", text, got, want)
			}
		}
	})
	t.Run("programs", func(t *testing.T) {
		for text, want := range map[string]bool{
			`package a; import "os/exec"; var c = exec.Command("true")`:    true,
			`package a; import "os/exec"; func f(*exec.Cmd)`:               false,
			`package a; import "os/exec"; var c = &exec.Cmd{Path: "true"}`: true,
			`package a; import "os"; var f = os.StartProcess`:              true,
			`package a; import s "syscall"; var f = s.ForkExec`:            true,
			`package a; import "golang.org/x/sys/unix"; var f = unix.Exec`: true,
			`package a; import "os"; var f = os.FindProcess`:               false,
		} {
			_, s := parse("a.go", text)
			if got := startsPrograms(s); got != want {
				t.Errorf("%q: starts programs = %v, want %v", text, got, want)
			}
		}
	})
}

// functionNames returns the names of a file's functions.
func functionNames(s source) []string {
	var names []string
	for _, d := range s.ast.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
			names = append(names, f.Name.Name)
		}
	}
	return names
}
