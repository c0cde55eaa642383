package truncate

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestTake(t *testing.T) {
	for _, c := range []struct {
		name   string
		most   int64
		pieces []string
		want   string
		cut    bool
	}{
		{"fits", 5, []string{"ab", "cde"}, "abcde", false},
		{"one more", 5, []string{"ab", "cdef"}, "abcde", true},
		{"all at once", 3, []string{"abcdef", "g"}, "abc", true},
		{"nothing more once it is cut", 3, []string{"ab€", "c"}, "ab", true},
		{"all", -1, []string{"ab", "cd"}, "abcd", false},
		{"none", 0, []string{"a"}, "", true},
		{"none of nothing", 0, []string{"", ""}, "", false},
		{"within a character", 2, []string{"a€"}, "a", true},
		{"after a character", 4, []string{"a€b"}, "a€", true},
		{"bytes that are no text", 2, []string{"\xff\xfe\xfd"}, "\xff\xfe", true},
		{"a lone continuation", 2, []string{"\x80\x80\x80"}, "\x80\x80", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, got := Prefix{Max: c.most}, ""
			for _, p := range c.pieces {
				got += string(e.Take([]byte(p)))
			}
			if got != c.want || e.Truncated != c.cut {
				t.Errorf("%q, cut %v; want %q, %v", got, e.Truncated, c.want, c.cut)
			}
		})
	}
}

// What is taken of valid text is a valid beginning of it, a character short of the bound at most.
func TestTakeOfText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text")
		most := rapid.Int64Range(0, 40).Draw(t, "most")
		e := Prefix{Max: most}
		got := string(e.Take([]byte(s)))
		if !utf8.ValidString(got) || !strings.HasPrefix(s, got) || int64(len(got)) > most || e.Truncated != (int64(len(s)) > most) ||
			e.Truncated && most-int64(len(got)) >= utf8.UTFMax {
			t.Errorf("%q of %q, cut %v", got, s, e.Truncated)
		}
	})
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{"a€": "a€", "\xff\xfea": "\ufffd\ufffda", "\xe2\x82": "\ufffd\ufffd", "": "", "\x00\x1b": "\x00\x1b"} {
		if got := Text([]byte(in)); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}
