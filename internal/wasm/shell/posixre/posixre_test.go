package posixre

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFind(t *testing.T) {
	basic, extended := Options{}, Options{Extended: true}
	for _, c := range []struct {
		expr string
		o    Options
		s    string
		want string // the match and its groups, "-" for none
	}{
		{`a*`, basic, "baa", "[]"},
		{`aa*`, basic, "baab", "[aa]"},
		{`a\+`, basic, "baab", "[aa]"},
		{`a+`, basic, "a+", "[a+]"},
		{`a+`, extended, "baab", "[aa]"},
		{`a{2}`, extended, "aaa", "[aa]"},
		{`a\{2\}`, basic, "aaa", "[aa]"},
		{`a{2`, extended, "a{2", "-"},
		{`{x`, extended, "{x", "[{x]"},
		{`*a`, basic, "*a", "[*a]"},
		{`\(*a\)`, basic, "*a", "[*a *a]"},
		{`^*a`, basic, "*a", "[*a]"},
		{`a^b$c`, basic, "a^b$c", "[a^b$c]"},
		{`a|ab`, extended, "ab", "[ab]"}, // the longest
		{`(a|ab)(c|bcd)`, extended, "abcd", "[abcd a bcd]"},
		{`\(a\)\1`, basic, "baac", "[aa a]"},
		{`(a*)b\1`, extended, "aabaa", "[aabaa aa]"},
		{`(.)(.)\2\1`, extended, "xabbay", "[abba a b]"},
		{`[]a]`, basic, "]", "[]]"},
		{`[^]a]`, basic, "]b", "[b]"},
		{`[a-]`, basic, "-", "[-]"},
		{`[[:digit:]]+`, extended, "ab12", "[12]"},
		{`[\n]`, basic, `\`, `[\]`},
		{`[A-Za-z0-9_]+`, Options{Extended: true, Escapes: true}, "-aZ9_", "[aZ9_]"},
		{`\<b`, basic, "ab b", "[b]"},
		{`b\>`, basic, "bc b", "[b]"},
		{`\bfoo\b`, extended, "afoo foo", "[foo]"},
		{`\w+`, extended, " a_1 ", "[a_1]"},
		{`()`, extended, "x", "[ ]"},
		{`a||b`, extended, "b", "[b]"},
		{`x$`, basic, "x\nx", "[x]"},
		{`.`, basic, "é", "[é]"},
		{`[à-ü]`, basic, "é", "[é]"},
		{`\.`, basic, "a.b", "[.]"},
		{`a.c`, basic, "a\nc", "[a\nc]"},
		{`nope`, basic, "x", "-"},
	} {
		re, err := Compile(c.expr, c.o)
		if err != nil {
			if c.want != "-" {
				t.Errorf("%q: %v", c.expr, err)
			}
			continue
		}
		got := "-"
		if m := re.Find(c.s); m != nil {
			var parts []string
			for i := 0; i < len(m); i += 2 {
				if m[i] < 0 {
					parts = append(parts, "")
				} else {
					parts = append(parts, c.s[m[i]:m[i+1]])
				}
			}
			got = fmt.Sprint(parts)
		}
		if got != c.want {
			t.Errorf("%q in %q: %s, want %s", c.expr, c.s, got, c.want)
		}
	}
}

func TestErrors(t *testing.T) {
	for expr, o := range map[string]Options{
		`\(`: {}, `a\)`: {}, `(`: {Extended: true}, `a)`: {Extended: true}, `[a`: {}, `[[:nope:]]`: {}, `\1`: {}, `\(a\1\)`: {}, `a\{1`: {}, `a\{2,1\}`: {}, `a{99999}`: {Extended: true},
		`a\`: {}, `[z-a]`: {}, strings.Repeat("(", 300) + strings.Repeat(")", 300): {Extended: true}, strings.Repeat("a", 70_000): {},
	} {
		if _, err := Compile(expr, o); err == nil {
			t.Errorf("%.40q is no error", expr)
		}
	}
}

func TestAll(t *testing.T) {
	for _, c := range []struct {
		expr, s, want string
	}{
		{"b*", "abc", "[[0 0] [1 2] [3 3]]"},
		{"x", "axbxc", "[[1 2] [3 4]]"},
		{"^a", "aaa", "[[0 1]]"},
		{`\ba`, "aa a", "[[0 1] [3 4]]"},
		{`\<a`, "aa a", "[[0 1] [3 4]]"},
		{`(a)\1`, "aaaaa", "[[0 2 0 1] [2 4 2 3]]"},
		{"", "é", "[[0 0] [2 2]]"},
		{"$", "ab", "[[2 2]]"},
	} {
		re, err := Compile(c.expr, Options{Extended: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(re.All(c.s, -1)); got != c.want {
			t.Errorf("%q in %q: %s, want %s", c.expr, c.s, got, c.want)
		}
		if n := len(re.All(c.s, 1)); n > 1 {
			t.Errorf("%q: %d matches instead of one", c.expr, n)
		}
	}
}

func TestHostileExpressionsEnd(t *testing.T) {
	for _, expr := range []string{`(a*)*\1b`, `(a|a)*\1$x`, `((a*)*)*\2b`, `\<(a*)*b`, `(.*)(.*)(.*)\3\2\1z`} {
		re, err := Compile(expr, Options{Extended: true})
		if err != nil {
			t.Fatal(err)
		}
		re.Match(strings.Repeat("a", 2000))
	}
}

func FuzzCompile(f *testing.F) {
	for _, s := range []string{`a*`, `\(a\)\1`, `[[:alpha:]]`, `(a|b)+{2,3}`, `\<x\>`, `[]-a]`, `a\{1,\}`, `^$`} {
		f.Add(s, "abc ab a")
	}
	f.Fuzz(func(t *testing.T, expr, s string) {
		if len(expr) > 60 || len(s) > 60 {
			return
		}
		for _, o := range []Options{{}, {Extended: true}, {Fold: true, Escapes: true}, {Extended: true, Lines: true, Escapes: true}} {
			re, err := Compile(expr, o)
			if err != nil {
				continue
			}
			m := re.Find(s)
			if (m != nil) != re.Match(s) {
				t.Errorf("%q in %q: Find and Match disagree", expr, s)
			}
			last := 0
			for _, m := range re.All(s, -1) {
				if m[0] < last || m[1] < m[0] || m[1] > len(s) {
					t.Errorf("%q in %q: matches %v", expr, s, re.All(s, -1))
				}
				last = m[1]
			}
		}
	})
}

// A literal expression finds its text at the right offset.
func FuzzLiteral(f *testing.F) {
	f.Add("a.b*[", "xa.b*[y")
	f.Fuzz(func(t *testing.T, text, s string) {
		if len(text) > 100 || text == "" {
			return
		}
		for _, ext := range []bool{false, true} {
			re, err := Literal(text, Options{Extended: ext})
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			want := strings.Index(s, text)
			got := -1
			if m := re.Find(s); m != nil {
				got = m[0]
			}
			if got != want && utf8.ValidString(text) && utf8.ValidString(s) && !strings.Contains(text+s, "\ufffd") {
				t.Errorf("%q in %q: at %d, want %d", text, s, got, want)
			}
		}
	})
}
