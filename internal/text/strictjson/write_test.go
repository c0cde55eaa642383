package strictjson

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestAppendEscape(t *testing.T) {
	for c := range byte(utf8.RuneSelf) {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		quoted := AppendEscape([]byte(`"`), c)
		var got string
		if err := json.Unmarshal(append(quoted, '"'), &got); err != nil || got != string(rune(c)) {
			t.Errorf("%#x is written as %s, read as %q, %v", c, quoted, got, err)
		}
	}
}

// The standard library replaces bytes one by one; what a decoder that follows the
// Unicode standard replaces are these.
func TestSubpart(t *testing.T) {
	for in, want := range map[string]int{
		"\xff": 1, "\x80": 1, "\xc0\x80": 1, "\xc2": 1, "\xe2\x82": 2, "\xe2\x82A": 2, "\xe2A": 1,
		"\xed\xa0\x80": 1, "\xf0\x9f\x92": 3, "\xf0\x9f\x92A": 3, "\xf0\x9f\xff": 2, "\xf4\x90\x80\x80": 1,
	} {
		if got := Subpart([]byte(in)); got != want {
			t.Errorf("%q begins with %d bytes of a character, want %d", in, got, want)
		}
	}
}

// Plain looks at eight bytes at a time; every byte must be seen at every place.
func TestPlainPrefix(t *testing.T) {
	for c := range 256 {
		want := c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\'
		for at := range 20 {
			for _, fill := range []byte{' ', '~', '!', '#', '[', ']', 0x7f} {
				p := []byte(strings.Repeat(string(rune(fill)), 20))
				p[at] = byte(c)
				n := PlainPrefix(p)
				if want && n != 20 || !want && n != at {
					t.Fatalf("byte %#x at %d among %q: %d", c, at, fill, n)
				}
			}
		}
	}
}

// AppendASCII is AppendEscape for each byte that needs it, wherever it is, up to the first byte
// that is not ASCII.
func TestAppendASCII(t *testing.T) {
	slow := func(p string) (s string, n int) {
		for ; n < len(p) && p[n] < utf8.RuneSelf; n++ {
			if c := p[n]; c < ' ' || c == '"' || c == '\\' {
				s = string(AppendEscape([]byte(s), c))
			} else {
				s += string(rune(c))
			}
		}
		return s, n
	}
	check := func(p string) {
		want, n := slow(p)
		got, m := AppendASCII([]byte("before"), []byte(p))
		if string(got) != "before"+want || m != n {
			t.Fatalf("%q: %q, %d; want %q, %d", p, got, m, want, n)
		}
	}
	for c := range 256 {
		for at := range 20 {
			p := []byte(strings.Repeat("~", 20))
			p[at] = byte(c)
			check(string(p))
			check(string(p) + string(p))
		}
	}
	for _, unit := range []string{"\x00", "a", `"`, "line\n", "\u007f\\"} {
		for _, n := range []int{0, 1, 1023, 1024, 1025, 5000} {
			check(strings.Repeat(unit, n))
			check(strings.Repeat(unit, n) + "é" + unit)
		}
	}
}
