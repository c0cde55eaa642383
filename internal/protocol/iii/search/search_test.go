package search

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// grep returns the matches of a pattern in a text.
func grep(t testing.TB, pattern string, ignoreCase bool, width uint64, text string) (all []Match) {
	t.Helper()
	g, err := NewGrep(pattern, ignoreCase, width)
	if err != nil {
		t.Fatal(err)
	}
	err = g.File(strings.NewReader(text), func(n uint64, s string) bool {
		all = append(all, Match{Line: n, Content: s})
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestGrep(t *testing.T) {
	long := strings.Repeat("x", 3*block)
	for _, c := range []struct {
		name, pattern string
		ignoreCase    bool
		width         uint64
		text          string
		want          []Match
	}{
		{"lines", "b", false, 0, "abc\nx\nb\nnob", []Match{{Line: 1, Content: "abc"}, {Line: 3, Content: "b"}, {Line: 4, Content: "nob"}}},
		{"one entry a line", "a", false, 0, "aaa\n", []Match{{Line: 1, Content: "aaa"}}},
		{"carriage returns", "^b$", false, 0, "a\r\nb\r\n", []Match{{Line: 2, Content: "b"}}},
		{"anchors", "^a.$", false, 0, "ab\nxab\nabx\n", []Match{{Line: 1, Content: "ab"}}},
		{"the empty line", "^$", false, 0, "a\n\nb\n", []Match{{Line: 2}}},
		{"case", "ABC", true, 0, "abc\nAbC\nab\n", []Match{{Line: 1, Content: "abc"}, {Line: 2, Content: "AbC"}}},
		{"alternatives", "HACK|NOTE", false, 0, "a\nHACK x\nNOTE y\nb HACK\n",
			[]Match{{Line: 2, Content: "HACK x"}, {Line: 3, Content: "NOTE y"}, {Line: 4, Content: "b HACK"}}},
		{"a literal that is not all", "foo[0-9]+", false, 0, "foo\nfoox\nfoo12\n", []Match{{Line: 3, Content: "foo12"}}},
		{"not UTF-8", "a", false, 0, "a\n\xffa\na\n", []Match{{Line: 1, Content: "a"}, {Line: 3, Content: "a"}}},
		{"binary", "a", false, 0, "a\n\x00\na\n", nil},
		{"a late NUL", "^b$", false, 0, strings.Repeat("a\n", sniff) + "\x00\nb\n", []Match{{Line: sniff + 2, Content: "b"}}},
		{"width", ".", false, 4, "abcd\nabcde\nabcä\n", []Match{{Line: 1, Content: "abcd"}, {Line: 2, Content: "abcd…"}, {Line: 3, Content: "abc…"}}},
		{"a line larger than the buffer", "needle", false, 10, "a\n" + long + "needle\nneedle\n",
			[]Match{{Line: 2, Content: "xxxxxxxxxx…"}, {Line: 3, Content: "needle"}}},
		{"at the end, larger than the buffer", "needle", false, 10, long + "needle", []Match{{Line: 1, Content: "xxxxxxxxxx…"}}},
		{"many blocks", "^x7$", false, 0, strings.Repeat("y\n", 2*block) + "x7\n", []Match{{Line: 2*block + 1, Content: "x7"}}},
		{"nothing", "a", false, 0, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, grep(t, c.pattern, c.ignoreCase, c.width, c.text)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestGrepFindsWhatTheRegexpFinds tests that the prefilter hides no match.
func TestGrepFindsWhatTheRegexpFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`(a|b|ab|ba|a\+|\(a\|b\)|\.|\^|\$|x\?|\[ab\]|b\*|\(\?i:A\)|\||\n){1,5}`).Draw(t, "pattern")
		if _, err := regexp.Compile(pattern); err != nil {
			return
		}
		text := rapid.StringMatching(`[abx\n\r]{0,40}`).Draw(t, "text")
		g, err := NewGrep(pattern, false, 0)
		if err != nil {
			t.Fatal(err)
		}
		var got, want []Match
		_ = g.File(iotest.OneByteReader(strings.NewReader(text)), func(n uint64, s string) bool {
			got = append(got, Match{Line: n, Content: s})
			return true
		})
		for i, line := range strings.SplitAfter(text, "\n") {
			if line == "" {
				break // after the last
			}
			line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
			if regexp.MustCompile(pattern).MatchString(line) {
				want = append(want, Match{Line: uint64(i) + 1, Content: line})
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q in %q (-want +got):\n%s", pattern, text, diff)
		}
	})
}

func TestGrepEnds(t *testing.T) {
	g, err := NewGrep("a", false, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := g.File(strings.NewReader(strings.Repeat("a\n", 100)), func(uint64, string) bool { n++; return n < 3 }); err != nil || n != 3 {
		t.Errorf("%d lines were found after enough: %v", n, err)
	}
	broken := errors.New("broken")
	for _, before := range []string{"", "a\n", strings.Repeat("a\n", block), strings.Repeat("a", 2*block)} {
		r := io.MultiReader(strings.NewReader(before), iotest.ErrReader(broken))
		if err := g.File(r, func(uint64, string) bool { return true }); !errors.Is(err, broken) {
			t.Errorf("after %d bytes: %v", len(before), err)
		}
	}
	if _, err := NewGrep("(", false, 0); err == nil {
		t.Error("an unclosed group was compiled")
	}
	if _, err := NewGrep(strings.Repeat("a", maxPattern+1), false, 0); err == nil {
		t.Error("a pattern without bound was compiled")
	}
}

func TestSed(t *testing.T) {
	for _, c := range []struct {
		name, pattern, replacement   string
		regex, firstOnly, ignoreCase bool
		text, want                   string
		count                        uint64
	}{
		{"regex", `f(o+)`, "<$1>", true, false, false, "foo fo\nf\nfooo", "<oo> <o>\nf\n<ooo>", 3},
		{"names", `(?P<k>\w+)=(?P<v>\w+)`, "${v}=$k", true, false, false, "a=b\n", "b=a\n", 1},
		{"dollars", `a`, "$$1", true, false, false, "a", "$1", 1},
		{"no such group", `a`, "[$9]", true, false, false, "a", "[]", 1},
		{"first of each line", "a", "b", true, true, false, "aa\naa\n", "ba\nba\n", 2},
		{"case", "ABC", "x", true, false, true, "abc aBc", "x x", 2},
		{"literal", "a.b", "$1", false, false, false, "a.b axb a.b", "$1 axb $1", 2},
		{"literal, first", ".", "!", false, true, false, "..\n.", "!.\n!", 2},
		{"literal, case", "A.B", "$1", false, false, true, "a.b axb", "$1 axb", 1},
		{"end of line", "b$", "c", true, false, false, "ab\nbb\nb", "ac\nbc\nc", 3},
		{"start of line", "^", "> ", true, false, false, "a\nb\n", "> a\n> b\n", 2},
		{"blanks at the end", `\s+$`, "", true, false, false, "a  \nb\t\nc", "a\nb\nc", 2},
		{"the newline itself", `,\n`, ",", true, false, false, "a,\nb,\nc\n", "a,b,c\n", 2},
		{"a literal newline", "a\n", "b", false, false, false, "a\na\nxa", "bbxa", 2},
		{"carriage returns stay", "a", "b", true, false, false, "a\r\na\r\n", "b\r\nb\r\n", 2},
		{"nothing", "z", "y", true, false, false, "a\nb", "a\nb", 0},
		{"empty text", "a*", "b", true, false, false, "", "", 0},
		{"empty matches", "x*", "-", true, false, false, "ab\n", "-a-b-\n", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := NewSed(c.pattern, c.replacement, c.regex, c.firstOnly, c.ignoreCase)
			if err != nil {
				t.Fatal(err)
			}
			in := []byte(c.text)
			out, n := s.Apply(in)
			if string(out) != c.want || n != c.count || !bytes.Equal(in, []byte(c.text)) {
				t.Errorf("%q, %d; want %q, %d", out, n, c.want, c.count)
			}
		})
	}
	if _, err := NewSed("(", "", true, false, false); err == nil {
		t.Error("an unclosed group was compiled")
	}
}

func BenchmarkGrep(b *testing.B) {
	text := bytes.Repeat([]byte("the quick brown fox jumps over the lazy dog\n"), 100000)
	for _, pattern := range []string{"needle", "needle|haystack", "n[e]+dle", "[xyz]{4}"} {
		b.Run(pattern, func(b *testing.B) {
			g, err := NewGrep(pattern, false, 0)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				_ = g.File(bytes.NewReader(text), func(uint64, string) bool { return true })
			}
		})
	}
}
