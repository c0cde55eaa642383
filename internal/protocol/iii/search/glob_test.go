package search

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

func newFilter(t testing.TB, include, exclude []string) Filter {
	t.Helper()
	f, err := NewFilter(include, exclude)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFilter(t *testing.T) {
	for _, c := range []struct {
		include, exclude []string
		yes, no          []string
	}{
		{nil, nil, []string{"a", "a/b.js"}, nil},
		{[]string{"*.js"}, nil, []string{"a.js", "x/y/a.js", ".js", "a.js/b"}, []string{"a.ts", "ajs"}},
		{[]string{"src/*.js"}, nil, []string{"src/a.js"}, []string{"a.js", "src/x/a.js", "x/src/a.js"}},
		{[]string{"/*.js"}, nil, []string{"a.js"}, []string{"x/a.js"}},
		{[]string{"**/*.js"}, nil, []string{"a.js", "x/y/a.js"}, []string{"a.ts"}},
		{[]string{"**/x/*.js"}, nil, []string{"x/a.js", "y/x/a.js"}, []string{"a.js", "x/y/a.js"}},
		{[]string{"a/**/b"}, nil, []string{"a/b", "a/x/b", "a/x/y/b"}, []string{"b", "a/xb", "x/a/b"}},
		{[]string{"**"}, nil, []string{"a", "b/c"}, nil},
		{[]string{"a**b"}, nil, []string{"ab", "axb", "d/axxb"}, []string{"a/b"}},
		{[]string{"x/**"}, nil, []string{"x/a", "x/a/b"}, []string{"x", "y/x/a"}},
		{[]string{"?.c"}, nil, []string{"a.c", "ä.c", "d/b.c"}, []string{"ab.c", ".c"}},
		{[]string{"a?b/c"}, nil, []string{"axb/c"}, []string{"a/b/c", "ab/c"}},
		{[]string{"[ab].c"}, nil, []string{"a.c", "x/b.c"}, []string{"[ab].c", "c.c"}},
		{[]string{"[!a-c]", "[[:digit:]x]y", "[]]z", `[\]]w`}, nil, []string{"d", "1y", "xy", "]z", "]w"}, []string{"a", "zy", "az"}},
		{[]string{"a[+-9]b"}, nil, []string{"a,b", "a0b"}, []string{"a/b"}},
		{[]string{"[a", `x\`, "[[:nope:]]"}, nil, nil, []string{"[a", "a", `x\`, "x", "n"}},
		{[]string{"*.{js,ts}", "{a,b{1,2}}", `\{c,d\}`, "{e", "f}"}, nil, []string{"x/a.js", "b.ts", "a", "b1", "b2", "{c,d}", "{e", "f}"},
			[]string{"a.go", "b", "b3", "c", "e", "a,b1"}},
		{[]string{"{src,lib}/*.js"}, nil, []string{"src/a.js", "lib/b.js"}, []string{"x/src/a.js", "a.js"}},
		{[]string{"dir/"}, nil, []string{"dir/a", "x/dir/y/b"}, []string{"dir", "x/dir"}},
		{[]string{"*.JS"}, nil, []string{"a.JS"}, []string{"a.js"}},
		{[]string{"*.js", "!*.min.js"}, nil, []string{"a.js"}, []string{"a.min.js", "a.ts"}},
		{[]string{"!*.js"}, nil, []string{"a.ts", "x/b"}, []string{"a.js", "x/b.js"}},
		{[]string{"*.js", "*.ts"}, []string{"*.min.js", "node_modules/*"}, []string{"a.js", "b.ts", "x/node_modules/c.js"},
			[]string{"a.min.js", "node_modules/a.js", "c.go"}},
		{nil, []string{"node_modules"}, []string{"a.js"}, []string{"node_modules/a.js", "x/node_modules/y/z.js"}},
		{nil, []string{"build/", "!build/keep"}, []string{"build"}, []string{"build/keep", "build/x"}},
		{nil, []string{"build/*", "!build/keep"}, []string{"build/keep"}, []string{"build/x"}},
		{nil, []string{"**"}, nil, []string{"a", "a/b"}},
		{[]string{""}, nil, nil, []string{"a"}},
		{[]string{"# no", `\# yes`, "  ", "a  ", `b\ `, `\!c`}, nil, []string{"# yes", "a", "b ", "!c"}, []string{"# no", "  ", "a  ", "b", "c"}},
		{[]string{"*a*b*c*"}, nil, []string{"abc", "xaxbxcx", "aabbcc"}, []string{"acb", "ab"}},
		{[]string{"*"}, nil, []string{"a\nb", "\xff"}, nil},
		{[]string{"a**/c"}, nil, []string{"ab/c", "a/c"}, []string{"a", "a/b/c", "ac"}},
	} {
		f := newFilter(t, c.include, c.exclude)
		for _, rel := range c.yes {
			if !f.Selects(rel) {
				t.Errorf("+%q -%q does not choose %q", c.include, c.exclude, rel)
			}
		}
		for _, rel := range c.no {
			if f.Selects(rel) {
				t.Errorf("+%q -%q chooses %q", c.include, c.exclude, rel)
			}
		}
	}
}

func TestFilterPrunes(t *testing.T) {
	f := newFilter(t, []string{"*.js"}, []string{"node_modules", "/out/", "!keep"})
	for dir, want := range map[string]bool{"node_modules": true, "x/node_modules": true, "out": true, "x/out": false, "src": false, "keep": false} {
		if got := f.Prunes(dir); got != want {
			t.Errorf("%s: %v", dir, got)
		}
	}
}

func TestFilterBounds(t *testing.T) {
	for name, globs := range map[string][]string{
		"long": {strings.Repeat("a", maxGlob+1)}, "many": slices.Repeat([]string{"a"}, maxGlobs+1), "no UTF-8": {"\xff"},
	} {
		for _, f := range []func() (Filter, error){
			func() (Filter, error) { return NewFilter(globs, nil) }, func() (Filter, error) { return NewFilter(nil, globs) },
		} {
			if _, err := f(); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
	}
	// The longest allowed patterns, of the kind for which other matchers take exponential time.
	worst := newFilter(t, []string{strings.Repeat("*a", maxGlob/2-1) + "b", strings.Repeat("**/", maxGlob/3)}, nil)
	if worst.Selects(strings.Repeat("a", 4000)) {
		t.Error("it selects a file that it cannot match")
	}
}

// starsInName matches patterns such as a**/b. gitignore(5) says that these stars are regular ones.
// git 2.39 compares the text before the first special character alone and takes the rest for a
// pattern of its own, whose "**/" matches directories.
var starsInName = regexp.MustCompile(`^!?[^*?[\\]*[^*?[\\/]\*\*`)

// TestGlobsAsGitHasThem compares a list of globs with git's ignore patterns.
func TestGlobsAsGitHasThem(t *testing.T) {
	testenv.Need(t, testenv.Git)
	repository := t.TempDir()
	git := func(stdin string, args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir = repository
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME="+repository)
		cmd.Stdin = strings.NewReader(stdin)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if exit, ok := err.(*exec.ExitError); err != nil && (!ok || exit.ExitCode() != 1) { // 1: nothing is ignored
			t.Fatalf("git %v: %v\n%s", args, err, stderr.String())
		}
		return string(out)
	}
	git("", "init", "-q")
	rapid.Check(t, func(rt *rapid.T) {
		// Fragments, so that patterns are likely to match.
		piece := rapid.SampledFrom([]string{"a", "b", "c", "ab", "*", "**", "?", "/", "/", "/**/", "**/", "/**", "[ab]", "[!a]", "[a-c]", "[^b/]", "[]b]",
			"[[:alpha:]]", "[[:x:]]", "[+-9]", "[b-a]", "[a", "]", `\`, `\a`, `\*`, " ", "-", "!", "#", ".", "[a-", "[-a]", "[--0]", "[[:a]", `[\]a]`, "***"})
		pattern := rapid.Map(rapid.SliceOfN(piece, 1, 6), func(p []string) string { return strings.Join(p, "") })
		mark := rapid.SampledFrom([]string{"", "", "", "!"})
		end := rapid.SampledFrom([]string{"", "", "/"})
		patterns := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) string {
			return mark.Draw(rt, "mark") + pattern.Draw(rt, "pattern") + end.Draw(rt, "end")
		}).Filter(func(p string) bool { return !starsInName.MatchString(p) }), 1, 4).Draw(rt, "patterns")
		name := rapid.StringMatching(`[abc*\-,0]{1,3}`)
		files := rapid.SliceOfN(rapid.Map(rapid.SliceOfN(name, 1, 4), func(n []string) string { return strings.Join(n, "/") }), 1, 8).Draw(rt, "files")
		// A file cannot be another's directory.
		slices.Sort(files)
		files = slices.Compact(files)
		tree := filepath.Join(repository, "tree")
		if err := os.RemoveAll(tree); err != nil {
			rt.Fatal(err)
		}
		var made []string
		for _, f := range files {
			if os.MkdirAll(filepath.Join(tree, path.Dir(f)), 0o700) != nil || os.WriteFile(filepath.Join(tree, f), nil, 0o600) != nil {
				continue
			}
			made = append(made, f)
		}
		if err := os.WriteFile(filepath.Join(tree, ".gitignore"), []byte(strings.Join(patterns, "\n")+"\n"), 0o600); err != nil {
			rt.Fatal(err)
		}
		asked := ""
		for _, f := range made {
			asked += "tree/" + f + "\x00"
		}
		want := []string{}
		for _, f := range strings.Split(git(asked, "check-ignore", "-z", "--stdin"), "\x00") {
			if f != "" {
				want = append(want, strings.TrimPrefix(f, "tree/"))
			}
		}
		filter := newFilter(t, nil, patterns)
		got := []string{}
		for _, f := range made {
			if !filter.Selects(f) {
				got = append(got, f)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Fatalf("%q (-git +ours):\n%s", patterns, diff)
		}
	})
}

func FuzzGlob(f *testing.F) {
	f.Add("**/*.js", "a/b.js")
	f.Add("*a*a*a*a*b", strings.Repeat("a", 50))
	f.Add("{a,{b,[c-d]}}/[[:alpha:]", "a/b")
	f.Fuzz(func(t *testing.T, pattern, rel string) {
		if filter, err := NewFilter([]string{pattern}, []string{pattern}); err == nil && rel != "" && filter.Selects(rel) && !strings.HasPrefix(pattern, "!") {
			t.Errorf("%q both matches %q and does not", pattern, rel)
		}
	})
}
