package glob

import (
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"abc", "abc", true}, {"*", "", true}, {"*", "anything", true}, {"a*c", "abbbc", true}, {"a*c", "abbb", false},
		{"?", "é", true}, {"??", "é", false}, {"[abc]", "b", true}, {"[!abc]", "b", false}, {"[^abc]", "d", true}, {"[a-c]x", "bx", true}, {"[]x]", "]", true},
		{"[!]x]", "a", true}, {"[a", "[a", true}, {"[[:digit:]]", "5", true}, {"[[:alpha:]_]*", "_x1", true}, {`\*`, "*", true}, {`\*`, "a", false}, {`a\`, `a\`, true},
		{"[a-]", "-", true}, {"[-a]", "-", true}, {"[a-c-e]", "-", true}, {"*a*b*c*", "xxaxxbxxcxx", true}, {"*.txt", ".txt", true}, {"[é-ü]", "ö", true}, {"[[:nope:]]", "n]", true},
		{"[[.a.]]", "a", true}, {"[[=a=]b]", "b", true}, {"a[!x]b", "a/b", true}, {"\xff?", "\xffa", true}, {"*\xff", "a\xff", true},
	} {
		if got := Match(c.pattern, c.s); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.pattern, c.s, got)
		}
	}
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"?(a)b", "b", true}, {"?(a)b", "ab", true}, {"?(a)b", "aab", false}, {"*(ab)", "ababab", true}, {"+(a|b)", "", false}, {"+(a|b)c", "abac", true},
		{"@(foo|bar)x", "barx", true}, {"@(foo|bar)x", "bazx", false}, {"!(foo)", "bar", true}, {"!(foo)", "foo", false}, {"!(*.txt)", "a.txt", false}, {"*.!(txt)", "a.md", true},
		{"+(+(a))", "aaaa", true}, {"@(a", "@(a", true}, {"*(a|*(b))c", "abbac", true}, {"@()", "", true},
	} {
		if got := Compile(c.pattern, Options{Extended: true}).Match(c.s); got != c.want {
			t.Errorf("extended %q, %q: %v", c.pattern, c.s, got)
		}
	}
	if !Compile("ABC[x-z]", Options{Fold: true}).Match("abcY") {
		t.Error("case is not folded")
	}
}

func TestHostilePatternsEnd(t *testing.T) {
	for _, pattern := range []string{strings.Repeat("*a", 500), strings.Repeat("+(a|aa)", 20) + "b", "+(+(+(+(a))))b", strings.Repeat("!(x)", 30), strings.Repeat("@(", 10_000)} {
		Compile(pattern, Options{Extended: true}).Match(strings.Repeat("a", 5000))
	}
}

// A quoted text matches only itself.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a*b", `[x]\`, "?(a)", "é", "\xff\x00"} {
		f.Add(s, s+"x")
	}
	f.Fuzz(func(t *testing.T, s, other string) {
		p := Compile(Quote(s), Options{Extended: true})
		if !p.Match(s) {
			t.Errorf("%q does not match itself", s)
		}
		if p.Match(other) != (s == other) {
			t.Errorf("%q matches %q: %v", s, other, s != other)
		}
	})
}

// A pattern with stars added at both ends matches whatever the pattern matched.
func FuzzMatch(f *testing.F) {
	for _, s := range []string{"a*b", "[a-z]?", "!(a|b)*", "+(x)", "[", `\`, "[[:alpha:]]"} {
		f.Add(s, "ab")
	}
	f.Fuzz(func(t *testing.T, pattern, s string) {
		if len(pattern) > 50 || len(s) > 50 {
			return
		}
		plain := Compile(pattern, Options{})
		if plain.Match(s) && !strings.HasSuffix(pattern, `\`) && !Compile(pattern+"*", Options{}).Match(s+"tail") && !strings.Contains(pattern, "[") {
			t.Errorf("%q matches %q, but not with a star and more behind", pattern, s)
		}
		Compile(pattern, Options{Extended: true, Fold: true}).Match(s)
		_ = HasMeta(pattern, true)
	})
}
